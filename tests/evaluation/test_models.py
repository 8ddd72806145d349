from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad import NfadError
from nfad.deploy.parity import LIMITS, TIE
from nfad.evaluation.evaluate import evaluate
from nfad.model import load_model
from nfad.report.page import about
from nfad.vision.corruptions import Corruption
from nfad.vision.images import pixels_of

ALLOWED = LIMITS["fp32"]


@pytest.fixture(scope="module")
def fitted(shipped):
    return shipped.detector


@pytest.fixture(scope="module")
def exported(shipped):
    return load_model(shipped.folder)


def near(found, wanted, share):
    """As the gate of an export compares: relative to what is wanted, or to 1."""
    return np.abs(found - wanted).max() <= share * max(1, np.abs(wanted).max())


@given(seed=st.integers(0, 2**32 - 1))
def test_the_graph_sees_the_very_view(fitted, exported, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    views = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    for wanted, found in zip(fitted.predict_views(views), exported.predict_views(views), strict=True):
        for name in ("map", "detection_map", "unfiltered_map"):
            assert near(getattr(found, name), getattr(wanted, name), ALLOWED.map)
        for name in ("score", "unfiltered_score", "gate", "nuisance_fraction", "participation"):
            assert near(getattr(found, name), getattr(wanted, name), ALLOWED.score)
        assert found.nuisance_by_family.keys() == wanted.nuisance_by_family.keys()
        assert found.geometry is None and wanted.geometry is None


@given(seed=st.integers(0, 2**32 - 1), off=st.floats(-0.49, 0.49))
def test_views_are_rounded_to_8_bits(seed, off):
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    view = (torch.from_numpy(pixels).permute(2, 0, 1) + off) / 255
    assert np.array_equal(pixels_of(view.clamp(0, 1)), pixels)


@pytest.mark.parametrize("corruption", [None, Corruption("gaussian_noise", 3), Corruption("contrast", 2)])
def test_fitted_and_exported_are_evaluated_alike(fitted, exported, in_two_lights, corruption):
    samples = in_two_lights(8, 0.5)
    wanted, found = (evaluate(model, samples, corruption=corruption) for model in (fitted, exported))
    assert (found.threshold, found.unfiltered_threshold) == (wanted.threshold, wanted.unfiltered_threshold)
    for ours, theirs in zip(found.images, wanted.images, strict=True):
        for name, threshold in (("score", wanted.threshold), ("unfiltered_score", wanted.unfiltered_threshold)):
            score, by_torch = getattr(ours, name), getattr(theirs, name)
            assert abs(score - by_torch) <= ALLOWED.score * max(1, abs(by_torch))
            if abs(by_torch - threshold) > TIE * max(1, abs(by_torch)):
                assert (score > threshold) == (by_torch > threshold)
    for ours, theirs in zip(found.rows, wanted.rows, strict=True):
        assert ours.arms["filtered"].aupro == pytest.approx(theirs.arms["filtered"].aupro, abs=ALLOWED.map)


def test_it_is_at_the_rate_asked_for_and_a_report_says_what_it_is(fitted, exported):
    other = exported.at_rate(0.5)
    assert (other.config.false_alarm_rate, exported.config.false_alarm_rate) == (0.5, 0.3)
    assert other.threshold == fitted.at_rate(0.5).threshold < exported.threshold == fitted.threshold
    assert other.config == fitted.at_rate(0.5).config
    assert about(exported) == about(fitted) | {"Exported": "fp32, onnx, from part.nfad"}


def test_a_graph_for_one_size_of_photo_judges_those_and_no_changed_view(fitted, exported, in_two_lights):
    def framed(*frame):
        metadata = exported.metadata | {"input": exported.metadata["input"] | {"frame": list(frame)}}
        return replace(exported, metadata=metadata)

    samples = in_two_lights(4, 0.5)  # of 80²
    assert len(evaluate(framed(80, 80), samples).images) == 4
    with pytest.raises(NfadError, match=r"frames of 80×80 pixels .* a changed view has 72×72; export it without"):
        evaluate(framed(80, 80), samples, corruption=Corruption("contrast", 2))
    assert len(evaluate(framed(72, 72), samples, corruption=Corruption("contrast", 2)).images) == 4
    for model in (fitted, exported, framed(72, 72)):
        model.check_takes_views()
