"""Parts that lie alike: photos by a nudged camera are put back where they lie. Chosen, kept, exported, told."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import nfad
from hypothesis import given, settings
from hypothesis import strategies as st
from nails import nail
from parts import parts, tiny
from PIL import Image
from scipy.ndimage import gaussian_filter

from nfad import Config, Detector
from nfad.artifact.file import _write, read_header
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.drift import DriftMonitor, numbers_of
from nfad.drift.state import SHIFTED
from nfad.errors import NfadError
from nfad.fitting.posing import drawn_whole, pose_of, unlikeness
from nfad.fitting.views import ViewCache
from nfad.vision.acquisitions import KINDS
from nfad.vision.images import to_view
from nfad.vision.nudging import nudged
from nfad.vision.pose import DRAWN, NEAR, cut_out, evened

CONFIG = Config.preset("embedded-fast", size=128, acquisitions=36, pairs=2, false_alarm_rate=0.2)
MOVED = {"angle": 0.23, "at": (0.03, -0.025)}  # by 4 and 3 of 128 pixels, and 1.7 degrees


def lying(seed, **changes):
    return nail(seed, **{"angle": 0.2, "at": (0.0, 0.0)} | changes)


def views_of(*photos, size=128):
    return torch.stack([to_view(photo, size, None)[0] for photo in photos])


def texture(seed):
    noise = gaussian_filter(np.random.default_rng(seed).normal(size=(64, 64)), 2)
    return np.repeat(((noise * 2 + 0.5).clip(0, 1) * 255).astype(np.uint8)[..., None], 3, axis=2)


def numbers(prediction):
    return [
        prediction.score, prediction.unfiltered_score, prediction.strangeness, prediction.map.max(), prediction.moved
    ]  # fmt: skip


@pytest.fixture(scope="module")
def detector():
    return Detector.fit([lying(seed) for seed in range(12)], CONFIG)


@pytest.fixture(scope="module")
def model(detector, tmp_path_factory):
    return detector.save(tmp_path_factory.mktemp("steadied") / "nails.nfad")


def undeveloped(detector, folder):
    """What its file says without a development: no model before format 14 has one."""
    return read_header(replace(detector, development=None).save(folder / "new.nfad"))


@pytest.fixture(scope="module")
def pose():
    return drawn_whole(views_of(*(lying(seed) for seed in range(12))), 1.0)


def test_what_a_nudge_does_is_undone_and_what_lies_right_is_left(pose):
    views = views_of(*(lying(seed) for seed in range(20, 32)))
    moved = nudged(views, torch.Generator().manual_seed(0))
    before, after = unlikeness(moved), unlikeness(pose.turned(moved)[0])
    assert after < 0.3 * before  # zoom is not undone
    still = pose.found(views) - torch.eye(2, 3)
    assert float(still.abs().max()) < 2 / 128  # a pixel of 128


@pytest.mark.parametrize("ratio", [0.6, 1.8])
def test_a_photo_that_is_not_square_is_steadied_by_its_own_angles(ratio):
    pose = drawn_whole(views_of(*(lying(seed, ratio=ratio) for seed in range(12))), ratio)
    still, moved = (views_of(*(lying(seed, ratio=ratio, **by) for seed in range(30, 42))) for by in ({}, MOVED))
    off = (pose.turned(moved)[0] - pose.turned(still)[0]).mean(dim=0).abs().mean()  # the table's grain averages out
    assert float(off) < 0.4 * float((moved - still).mean(dim=0).abs().mean())


@pytest.mark.parametrize(("kind", "strength"), [("gain", 0.4), ("ramp", 0.4), ("contrast", 0.4), ("noise", 0.1)])
def test_a_lamp_does_not_move_a_photo(pose, kind, strength):
    views = views_of(*(lying(seed, **MOVED) for seed in range(20, 26)))
    if kind == "noise":
        lit = views + strength * torch.randn(views.shape, generator=torch.Generator().manual_seed(0))
    else:
        lit = torch.stack([KINDS[kind](view, strength, torch.Generator().manual_seed(0)) for view in views])
    off = (pose.found(lit.clamp(0, 1)) - pose.found(views)).abs().amax(dim=(1, 2)) * 64
    assert float(off.median()) < 0.5 and float(off.max()) < 1.5  # pixels


def test_noise_is_as_even_in_a_moved_photo_as_in_a_still_one(pose):
    """Sampled between pixels, cubic weights leave half of its variance (.72², .85 an axis); evened, nearly all."""
    noise = torch.rand(8, 3, 128, 128, generator=torch.Generator().manual_seed(0)) - 0.5
    boxes = torch.eye(2, 3).repeat(8, 1, 1)
    boxes[:, :, 2] = 1 / 128  # by half a pixel either way

    def variance(views, at):
        return float(cut_out(views, at, 128, mode="bicubic")[..., 8:-8, 8:-8].var())

    still = torch.eye(2, 3).repeat(8, 1, 1)
    assert variance(noise, boxes) < 0.6 * variance(noise, still)
    even = evened(noise, pose.even)
    assert 0.9 < variance(even, boxes) / variance(even, still) < 1.0
    plain = torch.full((1, 3, 8, 8), 0.7)
    torch.testing.assert_close(evened(plain, pose.even), plain)


def test_a_model_before_format_12_evens_nothing(detector, tmp_path):
    header, tensors = undeveloped(detector, tmp_path)
    assert header["pose"].pop("even") == detector.pose.even > 0
    old = _write({**header, "format": 11}, tensors, tmp_path / "old.nfad")
    assert Detector.load(old).pose.even == 0.0


@settings(max_examples=40, deadline=None)
@given(x=st.floats(-0.2, 0.2), y=st.floats(-0.2, 0.2), grid=st.sampled_from([8, 16, 32]))
def test_a_token_counts_by_how_much_of_it_the_photo_shows(pose, x, y, grid):
    """All of it fully, half of it or less not at all: by the lengths, along and across, that lie within the photo."""
    edges = np.linspace(-1, 1, grid + 1)
    across, down = (
        np.clip(np.minimum(edges[1:] + by, 1) - np.maximum(edges[:-1] + by, -1), 0, None) * grid / 2 for by in (x, y)
    )
    wanted = np.clip(2 * np.outer(down, across) - 1, 0, None).ravel()
    box = torch.tensor([[[1.0, 0.0, x], [0.0, 1.0, y]]])
    np.testing.assert_allclose(pose.shown(box, grid)[0].numpy(), wanted, atol=grid * 1e-6)


def test_tokens_of_a_still_photo_all_count_and_a_turned_one_s_hardly_more_by_a_hair(pose):
    still = torch.eye(2, 3)[None]
    assert torch.equal(pose.shown(still, 16), torch.ones(1, 256))
    turned = torch.tensor([[[0.9986, -0.0523, 0.03], [0.0523, 0.9986, -0.05]]])  # by 3 degrees, and aside
    moved = pose.shown(turned, 16)
    assert 0.7 < float(moved.mean()) < 1
    assert float((pose.shown(turned + 1e-6, 16) - moved).abs().max()) < 1e-4  # no step that rounding could decide


def test_what_a_moved_photo_does_not_show_does_not_count(detector):
    """Its last pixels are drawn out beyond the edge: streaks where there is noise, which no normal has."""
    detector = replace(detector, development=None)  # which would take most of the noise out
    blind = replace(detector, pose=replace(detector.pose, trimmed=False))

    def score(model, **by):
        noise = np.random.default_rng(0).normal(0, 25, (12, *lying(0).shape))
        photos = [(lying(seed, **by) + noise[seed - 60]).clip(0, 255).astype(np.uint8) for seed in range(60, 72)]
        return float(np.mean([each.score for each in model.predict(photos)]))

    assert score(blind, **MOVED) > 1.2 * score(blind)
    assert score(detector, **MOVED) < 1.1 * score(detector)
    assert score(detector) == pytest.approx(score(blind), rel=0.05)  # hardly moved, so all of it is shown


def test_a_model_before_format_13_counts_all_of_a_moved_photo(detector, tmp_path):
    header, tensors = undeveloped(detector, tmp_path)
    assert header["pose"].pop("trimmed") is detector.pose.trimmed is True
    old = _write({**header, "format": 12}, tensors, tmp_path / "old.nfad")
    assert Detector.load(old).pose.trimmed is False


def test_a_part_that_lies_far_off_stays_there(pose):
    """Else one in the wrong place would be called normal; and nothing at all is steadied somehow, and finitely."""
    boxes = pose.found(torch.cat([views_of(lying(3, at=(0.3, 0.2))), torch.zeros(1, 3, 128, 128)]))
    assert float(boxes[:, :, 2].abs().max()) <= 2 * NEAR / DRAWN and boxes.isfinite().all()


@pytest.mark.parametrize(("x", "y", "angle"), [(0.0, 0.0, 0.0), (3.0, -4.0, 0.0), (0.0, 0.0, 2.0), (-2.0, 1.0, -1.0)])
def test_how_far_a_photo_was_moved_is_what_its_corners_were(pose, x, y, angle):
    turn = np.deg2rad(angle)
    box = np.array([[np.cos(turn), -np.sin(turn), x / 50], [np.sin(turn), np.cos(turn), y / 50]])  # of 100 pixels
    corners = [np.array([a, b]) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    wanted = np.mean([np.hypot(*(box[:, :2] @ corner + box[:, 2] - corner)) / 2 for corner in corners])
    assert float(pose.moved(torch.from_numpy(box).float()[None])) == pytest.approx(wanted, abs=1e-6)
    if angle == 0.0:
        assert wanted == pytest.approx(np.hypot(x, y) / 100)


def test_the_fit_s_photos_lie_off_as_new_ones_of_the_same_camera_do(detector):
    """Else drift would be told of a camera that stands still: each is compared with what the others have in common."""
    new = [each.moved for each in detector.predict([lying(seed) for seed in range(60, 72)])]
    told = detector.normals["moved"]
    assert len(told) == len(detector.normals["score"]) == 12
    assert 0.5 < np.median(new) / np.median(told) < 2 and max(*new, *told) < 0.02


def test_what_was_moved_is_told(detector):
    by = np.hypot(*MOVED["at"])
    for seed in (40, 41, 42):
        found = detector.predict(lying(seed, **MOVED))
        assert found.moved == pytest.approx(by, abs=0.015)
        assert f" The photo lay {found.moved:.1%} of its side off, and was moved back: what it no" in found.explain()
        assert "moved back" not in detector.predict(lying(seed)).explain()


def test_a_camera_that_creeps_is_no_steady_one(detector):
    """Its photos are judged as before: that they are moved further and further is what tells."""
    monitor = DriftMonitor(detector.normals, flag_rate=detector.false_alarm_rate)
    creeping = [lying(100 + step, at=(0.03 * step / 60, 0.0)) for step in range(60)]
    monitor.extend(map(numbers_of, detector.predict(creeping)))
    state = monitor.state()
    assert state.nuisance.alarm and "moved" in state.nuisance.moved and monitor.camera_moved
    assert state.verdict == SHIFTED and "absorbed" not in state.sentence
    assert "has moved since about part" in state.sentence and "of their side off at the median" in state.sentence


@pytest.mark.parametrize(("now", "moved"), [(0.001, False), (0.04, True)])
def test_photos_that_lie_closer_than_at_the_fit_are_no_moved_camera(now, moved):
    chance = np.random.default_rng(0)

    def photos(count, off):
        return [{"score": s, "unfiltered_score": u, "moved": off * m} for s, u, m in chance.uniform(1, 2, (count, 3))]

    held_out = photos(40, 0.02)
    monitor = DriftMonitor({name: [each[name] for each in held_out] for name in held_out[0]}, flag_rate=0.1)
    monitor.extend(photos(200, now))
    state = monitor.state()
    assert "moved" in state.nuisance.moved and monitor.camera_moved == moved and (state.verdict == SHIFTED) == moved


def test_photos_with_nothing_in_common_are_left_as_taken(tmp_path):
    views = ViewCache.read([texture(seed) for seed in range(12)], 64, None, tmp_path)
    every = torch.arange(12)
    assert pose_of(tiny(pose="auto"), views, every) is None
    with pytest.raises(NfadError, match="always in the same place; leave pose='steadied' out"):
        pose_of(tiny(pose="steadied"), views, every)


def test_without_acquisitions_photos_are_left_as_taken_unless_it_is_asked_for(tmp_path):
    views = ViewCache.read([lying(seed) for seed in range(12)], 64, None, tmp_path)
    asked = {pose: pose_of(tiny(acquisitions=0, pose=pose), views, torch.arange(12)) for pose in ("auto", "steadied")}
    assert asked["auto"] is None and asked["steadied"].name == "steadied"


def test_a_nudged_camera_flags_nothing_and_defects_are_found_where_they_are(detector):
    as_taken = Detector.fit([lying(seed) for seed in range(12)], CONFIG.changed(pose="as taken"))
    photos = [lying(seed, **MOVED) for seed in range(40, 46)]
    assert not any(each.verdict == "normal" for each in as_taken.predict(photos))
    assert [each.verdict for each in detector.predict(photos)] == ["normal"] * 6
    for seed in (40, 41, 42):
        found = detector.predict(lying(seed, defect=True, **MOVED))
        assert found.is_anomalous
        row, column = np.unravel_index(found.map.argmax(), found.map.shape)
        there = 0.13 * np.array([np.sin(0.23), np.cos(0.23)]) + np.array([-0.025, 0.03])
        assert np.abs(np.array([row, column]) / 128 - 0.5 - there).max() < 0.08


def test_a_loaded_one_says_the_same_to_the_last_bit(detector, model):
    loaded, photo = Detector.load(model), lying(40, **MOVED)
    assert numbers(loaded.predict(photo)) == numbers(detector.predict(photo))
    assert loaded.config == detector.config and loaded.pose.name == "steadied"


@pytest.mark.parametrize(
    ("backend", "dynamic"), [pytest.param("onnx", True, marks=pytest.mark.slow), ("openvino", False)]
)
def test_an_export_steadies_as_torch_does(detector, model, backend, dynamic, tmp_path):
    metadata, parity = export(model, tmp_path / backend, Options(backend, dynamic_batch=dynamic))
    assert parity.passed and metadata["config"]["pose"] == "steadied"
    runtime = Runtime.load(tmp_path / backend)
    for photo in (lying(40), lying(41, **MOVED), lying(42, defect=True, **MOVED)):
        found, wanted = runtime.predict(photo), detector.predict(photo)
        assert found.verdict == wanted.verdict
        np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=5e-3, atol=5e-3)


def test_what_cannot_be_steadied_is_told():
    with pytest.raises(NfadError, match="student"):
        tiny(pose="steadied", reference="student", order="fit-then-filter")
    with pytest.raises(NfadError, match="mask"):
        Detector.fit(parts(12), tiny(pose="steadied"), mask=np.full((64, 64, 3), 255, np.uint8))


def test_the_command_says_so(tmp_path):
    (folder := tmp_path / "good").mkdir()
    for seed in range(12):
        Image.fromarray(lying(seed)).save(folder / f"{seed}.png")
    small = ("--preset", "embedded-fast", "--size", "64", "--set", "acquisitions=14", "--set", "pairs=2")
    said = " ".join(nfad("fit", folder, "-o", tmp_path / "m.nfad", *small).stdout.split())
    assert "a nudged camera is borne" in said and "--set pose='as taken' leaves them as they lie" in said
    assert "moved a little, to lie alike" in " ".join(nfad("info", tmp_path / "m.nfad").stdout.split())
    assert json.loads(nfad("info", tmp_path / "m.nfad", "--json").stdout)["config"]["pose"] == "steadied"
