"""What a fit learns of how its photos look, and keeps."""

import numpy as np
import pytest
import torch
from parts import part, parts, tiny

from nfad import Detector
from nfad.fitting.developing import TOLD, development_of
from nfad.fitting.views import ViewCache
from nfad.vision.region import Region


def test_a_model_keeps_its_development(tmp_path):
    detector = Detector.fit(parts(10), tiny())
    assert detector.config.developed and detector.development is not None
    loaded = Detector.load(detector.save(tmp_path / "m.nfad"))
    dark = (0.4 * part(30)).astype(np.uint8)
    assert loaded.predict(dark).score == detector.predict(dark).score
    plain = Detector.fit(parts(10), tiny(developed=False))
    assert plain.development is None and plain.predict(dark).score != detector.predict(dark).score


@pytest.mark.parametrize("changes", [{"acquisitions": 0}, {"reference": "student", "order": "fit-then-filter"}])
def test_a_fit_that_knows_no_acquisitions_or_has_a_student_develops_nothing(changes):
    detector = Detector.fit(parts(10), tiny(**changes))
    assert detector.development is None and not detector.config.developed


def test_a_developed_photo_in_another_light_is_more_like_itself():
    """Its tokens are, and so is its score."""
    fits = [Detector.fit(parts(16), tiny(developed=developed, acquisitions=64)) for developed in (False, True)]
    photos = [part(50 + seed).astype(float) for seed in range(6)]
    off = []
    for detector in fits:
        seen = [[detector.predict((gain * photo).astype(np.uint8)).map for photo in photos] for gain in (1.0, 0.5)]
        off.append(np.mean([np.abs(a - b).mean() for a, b in zip(*seen, strict=True)]))
    assert off[1] < off[0] / 2


def test_a_large_fit_is_told_by_some_of_its_photos_and_a_small_one_by_all(tmp_path):
    views, seen = ViewCache.read(parts(12), 64, None, tmp_path), []
    views_of = views.__class__.__call__
    views.__class__ = type(
        "Counted", (ViewCache,), {"__call__": lambda self, some: seen.extend(some.tolist()) or views_of(self, some)}
    )
    development_of(tiny(), views, torch.arange(12), None)
    assert seen == list(range(12))
    seen.clear()
    development_of(tiny(), views, torch.arange(12).repeat(100), None)
    assert len(seen) == TOLD and set(seen) == set(range(12))


def test_what_lies_under_a_mask_tells_nothing(tmp_path):
    seen = torch.zeros(64, 64, dtype=torch.bool)
    seen[:, :40] = True
    found = []
    for name, level in (("one", 0), ("two", 255)):
        photos = parts(10)
        for photo in photos:
            photo[:, 40:] = level
        (tmp_path / name).mkdir()
        views = ViewCache.read(photos, 64, None, tmp_path / name)
        found.append(development_of(tiny(), views, torch.arange(10), Region(seen)))
    for field in ("fine", "white", "grain", "mean", "spread"):
        torch.testing.assert_close(*(getattr(each, field) for each in found))
