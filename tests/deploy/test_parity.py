import dataclasses
import math

import numpy as np
import pytest
from PIL import Image

from nfad import NfadError
from nfad.deploy.parity import LIMITS, Limits, compare, images_for
from nfad.verdict.threshold import Threshold

SCORES = ["score", "unfiltered_score", "map", "detection_map", "unfiltered_map"]
SHARES = ["participation", "nuisance_fraction"]
LENIENT = Limits(score=np.inf, map=np.inf, strangeness=np.inf, shares=np.inf, flips=0)


class Shifted:
    """A runtime that is torch itself, off by a constant, which judges by its own numbers."""

    def __init__(self, detector, **offsets):
        self._detector, self._offsets = detector, offsets

    def predict(self, image):
        found = self._detector.predict(image)
        found = dataclasses.replace(found, **{name: getattr(found, name) + by for name, by in self._offsets.items()})
        why = "strange" if found.strangeness > 1 else ""
        return dataclasses.replace(
            found, why_not_judged=why, is_anomalous=not why and bool(found.score > found.threshold)
        )


@pytest.fixture
def images(shipped):
    return images_for(shipped.detector, shipped.normals)[0]


def test_torch_agrees_with_itself(shipped):
    images, _ = images_for(shipped.detector, shipped.normals[:3])
    parity = compare(shipped.detector, Shifted(shipped.detector), images, "itself", Limits(0, 0, 0, 0, 0))
    assert parity.passed and parity.score_drift == parity.map_drift == parity.strangeness_drift == parity.flips == 0
    assert parity.images == 9 and parity.verdicts == 18


@pytest.mark.parametrize("name", [*SCORES, "strangeness", *SHARES])
def test_each_number_is_looked_at(name, shipped):
    images, _ = images_for(shipped.detector, shipped.normals[:2])
    parity = compare(shipped.detector, Shifted(shipped.detector, **{name: 0.5}), images, "shifted", LIMITS["fp32"])
    assert not parity.passed
    assert (parity.score_drift > 0.001) == ("score" in name) and (parity.map_drift > 0.005) == ("map" in name)
    assert (parity.strangeness_drift > 0.001) == (name == "strangeness")
    assert (parity.share_drift > 0.001) == (name in SHARES)


def test_shares_are_looked_at_family_by_family(shipped):
    """One that is too large by what another is too small leaves their sum as it is."""

    class Swapped(Shifted):
        def predict(self, image):
            found = super().predict(image)
            one, other, *_ = found.nuisance_by_family
            families = found.nuisance_by_family
            moved = {**families, one: families[one] + 0.2, other: families[other] - 0.2}
            return dataclasses.replace(found, nuisance_by_family=moved)

    images, _ = images_for(shipped.detector, shipped.normals[:1])
    parity = compare(shipped.detector, Swapped(shipped.detector), images, "swapped", LIMITS["fp32"])
    assert not parity.passed and parity.share_drift == pytest.approx(0.2, abs=1e-6)
    assert "shares of the deviation by 0.2" in str(parity)


def test_a_graph_that_cannot_tell_is_not_one_that_can(shipped):
    images, _ = images_for(shipped.detector, shipped.normals[:2])
    cannot = Shifted(shipped.detector, strangeness=math.nan)
    assert compare(shipped.detector, cannot, images, "blind", LENIENT).strangeness_drift == math.inf
    neither = dataclasses.replace(shipped.detector, judgeable=None)
    assert compare(neither, Shifted(neither), images, "blind", Limits(0, 0, 0, 0, 0)).passed


def test_flipped_verdicts_are_counted_and_ties_are_not(shipped, images):
    on_it = shipped.detector.predict(images[0])
    held_out = Threshold((on_it.score,), (on_it.unfiltered_score,))
    detector = dataclasses.replace(shipped.detector, held_out=held_out)
    wanted = [detector.predict(image) for image in images]
    ties = [each.is_judged and abs(each.score - on_it.score) <= 1e-3 * max(1, abs(each.score)) for each in wanted]
    near = [abs(each.strangeness - 1) <= 1e-3 * max(1, each.strangeness) for each in wanted]
    assert on_it.is_judged and ties[0]
    flipped = compare(detector, Shifted(detector, score=1e3), images, "shifted", LENIENT)
    counted = [each.verdict == "normal" and not tie and not on for each, tie, on in zip(wanted, ties, near)]
    assert flipped.flips == sum(counted) > 0
    assert not flipped.passed and "verdicts flipped" in str(flipped)
    assert flipped.ties >= sum(ties) >= 1


@pytest.mark.parametrize("by", [1e3, -1e3])
def test_judged_by_one_and_not_by_the_other_is_a_flip_of_both_verdicts(shipped, images, by):
    images = [*images, np.zeros_like(images[0])]
    wanted = [shipped.detector.predict(image) for image in images]
    flipped = compare(shipped.detector, Shifted(shipped.detector, strangeness=by), images, "shifted", LENIENT)
    changed = sum(each.is_judged == (by > 0) for each in wanted)
    assert flipped.flips == 2 * changed > 0 and not flipped.passed


def test_a_strangeness_at_its_limit_is_a_tie(shipped, images):
    """Both verdicts of that image alone, whatever its scores."""
    strangest = max(images, key=lambda image: shipped.detector.predict(image).strangeness)
    limit = shipped.detector.judgeable.limit * shipped.detector.predict(strangest).strangeness
    detector = dataclasses.replace(
        shipped.detector, judgeable=dataclasses.replace(shipped.detector.judgeable, limit=limit)
    )
    assert detector.predict(strangest).strangeness == pytest.approx(1, abs=1e-5)
    parity = compare(detector, Shifted(detector, strangeness=0.1), [strangest], "shifted", LENIENT)
    assert (parity.flips, parity.ties) == (0, 2) and parity.passed


def test_the_images_are_seeded_and_each_comes_three_times(shipped):
    first, source = images_for(shipped.detector, shipped.normals)
    again, _ = images_for(shipped.detector, shipped.normals)
    assert all(np.array_equal(a, b) for a, b in zip(first, again)) and "12 normals" in source
    plain, changed = first[:12], first[12:]
    assert len(changed) == 24 and all(image.dtype == np.uint8 for image in first)
    differs = [not np.array_equal(plain[i // 2], copy) for i, copy in enumerate(changed)]
    assert np.mean(differs) > 0.9


def test_photos_that_the_model_does_not_judge_prove_nothing(shipped, tmp_path):
    assert shipped.detector.judgeable is not None
    paths = [tmp_path / f"{index}.png" for index in range(4)]
    for path in paths:
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(path)
    with pytest.raises(NfadError, match="4 of 4 of the normals are not judged by this model; name photos of the good"):
        images_for(shipped.detector, paths)
