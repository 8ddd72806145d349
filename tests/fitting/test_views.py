import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part, parts, tiny

from nfad import Detector
from nfad.deploy.export import export
from nfad.deploy.runtime import Runtime
from nfad.fitting.views import STRETCH, AcquiredViews, DamagedViews, ViewCache, judged_ratios


@given(st.floats(0.2, 5))
def test_photos_of_one_shape_allow_a_tenth(ratio):
    low, high = judged_ratios([ratio] * 8)
    assert low == pytest.approx(ratio / STRETCH) and high == pytest.approx(ratio * STRETCH)


@given(st.lists(st.floats(0.2, 5), min_size=2, max_size=30))
def test_photos_of_many_shapes_allow_their_own_spread(ratios):
    low, high = judged_ratios(ratios)
    assert low <= min(ratios) / STRETCH * 1.000001 and high >= max(ratios) * STRETCH * 0.999999
    assert low == pytest.approx(min(ratios) / max(STRETCH, np.exp(np.log(ratios).std())))


def test_a_stretched_photo_is_not_judged_by_a_model_or_its_export(tmp_path):
    """As wide as high at the fit."""
    detector = Detector.fit(parts(10), tiny())
    export(detector.save(tmp_path / "m.nfad"), tmp_path / "out")
    photo = part(40, 90)
    for model in (detector, Detector.load(tmp_path / "m.nfad"), Runtime.load(tmp_path / "out")):
        square, stretched = model.predict([photo, photo[:, :60]])
        assert "shape" not in square.why_not_judged
        assert stretched.verdict == "not judged"
        assert "60×90, and would be stretched" in stretched.explain()


def test_where_the_camera_may_be_nudged_acquisitions_are_seen_by_a_nudged_one(tmp_path):
    views = ViewCache.read(parts(8), 64, None, tmp_path)
    every = torch.arange(6)
    for kind in (AcquiredViews, DamagedViews):
        still, nudged, again = (kind(views, every, 0, nudges=nudges) for nudges in (False, True, True))
        for index in range(6):  # of its number alone
            assert torch.equal(nudged(every)[index], again(torch.tensor([index]))[0])
        moved = [not torch.allclose(*pair, atol=0.02) for pair in zip(still(every), nudged(every))]
        assert 0 < sum(moved) < len(moved)  # some, at random


def test_a_nudged_fit_bears_a_nudge_better():
    """In units of its own threshold."""
    photos, moved = parts(16), [np.roll(part(seed), (3, -3), axis=(0, 1)) for seed in range(40, 46)]
    excess = []
    for nudges in (0, 2):
        detector = Detector.fit(photos, tiny(nudges=nudges, acquisitions=64, false_alarm_rate=0.1, pose="as taken"))
        excess.append(np.mean([each.score / detector.threshold for each in detector.predict(moved)]))
    assert excess[1] < excess[0]
