"""A fit of parts that lie anyhow: chosen by itself, kept in the file, exported, and told."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import nfad
from nails import nail
from parts import part, parts, tiny
from PIL import Image

from nfad import Config, Detector
from nfad.artifact import file as artifact
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.errors import NfadError
from nfad.fitting.posing import pose_of, unlikeness
from nfad.fitting.views import AcquiredViews, ViewCache
from nfad.stats.conformal import Ranks
from nfad.stress.axes import AXES
from nfad.stress.measure import image_scores
from nfad.vision.images import to_view

CONFIG = Config.preset("embedded-fast", size=128, acquisitions=14, pairs=2, false_alarm_rate=0.2)


@pytest.fixture(scope="module")
def detector():
    return Detector.fit([nail(seed) for seed in range(12)], CONFIG)


@pytest.fixture(scope="module")
def model(detector, tmp_path_factory):
    return detector.save(tmp_path_factory.mktemp("turned") / "nails.nfad")


def numbers(prediction):
    return [prediction.score, prediction.unfiltered_score, prediction.strangeness, prediction.map.max()]


def test_auto_turns_parts_that_lie_anyhow_and_no_others(detector):
    assert detector.config.pose == "turned" and detector.pose is not None
    assert Detector.fit(parts(12), tiny(pose="auto")).config.pose == "steadied"
    left = Detector.fit([nail(seed) for seed in range(12)], tiny(pose="as taken"))
    assert left.config.pose == "as taken" and left.pose is None


def test_parts_that_lie_alike_already_are_not_turned(tmp_path):
    views = ViewCache.read([nail(seed, angle=0.2, at=(0, 0)) for seed in range(12)], 64, None, tmp_path)
    steadied, turned = (pose_of(tiny(pose=pose), views, torch.arange(12)) for pose in ("auto", "turned"))
    assert steadied.name == "steadied" and turned.name == "turned"
    assert pose_of(tiny(acquisitions=0, pose="auto"), views, torch.arange(12)) is None


@pytest.mark.parametrize("contrast", [0, 100])
def test_photos_of_nothing_but_light_are_left_as_taken(tmp_path, contrast):
    """Nothing stands out there that could be turned."""
    ramp = np.tile(np.linspace(40, 40 + contrast, 64)[:, None, None], (1, 64, 3))
    views = ViewCache.read([(ramp + 5 * seed).astype(np.uint8) for seed in range(8)], 64, None, tmp_path)
    assert pose_of(tiny(pose="auto"), views, torch.arange(8)) is None
    if contrast == 0:
        with pytest.raises(NfadError, match="no part stands out"):
            pose_of(tiny(pose="turned"), views, torch.arange(8))


def test_a_fit_sees_acquisitions_of_photos_as_taken_and_then_turns_them(tmp_path):
    """A pose is told in the light of the photo, as on the line."""
    views = ViewCache.read([nail(seed) for seed in range(12)], 64, None, tmp_path)
    lit = AcquiredViews(views, torch.arange(12), seed=0)
    as_taken = lit(torch.arange(12))
    views.pose = pose_of(tiny(pose="auto"), views, torch.arange(12))
    assert views.pose is not None
    torch.testing.assert_close(lit(torch.arange(12)), views.pose.turned(as_taken)[0])
    assert unlikeness(views(torch.arange(12))) < 0.5 * unlikeness(views.as_taken(torch.arange(12)))


def test_the_map_shows_a_defect_where_the_photo_has_it(detector):
    for seed in (30, 31, 32):
        angle = seed * 1.3
        found = detector.predict(nail(seed, angle=angle, at=(0.05, -0.05), defect=True))
        row, column = np.unravel_index(found.map.argmax(), found.map.shape)
        wanted = 0.5 - 0.05 + 0.13 * np.sin(angle), 0.5 + 0.05 + 0.13 * np.cos(angle)
        assert np.hypot(row / 128 - wanted[0], column / 128 - wanted[1]) < 0.12
        assert found.score > detector.predict(nail(seed, angle=angle, at=(0.05, -0.05))).score


def test_on_request_parts_that_lie_alike_are_turned_too_and_a_nudged_camera_flags_none():
    lying = [nail(seed, angle=0.2, at=(0, 0)) for seed in range(12)]
    nudged = [nail(seed, angle=0.3, at=(0.1, -0.08)) for seed in (40, 41, 42)]
    as_taken, turned = (
        Detector.fit(lying, replace(CONFIG, pose=pose, acquisitions=48, false_alarm_rate=0.1))
        for pose in ("as taken", "turned")
    )
    assert as_taken.pose is None and turned.pose is not None
    assert not any(each.is_anomalous for each in turned.predict(nudged))
    assert turned.predict(nail(40, angle=0.3, at=(0.1, -0.08), defect=True)).is_anomalous
    assert not any(each.verdict == "normal" for each in as_taken.predict(nudged))


def test_stress_counts_the_score_of_a_moved_part(detector):
    """Which is that of the box; of the map on the photo, most of which lies outside of it, it would be another."""
    axis = next(axis for axis in AXES.values() if axis.moves)
    views = torch.stack([to_view(nail(seed), 128, None)[0] for seed in (40, 41)])
    found = image_scores(detector, views, axis, axis.strengths[0])
    assert torch.equal(found["unfiltered"], detector.predict_tensor(views).unfiltered_score)


def test_a_loaded_one_says_the_same_to_the_last_bit(detector, model):
    loaded = Detector.load(model)
    image = nail(40)
    assert numbers(loaded.predict(image)) == numbers(detector.predict(image))
    assert loaded.config == detector.config


def test_a_file_of_the_format_before_is_turned_too(detector, tmp_path):
    detector = replace(detector, development=None)  # no model of then developed photos
    header, tensors = artifact.read_header(detector.save(tmp_path / "new.nfad"))
    held_out = {name: values for name, values in header["held_out"].items() if name != "lines"}
    old = artifact._write(header | {"format": 9, "held_out": held_out}, tensors, tmp_path / "old.nfad")
    found, wanted = Detector.load(old).predict(nail(40)), detector.predict(nail(40))
    assert numbers(found) == numbers(wanted)
    views = Ranks.pooled(detector.held_out.filtered, detector.held_out.images)  # which it counts as it did
    assert found.threshold == views.threshold(detector.config.false_alarm_rate) != wanted.threshold


def test_both_looks_of_a_pair_see_the_same_box(tmp_path):
    pair = Detector.fit([nail(seed) for seed in range(12)], tiny(beside="embedded-fast", pose="auto"))
    loaded = Detector.load(pair.save(tmp_path / "pair.nfad"))
    assert {look.config.pose for look in loaded.looks} == {"turned"}
    assert torch.equal(loaded.beside.pose.drawing, pair.pose.drawing)
    assert numbers(loaded.predict(nail(40))) == numbers(pair.predict(nail(40)))


@pytest.mark.parametrize(
    ("backend", "dynamic"), [("onnx", True), pytest.param("openvino", False, marks=pytest.mark.slow)]
)
def test_an_export_turns_as_torch_does(detector, model, backend, dynamic, tmp_path):
    metadata, parity = export(model, tmp_path / backend, Options(backend, dynamic_batch=dynamic))
    assert parity.passed and metadata["config"]["pose"] == "turned"
    runtime = Runtime.load(tmp_path / backend)
    for seed in (40, 41, 42):
        image = nail(seed, defect=seed == 42)
        found, wanted = runtime.predict(image), detector.predict(image)
        assert found.verdict == wanted.verdict
        np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=5e-3, atol=5e-3)
        np.testing.assert_allclose(found.map, wanted.map, atol=0.02 * np.abs(wanted.map).max())


def test_what_cannot_be_turned_is_told(tmp_path):
    with pytest.raises(NfadError, match="student"):
        tiny(pose="turned", reference="student", order="fit-then-filter")
    with pytest.raises(NfadError, match="whole views"):
        tiny(pose="turned", size=256, tile=64)
    with pytest.raises(NfadError, match="pose"):
        tiny(pose="upside down")
    with pytest.raises(NfadError, match="mask"):
        Detector.fit(parts(12), tiny(pose="turned"), mask=np.full((64, 64, 3), 255, np.uint8))


def test_a_mask_leaves_parts_as_taken():
    mask = np.full((160, 160, 3), 255, np.uint8)
    mask[:20] = 0
    assert Detector.fit([nail(seed) for seed in range(12)], tiny(), mask=mask).pose is None


def test_another_part_is_no_error(detector):
    assert np.isfinite(detector.predict(part(3)).map).all()


def test_fit_and_info_tell_of_it(model, tmp_path):
    for seed in range(12):
        Image.fromarray(nail(seed)).save(tmp_path / f"{seed}.png")
    out = tmp_path / "small.nfad"
    said = nfad("fit", tmp_path, "-o", out, "--preset", "embedded-fast", "--size", "64", "--set", "acquisitions=14")
    assert "turned to lie alike" in " ".join(said.stdout.split())
    forced = nfad("fit", tmp_path, "-o", out, "--force", "--turned", "--mask", tmp_path / "0.png", code=2)
    assert "a mask is drawn on photos as taken" in " ".join(forced.stderr.split())
    assert "turned to lie alike" in nfad("info", model).stdout
    assert json.loads(nfad("info", model, "--json").stdout)["config"]["pose"] == "turned"
