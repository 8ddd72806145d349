import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Geometry, Prediction
from nfad.report.pictures import (
    CONTOUR,
    HIGH,
    SIGNS,
    bounded,
    compared,
    contour,
    heatmap,
    laid_over,
    levels,
    outlined_at,
    overlay,
    save_png,
    triptych,
)
from nfad.system.files import replacing


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)


@pytest.fixture
def prediction():
    # A centre crop: 40 x 40 of a photo 60 high and 90 wide.
    rows, columns = np.mgrid[:28, :28].astype(np.float32)
    return Prediction(
        score=6.0,
        is_anomalous=True,
        threshold=4.0,
        map=columns / 3,
        detection_map=columns / 3,
        unfiltered_map=rows / 3,
        gate=0.5,
        participation=0.2,
        nuisance_fraction=0.3,
        nuisance_by_family={"photometric": 0.2, "background": 0.1},
        unfiltered_score=3.0,
        unfiltered_threshold=4.0,
        p_value=0.01,
        geometry=Geometry(60, 90, top=10, left=25, box_height=40, box_width=40),
        source="a.jpg",
    )


def test_a_higher_z_is_never_fainter_nor_darker():
    heat = heatmap(np.linspace(-5, 15, 500)[None]).astype(float)[0]
    lightness = heat[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(heat[:, 3]) >= 0)
    assert np.all(np.diff(lightness) >= -1)  # two neighbours, each rounded by up to half a step
    assert np.all(np.diff(lightness[125:375:25]) > 0)
    assert heat[-1, 3] > 0.5 * 255


def test_the_scale_is_fixed_by_its_ends_and_not_by_the_map():
    alone = heatmap(np.array([[3.0]]), high=8)
    in_company = heatmap(np.array([[3.0, 100.0, -4.0]]), high=8)
    assert np.array_equal(alone[0, 0], in_company[0, 0])
    assert not np.array_equal(alone, heatmap(np.array([[3.0]]), high=9))


def test_unseen_and_ordinary_are_transparent_and_infinite_is_full():
    view = np.array([[np.nan, -np.inf, -1.0, 0.0, HIGH, np.inf]])
    assert levels(view).tolist() == [[0, 0, 0, 0, 255, 255]]
    assert heatmap(view)[0, :4, 3].tolist() == [0, 0, 0, 0]


def test_a_scale_that_does_not_rise_is_refused():
    with pytest.raises(NfadError, match="got low 0 and high 0"):
        heatmap(np.zeros((2, 2)), high=0)


def test_overlay_leaves_the_photo_where_nothing_deviates(photo):
    view = np.full((60, 90), 2 * HIGH, dtype=np.float32)
    view[:20], view[20:40] = -1.0, np.nan
    view[0] = 0.0
    shown = overlay(photo, view, level=4.0)
    assert np.array_equal(shown[:40], photo[:40])
    assert not np.array_equal(shown[41:], photo[41:])


@pytest.mark.parametrize("rejected", [False, True])
def test_only_a_rejected_part_is_outlined(photo, rejected):
    view = np.zeros(photo.shape[:2], np.float32)
    view[2:6, 2:6] = 9.0
    drawn = overlay(photo, view, 10.0, outlined_at(rejected, 4.0))
    plain = overlay(photo, view, 10.0)
    assert np.array_equal(drawn, plain) != rejected


def test_the_contour_is_the_border_of_what_exceeds_the_level(photo):
    view = np.zeros((60, 90), dtype=np.float32)
    view[10:20, 30:40] = 5.0
    border = contour(view, 4.0)
    assert border.sum() == 4 * 9
    assert not border[11:19, 31:39].any()
    shown = overlay(photo, view, level=4.0)
    assert np.all(shown[border] == CONTOUR)
    assert np.array_equal(shown[view == 0], photo[view == 0])
    assert not contour(view, np.nan).any()
    assert not contour(np.full((5, 5), 9.0), 4.0).any()


def test_arguments_are_never_modified(photo, prediction):
    view = np.linspace(-3, 12, 60 * 90, dtype=np.float32).reshape(60, 90)
    arrays = [photo, view, prediction.map, prediction.unfiltered_map]
    before = [array.copy() for array in arrays]
    heatmap(view)
    contour(view, 3.0, thickness=2)
    overlay(photo, view, level=3.0)
    triptych(photo, prediction)
    assert all(map(np.array_equal, arrays, before))


def test_overlay_refuses_what_does_not_fit(photo):
    with pytest.raises(NfadError, match=r"photo's size \(60, 90\); got \(60, 80\)"):
        overlay(photo, np.zeros((60, 80)))
    with pytest.raises(NfadError, match="float64"):
        overlay(photo / 255, np.zeros((60, 90)))
    with pytest.raises(NfadError, match="convert it to RGB"):
        bounded(photo[..., 0])


@pytest.mark.parametrize("shape", [(3000, 2000), (20, 4000), (4000, 1), (100, 80), (1024, 1024)])
def test_bounded_keeps_proportions_and_bound(shape):
    shown = bounded(np.zeros((*shape, 3), dtype=np.uint8), side=1024).shape[:2]
    assert max(shown) == min(1024, max(shape))
    shrink = max(shown) / max(shape)
    assert all(abs(length - max(1, whole * shrink)) <= 0.5 for length, whole in zip(shown, shape, strict=True))


def test_a_map_laid_over_at_full_size_is_the_prediction_s_own(prediction):
    assert np.array_equal(
        laid_over(prediction, prediction.map, 60, 90), prediction.in_original(prediction.map), equal_nan=True
    )


def test_a_map_laid_over_a_reduced_photo_keeps_its_place(prediction):
    view = laid_over(prediction, prediction.map, 30, 45)
    seen = ~np.isnan(view)
    rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
    assert (rows[0], rows[-1]) == (5, 24)
    assert abs(columns[0] - 12.5) <= 0.5
    assert len(columns) == 20
    without = replace(prediction, geometry=None)
    assert not np.isnan(laid_over(without, without.map, 30, 45)).any()


def test_triptych_shows_the_photo_then_both_maps_and_marks_only_what_was_seen(photo, prediction):
    large = np.asarray(Image.fromarray(photo).resize((450, 300)))
    larger = replace(prediction, geometry=Geometry(300, 450, 50, 125, 200, 200))
    picture = triptych(large, larger)
    gap = (picture.shape[1] - 3 * 450) // 4
    top = next(row for row in range(100) if np.array_equal(picture[row, gap : gap + 450], large[0]))
    shown, control, filtered = (picture[top : top + 300, gap + place * (450 + gap) :][:, :450] for place in range(3))
    assert np.array_equal(shown, large)
    for panel in (control, filtered):
        assert np.array_equal(panel[:50], large[:50])
        assert not np.array_equal(panel[50:250], large[50:250])
    # The control map deviates downwards, the filtered one rightwards.
    assert np.array_equal(control[50:60, 125:325], large[50:60, 125:325])
    assert np.array_equal(filtered[50:250, 125:135], large[50:250, 125:135])


@pytest.mark.parametrize("shape", [(8, 8), (30, 2000), (2000, 30), (1500, 1500)])
def test_triptych_is_bounded_whatever_the_photo(shape, prediction):
    picture = triptych(np.zeros((*shape, 3), dtype=np.uint8), replace(prediction, geometry=None), side=600)
    assert picture.shape[1] <= 3 * 600 + 100
    assert picture.shape[0] <= 600 + 300
    assert picture.dtype == np.uint8


def test_triptych_tells_verdicts_apart_and_bears_missing_numbers(photo, prediction):
    normal = triptych(photo, replace(prediction, is_anomalous=False))
    assert not np.array_equal(normal[-100:], triptych(photo, prediction)[-100:])
    nan = float("nan")
    triptych(photo, replace(prediction, unfiltered_score=nan, unfiltered_threshold=nan, nuisance_by_family={}))
    assert compared(nan, nan) == "not measured"


def test_triptych_of_what_is_not_judged_looks_like_no_other_verdict_and_outlines_nothing(photo, prediction):
    normal, bad = (replace(prediction, is_anomalous=bad, unfiltered_score=9.0) for bad in (False, True))
    strange = replace(bad, is_anomalous=False, why_not_judged="does not look like the fitted part")
    pictures = [triptych(photo, each) for each in (normal, bad, strange)]
    assert [bool(np.all(each == CONTOUR, axis=-1).any()) for each in pictures] == [True, True, False]
    inks = [tuple(bytes.fromhex(SIGNS[each.verdict][0][1:])) for each in (normal, bad, strange)]
    shown = [[bool(np.all(each == ink, axis=-1).any()) for ink in inks] for each in pictures]
    assert np.array_equal(shown, np.eye(3, dtype=bool))
    assert len({corners for _, corners in SIGNS.values()}) == 3  # also for those who see no colours


def test_triptych_bears_maps_that_are_not_finite(photo, prediction):
    view = np.full((28, 28), np.nan, np.float32)
    nan = float("nan")
    triptych(photo, replace(prediction, score=nan, map=view, unfiltered_map=view, why_not_judged="no finite score"))


def test_a_photo_of_something_else_is_refused(photo, prediction):
    triptych(np.ascontiguousarray(photo[::2, ::2]), prediction)  # a reduced copy is welcome
    with pytest.raises(NfadError, match=r"got 60x90 for a\.jpg of 90x60"):
        triptych(np.ascontiguousarray(photo.transpose(1, 0, 2)), prediction)


def test_save_png_gives_back_what_it_was_given(tmp_path, photo):
    save_png(photo, tmp_path / "a.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), photo)
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_file_that_fails_midway_leaves_the_old_one(tmp_path):
    (tmp_path / "a.png").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a.png") as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["a.png"]
    assert (tmp_path / "a.png").read_bytes() == b"old"


def test_what_is_written_can_be_read_by_whom_the_umask_lets(tmp_path):
    (tmp_path / "ordinary").touch()
    with replacing(tmp_path / "ours"):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_missing_folder_is_told(tmp_path, photo):
    with pytest.raises(NfadError, match="existing folder"):
        save_png(photo, tmp_path / "nowhere" / "a.png")
