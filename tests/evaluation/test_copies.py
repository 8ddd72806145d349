import json

import numpy as np
import pytest
from parts import part
from PIL import Image

from nfad.data.catalog import load
from nfad.errors import NfadError
from nfad.evaluation import copies
from nfad.evaluation.copies import SETTINGS, write_copies
from nfad.vision.corruptions import Corruption
from nfad.vision.pixels import photo_of

CONTRAST, NOISE = Corruption("contrast", 3), Corruption("gaussian_noise", 1)


@pytest.fixture
def root(tmp_path):
    """Two categories in MVTec AD's layout."""
    root = tmp_path / "data"
    for category, suffix in (("bottle", "png"), ("screw", "jpg")):
        for place in ("train/good", "test/good", "test/dent"):
            (root / category / place).mkdir(parents=True)
            for i in range(2):
                seed = len(place) + i
                Image.fromarray(part(seed, 32)).save(root / category / place / f"{i}.{suffix}", quality=95)
        (root / category / "ground_truth" / "dent").mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.eye(32, dtype=np.uint8) * 255).save(root / category / f"ground_truth/dent/{i}_mask.png")
    return root


def written(root, out, suite=(CONTRAST,), categories=None, **options):
    return list(write_copies(root, load("mvtec-ad", root, categories), suite, out, **options))


def test_a_copy_is_the_same_set_with_its_test_photos_alone_corrupted(root, tmp_path):
    [copy] = written(root, tmp_path / "out")
    assert copy.folder == tmp_path / "out" / "contrast-3" and (copy.images, copy.kept) == (8, 8)
    before, after = load("mvtec-ad", root), load("mvtec-ad", copy.folder)
    for wanted, found in zip(before, after, strict=True):
        assert [s.path.relative_to(root) for s in wanted.test] == [s.path.relative_to(copy.folder) for s in found.test]
        for one, other in zip(wanted.train, found.train, strict=True):
            assert one.path.read_bytes() == other.path.read_bytes()
        for one, other in zip(wanted.test, found.test, strict=True):
            assert (one.mask and one.mask.read_bytes()) == (other.mask and other.mask.read_bytes())
            apart = np.abs(CONTRAST(photo_of(one.path)).astype(int) - photo_of(other.path)).max()
            assert apart <= (0 if one.path.suffix == ".png" else 4)
            assert np.abs(photo_of(one.path).astype(int) - photo_of(other.path)).max() > 20


def test_the_seed_decides_noise_and_nothing_else_does(root, tmp_path):
    first, again, other = (
        written(root, tmp_path / name, [NOISE], ["bottle"], seed=seed)[0].folder / "bottle/test/good/0.png"
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_an_interrupted_copy_is_not_seen_and_goes_on(root, tmp_path, monkeypatch):
    done = []

    def stop(path, *rest):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(path)
        return real(path, *rest)

    real = copies.corrupted_file
    monkeypatch.setattr(copies, "corrupted_file", stop)
    with pytest.raises(KeyboardInterrupt):
        written(root, tmp_path / "out")
    assert not (tmp_path / "out" / "contrast-3").exists()
    monkeypatch.setattr(copies, "corrupted_file", real)
    [copy] = written(root, tmp_path / "out")
    assert copy.written == 16 - 3
    [there] = written(root, tmp_path / "out")
    assert there.written == 0 and [path.name for path in (tmp_path / "out").iterdir()] == ["contrast-3"]


def test_an_interrupted_copy_with_another_seed_is_begun_anew(root, tmp_path):
    part_ = tmp_path / "out" / ".contrast-3.part"
    part_.mkdir(parents=True)
    (part_ / SETTINGS).write_text(json.dumps({"seed": 9}))
    (part_ / "stale.png").write_bytes(b"")
    [copy] = written(root, tmp_path / "out")
    assert not (copy.folder / "stale.png").exists() and not part_.exists()


def test_what_is_something_else_is_never_overwritten(root, tmp_path):
    written(root, tmp_path / "out")
    with pytest.raises(NfadError, match="contrast-3 exists and is another copy"):
        written(root, tmp_path / "out", seed=1)
    (tmp_path / "mine" / "contrast-3").mkdir(parents=True)
    with pytest.raises(NfadError, match="is another copy"):
        written(root, tmp_path / "mine")


def test_copies_do_not_go_into_the_set_itself(root):
    for out in (root, root / "bottle" / "shifted"):
        with pytest.raises(NfadError, match="lies in the data set"):
            written(root, out)


def test_a_photo_that_cannot_be_read_or_kept_is_told_by_name(root, tmp_path):
    (root / "bottle/test/good/2.png").write_bytes(b"no image")
    with pytest.raises(NfadError, match=r"2\.png is not an image"):
        written(root, tmp_path / "out")
    (root / "bottle/test/good/2.png").unlink()
    Image.fromarray(part(1, 32)).save(root / "bottle/test/good/3.gif")
    with pytest.raises(NfadError, match=r"3\.gif cannot be written in its own format"):
        written(root, tmp_path / "other")
    assert not (tmp_path / "other").exists()
