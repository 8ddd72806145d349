import json

import pytest

from nfad.data import aebad, demo, folder, magnetic_tile, mpdd, mvtec, mvtec2, realiad, visa
from nfad.data.catalog import READERS, load, recognise
from nfad.errors import NfadError

MVTEC = ["train/good/000.png", "test/good/000.png", "test/bad/000.png", "ground_truth/bad/000_mask.png"]
GROOVE = ["test/good/same/1.png", "test/groove/view/1.png", "ground_truth/groove/view/1.png"]
TREES = {
    "aebad-s": ["train/good/view/1.png", *GROOVE],
    "mvtec-ad": [f"bottle/{name}" for name in MVTEC],
    "mvtec-ad-2": ["can/train/good/000_regular.png", "can/test_public/good/000_shift_1.png"],
    "visa": [f"candle/{name}" for name in MVTEC],
    "mpdd": [f"tubes/{name}" for name in MVTEC],
    "real-iad": ["realiad_jsons/usb.json", "realiad_256/usb/OK/1.jpg", "realiad_256/usb/OK/2.jpg"],
    "magnetic-tile": ["free/exposure1/tile000.jpg", "free/exposure1/tile001.jpg", "crack/exposure2/tile000.jpg"],
    "demo": ["demo.json", "train/good/same/1.png", *GROOVE],
    "folder": ["teapot/train/good/a.png", "teapot/test/good/b.png"],
}


@pytest.fixture(params=TREES)
def laid(request, plant):
    root = plant(*TREES[request.param])
    listed = {part: [{"anomaly_class": "OK", "image_path": f"OK/{i}.jpg"}] for part, i in (("train", 1), ("test", 2))}
    if request.param == "real-iad":
        (root / "realiad_jsons/usb.json").write_text(json.dumps(listed))
    return request.param, root


def test_the_readers_are_named_in_a_fixed_order():
    assert list(READERS) == list(TREES)
    assert list(READERS.values()) == [aebad, mvtec, mvtec2, visa, mpdd, realiad, magnetic_tile, demo, folder]


def test_each_tree_is_recognised_as_what_it_is_and_loads(laid):
    name, root = laid
    assert recognise(root) == recognise(str(root)) == name
    loaded = load(name, root)
    assert [read.category for read in loaded] == READERS[name].categories(root)
    assert load(name, str(root), [loaded[0].category]) == loaded[:1]
    for read in loaded:
        assert read.name == name and read.train
        assert not any(s.anomalous for s in read.train)
        assert all(s.path.is_file() for s in read.train + read.test)
        assert all(s.mask.is_file() for s in read.test if s.mask)
        assert not {s.path for s in read.train} & {s.path for s in read.test}


def test_each_reader_refuses_what_is_not_its_own(laid):
    name, root = laid
    for other, reader in READERS.items():
        if other not in (name, "folder"):
            assert not reader.recognises(root)
            with pytest.raises(NfadError, match=f"{reader.TITLE} was not found in .*: looked for .*; found "):
                load(other, root)


def test_a_missing_folder_is_told_by_every_reader(tmp_path):
    for name, reader in READERS.items():
        assert not reader.recognises(tmp_path / "nowhere")
        with pytest.raises(NfadError, match="found no such folder"):
            load(name, tmp_path / "nowhere")


def test_nothing_known_is_told_with_what_was_looked_for(plant):
    root = plant("holiday/beach.jpg", "notes.txt")
    with pytest.raises(NfadError, match="looked for AeBAD-S, .*Real-IAD.* plain folder .*; found holiday, notes.txt"):
        recognise(root)


def test_two_sets_in_one_folder_need_a_name(plant):
    root = plant(*TREES["mvtec-ad"], *TREES["mpdd"])
    with pytest.raises(NfadError, match="looks like mvtec-ad and like mpdd; say by name"):
        recognise(root)
    assert [read.category for read in load("mpdd", root)] == ["tubes"]


def test_unknown_names_are_refused(plant):
    root = plant(*TREES["mvtec-ad"])
    with pytest.raises(NfadError, match="no data set 'mvtec'; there are aebad-s, mvtec-ad,"):
        load("mvtec", root)
    with pytest.raises(NfadError, match="no category 'screw' here; it has bottle"):
        load("mvtec-ad", root, ["bottle", "screw"])
