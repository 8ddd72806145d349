from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nfad.evaluation.exported import Exported, check_takes_views, facts_of, model_of, pixels_of
from nfad.judge import judge_of
from parts import part

from nfad import NfadError
from nfad.deploy.parity import LIMITS, TIE
from nfad.evaluation.evaluate import evaluate
from nfad.vision.corruptions import Corruption
from nfad.vision.images import to_view

ALLOWED = LIMITS["fp32"]


@pytest.fixture(scope="module")
def fitted(shipped):
    return shipped.detector


@pytest.fixture(scope="module")
def exported(shipped):
    return Exported.load(shipped.folder)


def near(found, wanted, share):
    """As the gate of an export compares: relative to what is wanted, or to 1."""
    return (found - wanted).abs().max() <= share * max(1, wanted.abs().max())


@given(seed=st.integers(0, 2**32 - 1))
def test_the_graph_sees_the_very_view(fitted, exported, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    views = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    wanted, found = fitted.predict_tensor(views), exported.predict_tensor(views)
    for name, each in wanted.maps.items():
        assert near(found.maps[name], each, ALLOWED.map)
    assert near(found.score, wanted.score, ALLOWED.score)
    assert near(found.unfiltered_score, wanted.unfiltered_score, ALLOWED.score)
    assert found.numbers().keys() == wanted.numbers().keys()
    for name in ("gate", "nuisance_fraction"):
        assert near(getattr(found, name), getattr(wanted, name), ALLOWED.score)


@given(seed=st.integers(0, 2**32 - 1), off=st.floats(-0.49, 0.49))
def test_views_are_rounded_to_8_bits(seed, off):
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    view = (torch.from_numpy(pixels).permute(2, 0, 1) + off) / 255
    assert np.array_equal(pixels_of(view.clamp(0, 1)), pixels)


def test_photos_go_to_the_graph_as_they_are(exported):
    photos = [part(seed, 80) for seed in range(3)]
    for found, photo in zip(exported.predict_stream(photos), photos, strict=True):
        wanted = exported.judge.engine.predict(photo)
        assert found.score == wanted.score and np.array_equal(found.map, wanted.map)
        assert found.geometry == wanted.geometry


def test_changed_views_keep_their_order_and_the_photos_geometry(fitted, exported):
    photos, asked = [part(seed, 80 + 8 * seed) for seed in range(4)], []

    def edit(view, index):
        asked.append(index)
        return view / (index + 1)

    found = list(exported.predict_stream(photos, edit=edit))
    assert asked == [0, 1, 2, 3]
    for index, (photo, prediction) in enumerate(zip(photos, found, strict=True)):
        view, geometry = to_view(photo, 64, 72)
        assert prediction.geometry == geometry
        assert prediction.score == exported.predict_tensor(view[None] / (index + 1)).score
    assert len({prediction.score for prediction in found}) == 4


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
    other = model_of(exported.judge.at_rate(0.5))
    assert (other.config.false_alarm_rate, exported.config.false_alarm_rate) == (0.5, 0.3)
    assert other.threshold == fitted.at_rate(0.5).threshold < exported.threshold == fitted.threshold
    assert other.config == fitted.at_rate(0.5).config
    assert facts_of(exported) == facts_of(fitted) | {"Exported": "fp32, onnx, from part.nfad"}
    assert model_of(judge_of(fitted)) is fitted


def test_a_graph_for_one_size_of_photo_judges_those_and_no_changed_view(fitted, exported, in_two_lights):
    def framed(*frame):
        engine = exported.judge.engine
        facts = engine.facts | {"input": engine.facts["input"] | {"frame": list(frame)}}
        return Exported(replace(exported.judge, engine=replace(engine, facts=facts)))

    samples = in_two_lights(4, 0.5)  # of 80²
    assert len(evaluate(framed(80, 80), samples).images) == 4
    with pytest.raises(NfadError, match=r"frames of 80×80 pixels .* a changed view has 72×72; export it without"):
        evaluate(framed(80, 80), samples, corruption=Corruption("contrast", 2))
    assert len(evaluate(framed(72, 72), samples, corruption=Corruption("contrast", 2)).images) == 4
    for model in (fitted, exported, framed(72, 72)):
        check_takes_views(model)
