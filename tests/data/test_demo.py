import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import binary_dilation

from nfad.data.demo import DEFECTS, DOMAINS, read, read_demo, recognises, render, write_demo
from nfad.errors import NfadError
from nfad.vision.render import _look, _moved_camera, _other_lamp, _part, _stream, render_stranger
from nfad.vision.texture import BENCH, noise

COUNTS = {"train": 2, "good": 1, "bad": 1, "seed": 3}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo") / "set", **COUNTS)


def test_same_arguments_give_the_same_bytes_whatever_came_before():
    first = render(5, "groove", "view")
    render(6, "ablation", "background")
    for again, before in zip(render(5, "groove", "view"), first, strict=True):
        np.testing.assert_array_equal(again, before)


def test_seeds_are_different_parts():
    assert np.abs(render(5)[0].astype(int) - render(6)[0]).mean() > 2


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_good_part_has_an_empty_mask(domain):
    image, mask = render(5, domain=domain)
    assert image.shape == (256, 256, 3) and image.dtype == np.uint8
    assert mask.shape == (256, 256) and mask.dtype == bool and not mask.any()


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_mask_is_where_the_defect_changed_the_photo(defect, domain):
    image, mask = render(11, defect, domain)
    change = np.abs(image.astype(int) - render(11, "good", domain)[0]).sum(axis=2)
    reach = binary_dilation(mask, iterations=2)  # lens blur and the slope of the defect's border
    assert mask.sum() > 30
    assert change[reach].sum() >= 0.95 * change.sum()
    assert (change[mask] > 0).mean() > 0.7


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_defect_lies_on_the_part_and_stays_in_the_photo(defect):
    for seed in range(20, 23):
        part, extent = _part(seed, defect)
        assert (part.cover[extent > 0] == 1).all()
        areas = {d: int(render(seed, defect, d)[1].sum()) for d in DOMAINS}
        assert areas["background"] == areas["illumination"] == areas["same"]
        assert 0.8 < areas["view"] / areas["same"] < 1.25  # zoom and tilt change an area by less


def test_background_leaves_the_part_alone_and_illumination_does_not():
    part, _ = _part(30, "good")
    same, background, illumination = (render(30, domain=d)[0].astype(int) for d in DOMAINS[:3])
    on = ~binary_dilation(part.cover[32:-32, 32:-32] < 1, iterations=3)
    noise_only = np.abs(same - background)
    assert noise_only[on].mean() < 4 < 20 < noise_only[~on].mean()
    assert np.abs(same - illumination)[on].mean() > 2 * noise_only[on].mean()


def test_a_moved_camera_moves_photo_and_mask_alike():
    """A white square of the bench lands where the homography sends its centre, in every plane."""
    view = _moved_camera(_stream(1, "view"))
    bench = np.zeros((2, BENCH, BENCH), dtype=np.float32)
    bench[:, 195:206, 175:186] = 1  # centre: x = 180.5, y = 200.5 as edges count
    photo = _look(bench, view)
    x, y, w = np.linalg.inv(view) @ [180.5 - BENCH / 2, 200.5 - BENCH / 2, 1]
    rows, columns = np.nonzero(photo[0] > 0.5)
    assert abs(columns.mean() + 0.5 - 128 - x / w) < 0.5 and abs(rows.mean() + 0.5 - 128 - y / w) < 0.5
    np.testing.assert_array_equal(photo[0], photo[1])


@pytest.mark.parametrize("seed", range(40, 60))
def test_shifts_are_what_befalls_a_line_and_no_more(seed):
    """A nudged camera and another lamp: never nothing, never another station."""
    view = _moved_camera(_stream(seed, "view"))
    corners = np.array([[x, y, 1] for x in (-128, 128) for y in (-128, 128)]).T
    there = view @ corners
    moved = np.hypot(*(there[:2] / there[2] - corners[:2]))
    assert 1 < moved.max() < 0.08 * 256  # pixels: 5 by the shift, the rest at the rim by turn, zoom and lean
    lamp = _other_lamp(_stream(seed, "illumination"))
    assert 0.15 <= abs(lamp.power - 1) <= 0.4 and max(lamp.colour) / min(lamp.colour) < 1.3


def test_belts_of_other_colours_are_not_all_the_same():
    corners = [render(seed, domain="background")[0][:20, :20].mean(axis=(0, 1)) for seed in range(30, 40)]
    assert np.ptp(corners, axis=0).min() > 40


def test_the_stranger_is_the_same_station_without_a_part_and_always_the_same():
    stranger, blade = render_stranger(), render(0)[0]
    np.testing.assert_array_equal(stranger, render_stranger())
    assert stranger.shape == blade.shape and stranger.dtype == np.uint8
    difference = np.abs(stranger.astype(int) - blade)
    assert difference[:20, :20].mean() < 6 < 30 < difference[40:-40, 40:-40].mean()  # bench and lamp are the blade's


@pytest.mark.parametrize("power", [0, 0.6, 1.6])
def test_noise_has_unit_variance(power):
    variance = np.mean([noise(np.random.default_rng(i), power).var() for i in range(8)])
    assert variance == pytest.approx(1, rel=0.1)


def test_unknown_words_are_refused():
    with pytest.raises(NfadError, match="no defect 'dent'"):
        render(0, "dent")
    with pytest.raises(NfadError, match="no domain 'weather'"):
        render(0, "good", "weather")
    with pytest.raises(NfadError, match="seed"):
        render(-1)


def test_layout_is_that_of_aebad(written):
    folders = Counter(path.parent.relative_to(written).as_posix() for path in written.rglob("*.png"))
    assert folders == {
        "train/good/same": 2,
        **{f"test/{kind}/{domain}": 1 for kind in ("good", *DEFECTS) for domain in DOMAINS},
        **{f"ground_truth/{kind}/{domain}": 1 for kind in DEFECTS for domain in DOMAINS},
    }
    assert [path.name for path in written.parent.iterdir()] == ["set"]


def test_samples_point_at_images_and_masks(written):
    train, test = read_demo(written)
    assert len(train) == 2 and len(test) == 20 and test == sorted(test, key=lambda sample: sample.path)
    assert not any(sample.anomalous for sample in train)
    for sample in train + test:
        with Image.open(sample.path) as image:
            assert image.mode == "RGB" and image.size == (256, 256)
        assert sample.anomalous == (sample.kind != "good") == (sample.mask is not None)
        assert sample.path.parts[-3:-1] == (sample.kind, sample.domain)
        if sample.mask:
            with Image.open(sample.mask) as mask:
                assert mask.mode == "L" and mask.size == (256, 256)
                assert set(np.unique(np.asarray(mask))) == {0, 255}


def test_it_reads_like_any_other_set(written):
    assert recognises(written)
    dataset = read(written, "blade")
    train, test = read_demo(written)
    assert list(dataset.train) == train and sorted(dataset.test, key=lambda s: s.path) == test
    assert tuple(dict.fromkeys(s.domain for s in dataset.test)) == DOMAINS and dataset.notes == ()


def test_no_part_is_in_training_and_test(written):
    train, test = read_demo(written)
    images = [sample.path.read_bytes() for sample in train + test if sample.domain == "same"]
    assert len(set(images)) == len(images)


def test_an_existing_set_is_reused_and_another_is_not(written):
    def never(done, total):
        raise AssertionError("rendered again")

    before = (written / "demo.json").stat().st_mtime_ns
    assert write_demo(written, **COUNTS, progress=never) == written
    assert (written / "demo.json").stat().st_mtime_ns == before
    with pytest.raises(NfadError, match="settings"):
        write_demo(written, **{**COUNTS, "seed": 4}, progress=never)


def test_progress_counts_to_the_end_and_an_empty_folder_is_used(tmp_path):
    seen = []
    write_demo(tmp_path, train=2, good=0, bad=0, progress=lambda *pair: seen.append(pair))
    assert seen == [(1, 2), (2, 2)]
    assert json.loads((tmp_path / "demo.json").read_text())["train"] == 2


def test_an_incomplete_set_is_refused(tmp_path):
    root = write_demo(tmp_path / "set", train=1, good=0, bad=0)
    (root / "train/good/same/000.png").unlink()
    with pytest.raises(NfadError, match="incomplete"):
        write_demo(root, train=1, good=0, bad=0)


def test_a_folder_that_is_not_a_demo_set_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(NfadError, match="not a demo set"):
        write_demo(tmp_path, **COUNTS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demo(tmp_path / "set", **COUNTS, progress=interrupt)
    assert not any(tmp_path.iterdir())


def test_impossible_counts_are_refused(tmp_path):
    with pytest.raises(NfadError, match="train=0"):
        write_demo(tmp_path / "set", train=0)


def test_a_missing_set_is_named(tmp_path):
    with pytest.raises(NfadError, match="nowhere.*demo.json"):
        read_demo(tmp_path / "nowhere")
