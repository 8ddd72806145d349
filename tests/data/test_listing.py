import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.data.listing import (
    SUFFIXES,
    absent,
    check_category,
    check_listed,
    contents,
    dataset,
    folders,
    images,
    inside,
    masks,
    sample,
)
from nfad.errors import NfadError
from nfad.vision import pixels

ROOT = Path("root")


def test_readers_list_what_the_detector_opens():
    assert SUFFIXES == pixels.SUFFIXES


def test_litter_is_not_listed(plant):
    root = plant("b.PNG", "a.jpg", "._a.jpg", ".DS_Store", "Thumbs.db", "notes.txt", "__MACOSX/x.png", "kind/x.png")
    (root / "folder.png").mkdir()
    assert [path.name for path in images(root)] == ["a.jpg", "b.PNG"]
    assert [path.name for path in folders(root)] == ["folder.png", "kind"]


def test_a_folder_that_is_not_there_has_no_images(tmp_path):
    (tmp_path / "file").touch()
    assert images(tmp_path / "nowhere") == images(tmp_path / "file") == folders(tmp_path / "nowhere") == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root and Windows may list any folder")
def test_a_forbidden_folder_is_named(plant):
    root = plant("x.png")
    root.chmod(0)
    try:
        with pytest.raises(NfadError, match="root can't be listed"):
            images(root)
    finally:
        root.chmod(0o700)


def test_a_mask_is_called_like_its_image_or_so_with_mask(plant):
    root = plant("000_mask.png", "001.png", "a.b_mask.png")
    assert {stem: path.name for stem, path in masks(root).items()} == {
        "000": "000_mask.png",
        "001": "001.png",
        "a.b": "a.b_mask.png",
    }


def test_only_defects_have_masks():
    assert sample(Path("x"), "good", mask=Path("m")).mask is None
    assert sample(Path("x"), "dent", mask=Path("m")).mask == Path("m")


def test_the_source_domain_comes_first_and_files_follow_their_names():
    test = [sample(Path(name), "good", domain) for name, domain in (("b", "dark"), ("c", "same"), ("a", "same"))]
    read = dataset("own", "part", ROOT, [sample(Path(name), "good") for name in "zy"], test)
    assert [s.path.name for s in read.train] == ["y", "z"]
    assert [s.path.name for s in read.test] == ["a", "c", "b"]


def test_what_a_reader_of_results_should_know_is_noted():
    train, good = [sample(Path("t"), "good")], [sample(Path("g"), "good")]
    bad = [sample(Path("x"), "dent", mask=Path("m")), sample(Path("y"), "dent")]
    assert dataset("own", "part", ROOT, train, good + bad[:1]).notes == ()
    assert dataset("own", "part", ROOT, train, good + bad, ["first"]).notes == (
        "first",
        "part: 1 of 2 anomalous test images have no mask",
    )
    assert dataset("own", "part", ROOT, train, bad[:1]).notes == ("part: the test has no good images",)
    assert dataset("own", "part", ROOT, train, good).notes == ("part: the test has no anomalous images",)


def test_nothing_to_fit_on_is_an_error():
    with pytest.raises(NfadError, match="own part in root has no training images"):
        dataset("own", "part", ROOT, [], [sample(Path("x"), "good")])


def test_a_wrong_root_is_told_with_what_is_there(plant, tmp_path):
    root = plant("a.txt", "b/x.png", ".hidden", *"cdefg")
    assert str(absent("A set", root, "train")) == (
        f"A set was not found in {root}: looked for train; found a.txt, b, c, d, e and 2 more"
    )
    (tmp_path / "empty").mkdir()
    assert contents(tmp_path / "empty") == "an empty folder"
    assert contents(tmp_path / "nowhere") == "no such folder"
    assert contents(root / "a.txt") == "a file, not a folder"


def test_an_unknown_category_lists_the_known_ones():
    check_category("A set", "nut", ["bolt", "nut"])
    with pytest.raises(NfadError, match=r"A set has no category '\.\./nut' here; it has bolt, nut"):
        check_category("A set", "../nut", ["bolt", "nut"])


WINDOWS = ["..\\x", "C:\\x", "C:x", "\\\\host\\x", "\\x"]


@pytest.mark.parametrize("name", ["/x", "../x", "a/../../x", "", "a\0b", None, 7, ["x"], *WINDOWS])
def test_a_listed_name_may_not_lead_out(name):
    with pytest.raises(NfadError, match="stay inside root"):
        inside(ROOT, name, Path("list.json"))


@given(st.text())
def test_whatever_is_let_through_stays_inside(name):
    try:
        path = inside(ROOT, name, Path("list.json"))
    except NfadError:
        return
    assert Path(os.path.normpath(path)).is_relative_to(ROOT)


def test_an_ordinary_name_is_let_through():
    assert inside(ROOT, "a/b..c.png", Path("list.json")) == ROOT / "a" / "b..c.png"


def test_a_list_of_missing_files_is_refused(plant):
    root = plant("a.png")
    check_listed([root / "a.png"], Path("list.csv"))
    with pytest.raises(NfadError, match="lists 3 files of which 2 are missing, .*b.png for one"):
        check_listed([root / name for name in ("a.png", "b.png", "c.png")], Path("list.csv"))
