"""Two teachers, one verdict: from a file, exported, under a mask, and told by `nfad info`."""

import json
from unittest import mock

import numpy as np
import pytest
import torch
from commands import nfad
from parts import part, parts, tiny
from PIL import Image

from nfad import Detector
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.deploy.parity import LIMITS, Limits

SIDE = 64
CONFIG = tiny(beside="embedded-fast", false_alarm_rate=0.2)


@pytest.fixture(scope="module")
def pair():
    return Detector.fit(parts(12), CONFIG)


@pytest.fixture(scope="module")
def model(pair, tmp_path_factory):
    return pair.save(tmp_path_factory.mktemp("pair") / "pair.nfad")


def numbers(prediction):
    return [prediction.score, prediction.unfiltered_score, prediction.strangeness, prediction.map.max()]


def test_a_loaded_pair_says_what_the_saved_one_does_to_the_last_bit(pair, model):
    loaded = Detector.load(model)
    views = torch.rand(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    wanted, found = pair.predict_tensor(views), loaded.predict_tensor(views)
    for name, each in (wanted.maps | wanted.numbers()).items():
        assert torch.equal(each, (found.maps | found.numbers())[name]), name
    assert torch.equal(wanted.strangeness, found.strangeness)
    assert (loaded.threshold, loaded.choice) == (pair.threshold, pair.choice)
    assert loaded.at_rate(0.4).predict(part(40)).score == pair.predict(part(40)).score


@pytest.mark.parametrize("backend", ["onnx", pytest.param("openvino", marks=pytest.mark.slow)])
def test_an_export_holds_both_networks_in_one_graph(pair, model, backend, tmp_path):
    metadata, parity = export(model, tmp_path / backend, Options(backend))
    assert parity.passed and [other["name"] for other in metadata["beside"]] == ["embedded-cnn"]
    runtime = Runtime.load(tmp_path / backend)
    assert runtime.architecture == pair.architecture
    for seed in (40, 41, 42):
        image = part(seed, SIDE, defect=seed == 42)
        found, wanted = runtime.predict(image), pair.predict(image)
        assert found.verdict == wanted.verdict
        np.testing.assert_allclose(numbers(found), numbers(wanted), atol=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # NNCF warns of its own insides
def test_eight_bits_are_of_both_networks(pair, model, tmp_path):
    photos = []
    for index, image in enumerate(parts(12)):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
        photos.append(tmp_path / f"{index}.png")
    loose = Limits(np.inf, np.inf, np.inf, np.inf, flips=0.2)  # of an untrained network
    with mock.patch.dict(LIMITS, {"int8": loose}):
        metadata, parity = export(model, tmp_path / "int8", Options("onnx", "int8"), photos)
    assert parity.passed and [other["name"] for other in metadata["beside"]] == ["embedded-cnn"]
    whole = export(model, tmp_path / "fp32", Options("onnx"), photos)[0]
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("int8", "fp32")]
    assert sizes[0] < 0.5 * sizes[1] and whole["precision"] == "fp32"


def test_what_lies_under_a_mask_moves_neither_look(tmp_path):
    look = np.full((SIDE, SIDE, 3), 255, np.uint8)
    look[:, SIDE * 3 // 4 :] = 0
    pair = Detector.fit(parts(12), CONFIG, mask=look)
    loaded = Detector.load(pair.save(tmp_path / "m.nfad"))
    image = part(40, SIDE)
    covered = np.where(look > 0, image, 255).astype(np.uint8)
    for detector in (pair, loaded, pair.beside):
        np.testing.assert_allclose(numbers(detector.predict(covered)), numbers(detector.predict(image)), rtol=1e-4)


def test_no_number_of_one_look_makes_a_broken_other_normal(pair):
    """A score that is none stays none in the mean, and nothing without a score is normal."""
    views = torch.rand(1, 3, SIDE, SIDE)
    tokens = pair.beside.teacher.tokens
    pair.beside.teacher.tokens = lambda views: [block * torch.nan for block in tokens(views)]
    try:
        [found] = pair.predict_views(views)
    finally:
        del pair.beside.teacher.tokens
    assert found.verdict == "not judged" and "finite" in found.why_not_judged


def test_info_tells_of_both(model):
    said = nfad("info", model).stdout
    assert "and beside it" in said and "embedded-cnn" in said and "together" in said
    facts = json.loads(nfad("info", model, "--json").stdout)
    assert [other["name"] for other in facts["beside"]] == ["embedded-cnn"] and len(facts["nuisance_columns"]) == 2
