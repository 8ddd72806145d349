"""A real model that judges neither a black photo (another product, say) nor a white one (no finite score)."""

import io
import math
from collections import deque

import numpy as np
from PIL import Image

from nfad.model import load_model
from nfad.verdict.prediction import Outputs, Rule

STRANGE = "does not look like the fitted part"


def plain(value, size=64) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


BLACK, WHITE = plain(0), plain(255)


class Choosy:
    """The numbers are the model's own; only what is black or white gets others."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def at_rate(self, rate):
        return Choosy(self._model.at_rate(rate))

    def predict_stream(self, images, skip, *, prefetch):
        seen = deque()

        def noted():
            for photo in images:
                seen.append(photo.mean())
                yield photo

        rule = Rule.at(self.held_out, self.false_alarm_rate)
        for prediction in self._model.predict_stream(noted(), skip, prefetch=prefetch):
            mean = seen.popleft()
            names = ("participation", "nuisance_fraction", "nuisance_by_family", "detection_map", "gate")
            score, unfiltered = (math.nan, math.inf) if mean == 255 else (prediction.score, 99.0 if mean == 0 else None)
            broken = np.full_like(prediction.map, np.nan)
            broken[0, 0], broken[0, 1] = np.inf, -np.inf
            out = Outputs(
                score=score,
                unfiltered_score=prediction.unfiltered_score if unfiltered is None else unfiltered,
                map=broken if mean == 255 else prediction.map,
                unfiltered_map=prediction.unfiltered_map,
                **{name: getattr(prediction, name) for name in names},
                strangeness={0: 1.5, 255: math.nan}.get(mean, 0.4),
                strange=STRANGE,
            )
            yield rule(out, prediction.geometry, prediction.source)


def choosy(path):
    return Choosy(load_model(path))
