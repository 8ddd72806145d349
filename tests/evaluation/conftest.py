"""A labelled set on disk, taken in two lights."""

import numpy as np
import pytest
from exporting import exported_part
from parts import part
from PIL import Image

from nfad.records import Sample
from nfad.verdict.prediction import Outputs, Rule


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    return exported_part(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def in_two_lights(tmp_path_factory):
    """So many images of 80² pixels, the second half at a share of the light, every other one with a marked defect."""

    def made(count, light):
        root, samples = tmp_path_factory.mktemp("set"), []
        truth = np.zeros((80, 80), np.uint8)
        truth[40:53, 40:53] = 255
        Image.fromarray(truth).save(root / "mask.png")
        for index in range(count):
            defect, dark = index % 2 == 1, index >= count // 2
            path = root / f"{index}.png"
            Image.fromarray((part(100 + index, 80, defect) * (light if dark else 1)).astype(np.uint8)).save(path)
            kind, mask = ("square", root / "mask.png") if defect else ("good", None)
            samples.append(Sample(path, defect, kind, "dark" if dark else "same", mask))
        return samples

    return made


@pytest.fixture(scope="session")
def refusing():
    """A model that does not judge some photos: those that `strange` says so of, by their path or place."""

    def made(model, strange, score=None):
        return Refusing(model, strange, score)

    return made


class Refusing:
    """Another model's predictions, through the same rule, with a strangeness beyond its limit where told."""

    def __init__(self, model, strange, score=None):
        self._model, self._strange, self._score = model, strange, score

    def __getattr__(self, name):
        return getattr(self._model, name)

    def predict_stream(self, images, skip=None, *, prefetch=False):
        images = list(images)
        for image, prediction in zip(images, self._model.predict_stream(images, skip, prefetch=prefetch), strict=True):
            yield self._again(prediction) if self._strange(image) else prediction

    def predict_views(self, views):
        judged = self._model.predict_views(views)
        return [self._again(each) if self._strange(view) else each for view, each in zip(views, judged, strict=True)]

    def predict(self, image):
        prediction = self._model.predict(image)
        return self._again(prediction) if self._strange(image) else prediction

    def at_rate(self, rate):
        return Refusing(self._model.at_rate(rate), self._strange, self._score)

    def _again(self, one):
        out = Outputs(
            one.score if self._score is None else self._score, one.unfiltered_score, one.map, one.unfiltered_map,
            one.participation, one.nuisance_fraction, one.nuisance_by_family, one.detection_map, one.gate,
            strangeness=2.5, strange="does not look like the fitted part",
        )  # fmt: skip
        rule = Rule.at(self._model.held_out, self._model.config.false_alarm_rate)
        return rule(out, one.geometry, one.source)
