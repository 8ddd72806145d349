import pytest

from nfad.data import mvtec2
from nfad.errors import NfadError

LIGHTS = ("overexposed", "regular", "shift_1", "shift_2", "underexposed")
TREE = [
    "can/train/good/000_regular.png",
    "can/train/good/001_regular.png",
    "can/validation/good/000_regular.png",
    *(f"can/test_public/{kind}/000_{light}.png" for kind in ("good", "bad") for light in LIGHTS),
    *(f"can/test_public/ground_truth/bad/000_{light}_mask.png" for light in LIGHTS),
]
PRIVATE = ["can/test_private/000.png", "can/test_private_mixed/000.png", "can/test_private_mixed/001.png"]


def test_lighting_is_the_domain_and_validation_trains(plant):
    root = plant(*TREE)
    assert mvtec2.recognises(root) and mvtec2.categories(root) == ["can"]
    read = mvtec2.read(root, "can")
    assert len(read.train) == 3 and {s.domain for s in read.train} == {"same"}
    assert {s.path.parts[-3] for s in read.train} == {"train", "validation"}
    assert [s.domain for s in read.test if s.anomalous] == ["same", "overexposed", "shift_1", "shift_2", "underexposed"]
    for s in read.test:
        assert not s.anomalous or s.mask.name == f"{s.path.stem}_mask.png"
    assert read.notes == ("can: 3 training images, published 458; test 5 good / 5 bad, published 72 / 90",)


def test_the_private_tests_are_left_out_and_that_is_said(plant):
    read = mvtec2.read(plant(*TREE, *PRIVATE), "can")
    assert not any("private" in str(s.path.parent.name) for s in read.test)
    assert read.notes[0] == (
        "can: 3 images of test_private and test_private_mixed are left out, their labels are not public"
    )


@pytest.mark.parametrize("name", ["000.png", "first_regular.png", "000_.png"])
def test_a_name_without_its_lighting_is_refused(plant, name):
    root = plant(*TREE, f"can/test_public/good/{name}")
    with pytest.raises(NfadError, match="<number>_<lighting>"):
        mvtec2.read(root, "can")


def test_a_wrong_root_is_named(plant):
    with pytest.raises(NfadError, match=r"MVTec AD 2 was not found in .*test_public.*; found bottle"):
        mvtec2.categories(plant("bottle/train/good/000.png", "bottle/test/good/000.png"))
