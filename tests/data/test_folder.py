import os

import pytest

from nfad.data import folder
from nfad.errors import NfadError

TEST = ["test/good/g.png", "test/scratch/s.jpg", "test/scratch/new lamp/s.jpg", "test/dent [1]/d.png"]


def facts(samples) -> list[tuple]:
    return [(s.path.name, s.kind, s.domain, s.mask and s.mask.parent.name) for s in samples]


@pytest.mark.parametrize("good", ["train/good", "good"])
def test_train_and_test_folders(plant, good):
    root = plant(f"{good}/a.png", f"{good}/b.png", *TEST)
    assert folder.recognises(root) and folder.categories(root) == ["root"]
    read = folder.read(root, "root")
    assert [s.path.name for s in read.train] == ["a.png", "b.png"] and not any(s.anomalous for s in read.train)
    assert facts(read.test) == [
        ("d.png", "dent [1]", "same", None),
        ("g.png", "good", "same", None),
        ("s.jpg", "scratch", "same", None),
        ("s.jpg", "scratch", "new lamp", None),
    ]
    assert read.notes == ("root: 3 of 3 anomalous test images have no mask",)


@pytest.mark.parametrize("truth", ["ground_truth", "masks"])
@pytest.mark.parametrize("end", [".png", "_mask.png"])
def test_masks_are_found_by_name_and_a_domain_may_have_its_own(plant, truth, end):
    root = plant("good/a.png", *TEST, f"{truth}/scratch/s{end}", f"{truth}/dent [1]/d{end}", f"{truth}/good/g{end}")
    assert [name for *_, name in facts(folder.read(root, "root").test)] == ["dent [1]", None, "scratch", "scratch"]
    plant(f"{truth}/scratch/new lamp/s{end}")
    read = folder.read(root, "root")
    assert [name for *_, name in facts(read.test)] == ["dent [1]", None, "scratch", "new lamp"]
    assert read.notes == ()


def test_without_a_test_folder_half_of_the_good_ones_are_tested_on(plant):
    root = plant(*(f"good/{i}.png" for i in range(9)), "dent/x.png", "dent/dusk/y.png", "masks/dent/x.png")
    read = folder.read(root, "root")
    tested = [s.path for s in read.test if not s.anomalous]
    assert len(read.train) == 5 and len(tested) == 4 and not {s.path for s in read.train} & set(tested)
    assert facts(s for s in read.test if s.anomalous) == [
        ("x.png", "dent", "same", "dent"),
        ("y.png", "dent", "dusk", None),
    ]
    assert read.notes[0] == "root: there is no test folder, so 4 of 9 good images are tested on (seed 0)"
    assert folder.read(root, "root") == read


def test_for_a_fitted_model_every_image_is_tested_on(plant):
    root = plant(*(f"good/{i}.png" for i in range(9)), "dent/x.png", "dent/dusk/y.png", "masks/dent/x.png")
    [read] = folder.read_tested(root)
    assert read.train == () and [s.path.name for s in read.test if not s.anomalous] == [f"{i}.png" for i in range(9)]
    bad = [s for s in folder.read(root, "root").test if s.anomalous]
    assert [s for s in read.test if s.anomalous] == bad and len(bad) == 2
    assert read.notes[0].startswith("root: there is no test folder, so all 9 good images are tested on; any that")


@pytest.mark.parametrize("fitted", [(), ("train/good/a.png",), ("good/a.png", "scratch/b.png")])
def test_for_a_fitted_model_the_test_folder_will_do_and_goes_first(plant, fitted):
    root = plant(*TEST, *fitted)
    [read] = folder.read_tested(root)
    assert read.category == "root" and read.train == ()
    assert facts(read.test) == facts(folder.read(plant("train/good/a.png"), "root").test) and len(read.test) == 4
    assert read.notes == ("root: 3 of 3 anomalous test images have no mask",)


def test_without_a_model_a_test_folder_alone_is_still_refused(plant):
    root = plant(*TEST)
    assert not folder.recognises(root)
    with pytest.raises(NfadError, match="looked for train/good or good, in it or in folders of it; found test"):
        folder.categories(root)


def test_a_fitted_model_is_tested_on_the_categories_asked_for(plant):
    root = plant("bolt/good/a.png", "nut/test/good/b.png", "nut/test/dent/c.png", "other/x.png")
    assert [read.category for read in folder.read_tested(root)] == ["bolt", "nut"]
    [nut] = folder.read_tested(root, ["nut"])
    assert [s.path.name for s in nut.test] == ["c.png", "b.png"]
    with pytest.raises(NfadError, match="no category 'other' here; it has bolt, nut"):
        folder.read_tested(root, ["bolt", "other"])


def test_nothing_to_test_a_fitted_model_on_is_told(plant):
    root = plant("train/good/a.png")
    with pytest.raises(NfadError, match="root has no images to test on: put them in .*good and .*<defect>"):
        folder.read_tested(root)
    plant("test/loose.png")
    with pytest.raises(NfadError, match="test has no images to test on"):
        folder.read_tested(root)
    with pytest.raises(NfadError, match="looked for test or good, in it or in folders of it; found a.png"):
        folder.read_tested(root / "train" / "good")


def test_one_good_image_alone_is_fitted_on(plant):
    read = folder.read(plant("good/a.png", "dent/x.png"), "root")
    assert len(read.train) == 1 and "root: the test has no good images" in read.notes


def test_several_folders_are_several_categories(plant):
    root = plant("bolt/good/a.png", "nut/train/good/a.png", "nut/test/good/b.png", "test/good/x.png", "other/x.png")
    assert folder.categories(root) == ["bolt", "nut"]
    assert [s.path.name for s in folder.read(root, "nut").test] == ["b.png"]


def test_only_train_leaves_an_empty_test_and_says_so(plant):
    read = folder.read(plant("train/good/a.png"), "root")
    assert read.test == () and "root: the test has no good images" in read.notes


@pytest.mark.skipif(os.name == "nt", reason="links and such names need POSIX")
def test_links_and_odd_names_do_no_harm(plant):
    root = plant("good/a.png", "good/ä\n*.b.PNG", "good/.hidden.png", *TEST, "test/scratch/s.png.txt")
    (root / "test/loop").symlink_to(root, target_is_directory=True)
    (root / "test/scratch/self").symlink_to("self")
    (root / "test/scratch/gone.png").symlink_to("nowhere.png")
    (root / "good/linked.png").symlink_to(root / "good/a.png")
    (root / "good" / os.fsdecode(b"\xff.png")).touch()
    read = folder.read(root, "root")
    assert {s.path.name for s in read.train} == {"a.png", "ä\n*.b.PNG", "linked.png", os.fsdecode(b"\xff.png")}
    assert {"s.jpg", "d.png", "g.png"} <= {s.path.name for s in read.test}
    assert not any(s.path.name == "gone.png" for s in read.test)


def test_the_name_of_a_relative_root_is_found(plant, monkeypatch):
    monkeypatch.chdir(plant("good/a.png", "good/b.png", "dent/x.png"))
    assert folder.categories(".") == ["root"]
    assert len(folder.read(".", "root").test) == 2


def test_empty_and_wrong_folders_are_named(plant, tmp_path):
    root = plant("good/.DS_Store", "dent/x.png")
    with pytest.raises(NfadError, match="root has no training images"):
        folder.read(root, "root")
    assert not folder.recognises(root / "dent")
    with pytest.raises(NfadError, match="Plain folder was not found in .*train/good or good.*; found x.png"):
        folder.categories(root / "dent")
    with pytest.raises(NfadError, match="no category 'dent' here; it has root"):
        folder.read(root, "dent")
