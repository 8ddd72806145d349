import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from nfad.errors import NfadError
from nfad.system.files import sha256_of
from nfad.watch import sorting
from nfad.watch.delivery import Refused
from nfad.watch.sinks import open_sinks
from nfad.watch.sorting import Sorter


@pytest.fixture
def filed(detector, folder, tmp_path, png, record):
    """Write a part and sort it; gives the record, so that it can be sorted again."""

    def file(way="copy", name="sub/a.png", verdict="anomalous", position=7, prediction_of=None, content=None):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content or png(1, defect=True))
        given = record(name, sha256=sha256_of(path), verdict=verdict, id=f"ledger-{position}")
        sorter = Sorter(tmp_path / "sorted", way, folder)
        sorter.file(given, prediction_of or (lambda record: detector.predict(path)))
        return sorter, given

    return file


def tree(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_bad_part_is_copied_with_a_picture_of_where(filed, folder, tmp_path):
    filed()
    assert tree(tmp_path / "sorted") == {"bad/sub/a-000007.png", "bad/sub/a-000007.overlay.png"}
    assert (tmp_path / "sorted/bad/sub/a-000007.png").read_bytes() == (folder / "sub/a.png").read_bytes()
    picture = np.asarray(Image.open(tmp_path / "sorted/bad/sub/a-000007.overlay.png"))
    assert picture.shape[1] > 3 * 384


def test_a_good_part_has_no_picture_and_needs_no_maps(filed, tmp_path):
    filed(verdict="normal", prediction_of=lambda record: pytest.fail("judged again"))
    assert tree(tmp_path / "sorted") == {"good/sub/a-000007.png"}


@pytest.mark.parametrize("way", ["copy", "link", "move"])
def test_what_is_not_judged_is_neither_good_nor_bad_and_its_picture_says_why(filed, way, tmp_path):
    filed(way, verdict="not judged")
    assert tree(tmp_path / "sorted") == {"not-judged/sub/a-000007.png", "not-judged/sub/a-000007.overlay.png"}


def test_a_verdict_that_nobody_knows_is_never_filed_as_good(filed, tmp_path):
    with pytest.raises(KeyError):
        filed(verdict="perhaps")
    assert tree(tmp_path / "sorted") == set()


def test_a_part_of_another_model_is_filed_without_picture(filed, tmp_path):
    filed(prediction_of=lambda record: None)
    assert tree(tmp_path / "sorted") == {"bad/sub/a-000007.png"}


def test_what_cannot_be_read_stays_where_it_is(filed, folder, tmp_path):
    filed("move", verdict="unreadable")
    assert tree(tmp_path / "sorted") == set() and (folder / "sub/a.png").exists()


@pytest.mark.parametrize("way", ["copy", "link", "move"])
def test_twice_is_once(filed, way, folder, tmp_path):
    sorter, record = filed(way)
    before = tree(tmp_path / "sorted")
    sorter.file(record, lambda record: pytest.fail("judged again"))
    assert tree(tmp_path / "sorted") == before and (folder / "sub/a.png").exists() == (way != "move")


def test_a_move_that_a_crash_cut_in_two_is_finished(filed, folder, tmp_path):
    _, record = filed("copy")
    Sorter(tmp_path / "sorted", "move", folder).file(record, lambda record: pytest.fail("judged again"))
    assert not (folder / "sub/a.png").exists() and len(tree(tmp_path / "sorted")) == 2


def test_a_link_is_the_same_file(filed, folder, tmp_path):
    filed("link")
    assert os.path.samefile(tmp_path / "sorted/bad/sub/a-000007.png", folder / "sub/a.png")


def test_nothing_is_overwritten(filed, tmp_path):
    place = tmp_path / "sorted/good"
    place.mkdir(parents=True)
    (place / "a-000007.png").write_text("mine")
    (place / "a-000007-2.png").write_text("mine too")
    filed(name="a.png", verdict="normal")
    assert (place / "a-000007.png").read_text() == "mine" and (place / "a-000007-2.png").read_text() == "mine too"
    assert (place / "a-000007-3.png").is_file()


@pytest.mark.parametrize("way", ["copy", "link", "move"])
def test_a_part_whose_name_has_another_by_now_is_refused_and_the_other_left_alone(filed, way, folder, tmp_path):
    sorter, record = filed("copy", verdict="normal")
    (folder / "sub/a.png").write_bytes(b"the next part")
    sorter = Sorter(tmp_path / "sorted", way, folder)
    with pytest.raises(Refused, match="another part"):
        sorter.file(replace(record, id="ledger-8"), lambda record: None)
    sorter.file(record, lambda record: None)  # the one before is in its place: nothing to do, and nothing to move
    assert (folder / "sub/a.png").read_bytes() == b"the next part"
    (folder / "sub/a.png").unlink()
    with pytest.raises(Refused, match="gone"):
        sorter.file(replace(record, id="ledger-8"), lambda record: None)
    assert tree(tmp_path / "sorted") == {"good/sub/a-000007.png"}


def test_a_part_that_is_overwritten_while_it_is_copied_leaves_no_trace(filed, folder, tmp_path, detector):
    path = folder / "sub/a.png"

    def overwritten(record):
        prediction = detector.predict(path)
        path.write_bytes(path.read_bytes() + b"more")
        return prediction

    with pytest.raises(Refused, match="took its name"):
        filed(prediction_of=overwritten)
    assert tree(tmp_path / "sorted") == set()


@pytest.mark.parametrize("way", ["copy", "link", "move"])
@pytest.mark.parametrize("stem", ["x" * 251, "é" * 125, "日" * 83])
def test_the_longest_name_finds_a_place(filed, way, stem, tmp_path):
    filed(way, f"{stem}.png")
    image, picture = sorted((tmp_path / "sorted/bad").iterdir(), key=lambda path: len(path.name))
    assert image.name.startswith(stem[:70]) and image.name.endswith("-000007.png")
    assert picture.name == f"{image.stem}.overlay.png" and len(os.fsencode(picture.name)) <= 255


@pytest.mark.parametrize("more", [False, True])
def test_what_a_camera_writes_at_the_last_moment_is_not_removed_with_the_part_before(
    filed, folder, tmp_path, monkeypatch, more
):
    """The camera strikes as soon as the part was looked at: once, or again while its part is put back."""
    path, rename, written = folder / "sub/a.png", os.rename, iter([b"next", b"the one after"])

    def struck(source, target):
        if source == path:
            path.write_bytes(next(written))
        rename(source, target)
        if source == path and more:
            path.write_bytes(next(written))

    monkeypatch.setattr(sorting.os, "rename", struck)
    filed("move", verdict="normal")
    left = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    assert left == ({"a.png": b"the one after", "a-behind-000007.png": b"next"} if more else {"a.png": b"next"})


@pytest.mark.parametrize("content", [None, b"next"])
def test_a_part_taken_aside_before_a_crash_is_removed_or_put_back(filed, folder, tmp_path, content):
    _, record = filed("copy", verdict="normal")
    path = folder / "sub/a.png"
    aside = path.rename(path.with_name(f".nfad-{record.id}.moving"))
    if content:
        aside.write_bytes(content)
    Sorter(tmp_path / "sorted", "move", folder).file(record, lambda record: None)
    assert [each.read_bytes() for each in path.parent.iterdir()] == ([content] if content else [])


def test_receivers_are_read_from_what_a_person_writes(folder, tmp_path):
    texts = [f"copy:{tmp_path / 'a'}", "https://mes/parts", f"link:{tmp_path / 'b'}"]
    senders, sorters = open_sinks(texts, folder)
    assert [each.name for each in senders] == ["https://mes/parts"]
    assert [each.way for each in sorters] == ["copy", "link"]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["copy"], "'copy' is no receiver; write copy:DIR"),
        (["ftp://host/x"], "is no receiver"),
        (["copy:OUT", "copy:OUT"], "is named twice"),
        (["copy:OUT", "move:OUT2"], "cannot be sorted elsewhere too"),
        (["copy:OUT", "link:OUT"], "sort into the same folder"),
        (["copy:CAMERA"], "is the watched folder"),
        (["https://mes/x", "https://user@mes/x"], "is named twice"),
    ],
)
def test_receivers_that_make_no_sense_are_refused(texts, sentence, folder, tmp_path):
    places = {"OUT": str(tmp_path / "out"), "OUT2": str(tmp_path / "out2"), "CAMERA": str(folder)}
    given = [":".join(places.get(word, word) for word in text.split(":")) for text in texts]
    with pytest.raises(NfadError, match=sentence):
        open_sinks(given, folder)
