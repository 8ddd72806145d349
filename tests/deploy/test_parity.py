import dataclasses

import numpy as np
import pytest

from nfad.deploy.parity import LIMITS, Limits, compare, images_for


class Shifted:
    """A runtime that is torch itself, off by a constant."""

    def __init__(self, detector, **offsets):
        self._detector, self._offsets = detector, offsets

    def predict(self, image):
        found = self._detector.predict(image)
        return dataclasses.replace(found, **{name: getattr(found, name) + by for name, by in self._offsets.items()})


def test_torch_agrees_with_itself(shipped):
    images, _ = images_for(shipped.detector, shipped.normals[:3])
    parity = compare(shipped.detector, Shifted(shipped.detector), images, "itself", Limits(0, 0, 0))
    assert parity.passed and parity.score_drift == parity.map_drift == parity.flips == 0
    assert parity.images == 9 and parity.verdicts == 18


@pytest.mark.parametrize("name", ["score", "unfiltered_score", "map", "detection_map", "unfiltered_map"])
def test_each_number_is_looked_at(name, shipped):
    images, _ = images_for(shipped.detector, shipped.normals[:2])
    parity = compare(shipped.detector, Shifted(shipped.detector, **{name: 0.5}), images, "shifted", LIMITS["fp32"])
    assert not parity.passed
    assert (parity.score_drift > 0.001) == ("score" in name) and (parity.map_drift > 0.005) == ("map" in name)


def test_flipped_verdicts_are_counted_and_ties_are_not(shipped):
    images, _ = images_for(shipped.detector, shipped.normals)
    lenient = Limits(score=np.inf, map=np.inf, flips=0)
    flipped = compare(shipped.detector, Shifted(shipped.detector, score=1e3), images, "shifted", lenient)
    below = [shipped.detector.predict(image) for image in images]
    ties = [abs(p.score - p.threshold) <= 1e-3 * max(1, abs(p.score)) for p in below]
    assert flipped.flips == sum(not p.is_anomalous and not tie for p, tie in zip(below, ties)) > 0
    assert not flipped.passed and "verdicts flipped" in str(flipped)
    # The image that set the threshold lies on it.
    assert flipped.ties >= sum(ties) >= 1


def test_the_images_are_seeded_and_each_comes_three_times(shipped):
    first, source = images_for(shipped.detector, shipped.normals)
    again, _ = images_for(shipped.detector, shipped.normals)
    assert all(np.array_equal(a, b) for a, b in zip(first, again)) and "12 normals" in source
    plain, changed = first[:12], first[12:]
    assert len(changed) == 24 and all(image.dtype == np.uint8 for image in first)
    differs = [not np.array_equal(plain[i // 2], copy) for i, copy in enumerate(changed)]
    assert np.mean(differs) > 0.9
