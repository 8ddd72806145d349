import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from nfad.data.catalog import load
from nfad.errors import NfadError
from nfad.evaluation.copies import SETTINGS
from nfad.evaluation.foreign import evaluate_maps
from nfad.evaluation.maps import Foreign, read_map
from nfad.evaluation.metrics import image_metrics, pixel_metrics
from nfad.evaluation.tally import mask_of
from nfad.stats.conformal import conformal_threshold


def save(values, path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(f"{path.name}.{kind}")
    if kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez_compressed(path, values)
    elif kind == "tiff":
        Image.fromarray(values.astype(np.float32)).save(path)
    else:
        Image.fromarray((values * 60000).astype(np.uint16)).save(path)
    return path


@pytest.fixture
def root(tmp_path):
    """A plain folder of black photos, six normals, four good and four bad in two lights, with masks."""
    root = tmp_path / "parts"
    photo, mask = Image.new("RGB", (32, 24)), np.zeros((24, 32), np.uint8)
    mask[6:12, 8:16] = 255
    for place, count in {
        "train/good": 6,
        "test/good": 2,
        "test/good/dark": 2,
        "test/dent": 2,
        "test/dent/dark": 2,
    }.items():
        (root / place).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            photo.save(root / place / f"{i}.png")
            if "dent" in place:
                truth = root / place.replace("test", "ground_truth") / f"{i}.png"
                truth.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(mask).save(truth)
    return root


def maps_of(root, out, kind="npy", found=0.4, seed=0, shape=(24, 32)):
    """Noise, and `found` more where the defect is."""
    rng = np.random.default_rng(seed)
    for path in sorted(root.glob("t*/**/*.png")):
        values = rng.uniform(0, 0.5, shape)
        if "dent" in path.parts:
            values[6 * shape[0] // 24 : 12 * shape[0] // 24, 8 * shape[1] // 32 : 16 * shape[1] // 32] += found
        save(values, out / path.relative_to(root).with_suffix(""), kind)
    return out


def scored(root, *places, **options):
    return evaluate_maps(root, load("folder", root), list(places), rate=0.2, size=64, **options)[0]


@pytest.mark.parametrize("kind", ["npy", "npz", "tiff", "png"])
def test_maps_give_the_metrics_and_both_errors_by_their_definitions(root, tmp_path, kind):
    out = maps_of(root, tmp_path / "rival", kind)
    finding = scored(root, out)
    dataset = finding.dataset
    score = {s: read_map(out / s.path.relative_to(root).with_suffix(f".{kind}")).max() for s in dataset.test}
    [normals] = [[read_map(path).max() for path in sorted((out / "train").rglob(f"*.{kind}"))]]
    limit = conformal_threshold(normals, 0.2)
    assert finding.arms[0].threshold == pytest.approx(limit) and finding.arms[0].normals == 6
    everywhere = finding.rows[-1].arms["rival"]
    labels = np.array([s.anomalous for s in dataset.test])
    values = np.array([score[s] for s in dataset.test])
    assert [row.domain for row in finding.rows] == ["same", "dark", "all"]
    assert everywhere.i_auroc == image_metrics(values, labels).auroc
    assert everywhere.false_alarms == (values > limit)[~labels].mean()
    assert everywhere.detections == (values > limit)[labels].mean()
    maps = [Foreign.open(out, [s.path.relative_to(root).as_posix()]).read(s.path.relative_to(root).as_posix(), 64)[1]
            for s in dataset.test]  # fmt: skip
    wanted = pixel_metrics(maps, [mask_of(s, None, 64) for s in dataset.test])
    assert everywhere.aupro == wanted.aupro and everywhere.p_auroc > 0.8
    assert finding.notes == ()


def test_a_map_of_any_size_is_measured_on_the_same_pixels(root, tmp_path):
    small, large = (
        scored(root, maps_of(root, tmp_path / name, shape=shape)).rows[0].arms[name]
        for name, shape in (("small", (24, 32)), ("large", (48, 64)))
    )
    assert abs(small.p_auroc - large.p_auroc) < 0.1


def test_two_programs_are_compared_in_pairs(root, tmp_path):
    weak, strong = maps_of(root, tmp_path / "weak", found=0.0), maps_of(root, tmp_path / "strong", found=0.9)
    row = scored(root, weak, strong).rows[-1]
    assert list(row.arms) == ["weak", "strong"]
    gain = row.gains["p_auroc"]
    assert gain.value == pytest.approx(row.arms["strong"].p_auroc - row.arms["weak"].p_auroc) and gain.excludes_zero
    with pytest.raises(NfadError, match="told apart by their names"):
        scored(root, weak, maps_of(root, tmp_path / "other" / "weak"))
    with pytest.raises(NfadError, match="or of two to compare; got 3"):
        scored(root, weak, strong, weak)


def test_a_csv_gives_the_scores_with_maps_or_alone(root, tmp_path):
    out = maps_of(root, tmp_path / "rival")
    photos = [path.relative_to(root).as_posix() for path in sorted(root.glob("t*/**/*.png"))]
    (out / "scores.csv").write_text("image,score\n" + "".join(f"{p},{int('dent' in p)}\n" for p in photos))
    both, alone = scored(root, out), scored(root, out / "scores.csv")
    for finding, name in ((both, "rival"), (alone, "scores")):
        assert finding.rows[-1].arms[name].i_auroc == 1.0
    assert both.rows[-1].arms["rival"].p_auroc < 1 and np.isnan(alone.rows[-1].arms["scores"].p_auroc)
    assert "8 test photos have no map" in " ".join(alone.notes)


def test_what_is_missing_is_not_judged_and_what_is_extra_is_told(root, tmp_path):
    out = maps_of(root, tmp_path / "rival")
    (out / "test/dent/dark/1.npy").unlink()
    np.save(out / "test/dent/7.npy", np.zeros((4, 4)))
    finding = scored(root, out)
    assert finding.rows[-1].arms["rival"].bad_not_judged == 1
    told = " ".join(finding.notes)
    assert "1 test photos have no score and are not judged (test/dent/dark/1.png)" in told
    assert "1 of no photo of the set (test/dent/7.npy)" in told


def test_without_normals_of_its_own_nothing_is_judged(root, tmp_path):
    out = maps_of(root, tmp_path / "rival")
    for path in (out / "train/good").iterdir():
        path.unlink()
    finding = scored(root, out)
    arm = finding.rows[-1].arms["rival"]
    assert (arm.good_not_judged, arm.bad_not_judged, arm.detections) == (4, 4, 0.0)
    assert "there is no threshold and nothing is judged" in " ".join(finding.notes)


def test_a_shifted_copy_is_named(root, tmp_path):
    (root / SETTINGS).write_text(json.dumps({"corruption": "contrast:3"}))
    assert scored(root, maps_of(root, tmp_path / "rival")).title.endswith("contrast:3")


def test_photos_that_share_a_stem_need_whole_names(tmp_path):
    save(np.ones((4, 4)), tmp_path / "a" / "0", "npy")
    with pytest.raises(NfadError, match="two photos are called a/0"):
        Foreign.open(tmp_path, ["a/0.png", "a/0.jpg"])
    (tmp_path / "a" / "0.npy").rename(tmp_path / "a" / "0.png.npy")
    assert list(Foreign.open(tmp_path, ["a/0.png", "a/0.jpg"]).maps) == ["a/0.png"]


def _bomb(path):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(900):
            file.write(bytes(10**6))


def _huge(path):
    """A header that promises much, and a file that has it only as a hole."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (20000, 20000)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * 20000**2)


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("0.npy", lambda p: np.save(p, np.array([{"a": 1}], dtype=object)), "cannot be read"),
        ("0.npy", lambda p: p.write_bytes(b""), "cannot be read"),
        ("0.npy", lambda p: np.save(p, np.full((4, 4), np.nan)), "is nan at row 0, column 0"),
        ("0.npy", lambda p: np.save(p, np.zeros((3, 4, 4))), "must be a 2-d array"),
        ("0.npy", lambda p: np.save(p, np.zeros((4, 4), complex)), "must be a 2-d array of numbers"),
        ("0.npy", _huge, "would take 1.6 GB"),
        ("0.npz", lambda p: np.savez(p, a=np.zeros(2), b=np.zeros(2)), "holds 2 arrays"),
        ("0.npz", lambda p: p.write_bytes(b"PK no"), "cannot be read"),
        ("0.npz", _bomb, "would take 0.9 GB"),
        ("0.png", lambda p: Image.new("L", (4, 4)).save(p), "8 bits are too few"),
        ("0.tiff", lambda p: p.write_bytes(b"II no"), "neither a PNG nor a TIFF"),
    ],
)  # fmt: skip
def test_a_file_from_a_stranger_is_refused_in_one_sentence(tmp_path, name, write, words):
    write(tmp_path / name)
    with pytest.raises(NfadError, match=words) as found:
        read_map(tmp_path / name)
    assert str(tmp_path / name) in str(found.value)


def test_a_channel_too_many_is_no_harm(tmp_path):
    np.save(tmp_path / "0.npy", np.ones((1, 1, 4, 6)))
    assert read_map(tmp_path / "0.npy").shape == (4, 6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("photo,score\na,1\n", "must have the columns image, score; it has photo, score"),
        ("image,score\ntest/good/0.png,high\n", "line 2 has the score 'high'"),
        ("image,score\ntest/good/0.png,1\ntest/good/0.png,2\n", "line 3 names test/good/0.png a second time"),
        ("image,score\nelsewhere.png,1\n", "holds nothing of this data set"),
    ],
)
def test_a_wrong_csv_is_told_by_line(root, tmp_path, text, words):
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(NfadError, match=words):
        scored(root, tmp_path / "scores.csv")
