from collections import Counter

import pytest

from nfad.data import aebad
from nfad.errors import NfadError

TREE = [
    *(f"train/good/{domain}/IMG_{i}.png" for i, domain in enumerate(("background", "illumination", "view", "view"))),
    *(
        f"test/{kind}/{domain}/IMG_1.png"
        for kind in ("good", "ablation", "breakdown", "fracture", "groove")
        for domain in ("same", "background", "illumination", "view")
    ),
    *(
        f"ground_truth/{kind}/{domain}/IMG_1.png"
        for kind in ("ablation", "breakdown", "fracture", "groove")
        for domain in ("same", "background", "illumination", "view")
    ),
    "train/good/view/._IMG_2.png",
    "test/good/same/.DS_Store",
    "__MACOSX/test/good/same/._IMG_1.png",
]


@pytest.mark.parametrize("prefix, inner", [("", "."), ("AeBAD_S/", "."), ("AeBAD_S/", "AeBAD_S")])
def test_every_domain_is_read_from_the_set_or_the_folder_above(plant, prefix, inner):
    root = plant(*(prefix + name for name in TREE)) / inner
    assert aebad.recognises(root) and aebad.categories(root) == ["blade"]
    read = aebad.read(root, "blade")
    assert (read.name, read.category) == ("aebad-s", "blade")
    assert {s.domain for s in read.train} == {"same"} and len(read.train) == 4
    assert Counter(s.domain for s in read.test) == dict.fromkeys(("same", "background", "illumination", "view"), 5)
    assert read.test[0].domain == "same"
    for s in read.test:
        assert s.path.parts[-3:-1] == (s.kind, s.domain) and s.anomalous == (s.kind != "good")
        assert not s.anomalous or s.mask.parts[-4:] == ("ground_truth", s.kind, s.domain, s.path.name)
    assert read.notes == ("blade: 4 training images, published 521; test 4 good / 16 bad, published 490 / 1149",)


def test_missing_masks_are_counted(plant):
    read = aebad.read(plant(*(name for name in TREE if "ground_truth/groove" not in name)), "blade")
    assert "blade: 4 of 16 anomalous test images have no mask" in read.notes


def test_a_wrong_root_is_named(plant):
    root = plant("bottle/train/good/x.png", "bottle/test/good/x.png")
    assert not aebad.recognises(root)
    with pytest.raises(NfadError, match=r"AeBAD-S was not found in .*illumination.*; found bottle"):
        aebad.categories(root)


def test_there_is_one_category(plant):
    with pytest.raises(NfadError, match="no category 'vane' here; it has blade"):
        aebad.read(plant(*TREE), "vane")
