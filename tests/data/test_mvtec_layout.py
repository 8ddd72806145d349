import pytest

from nfad.data import mpdd, mvtec
from nfad.errors import NfadError


def tree(*names: str) -> list[str]:
    return [
        f"{category}/{file}"
        for category in names
        for file in (
            "train/good/000.png",
            "train/good/001.png",
            "train/good/Thumbs.db",
            "test/good/000.png",
            "test/dent/000.png",
            "test/dent/001.png",
            "ground_truth/dent/000_mask.png",
            "ground_truth/dent/001_mask.png",
        )
    ]


@pytest.mark.parametrize("reader, names", [(mvtec, ("bottle", "zipper")), (mpdd, ("connector", "tubes"))])
def test_the_layout_is_read(plant, reader, names):
    root = plant(*tree(*reversed(names)), "readme.txt", "extras/x.png")
    assert reader.recognises(root) and reader.categories(root) == list(names)
    read = reader.read(root, names[0])
    assert (read.name, read.category, len(read.train)) == (reader.NAME, names[0], 2)
    assert [(s.kind, s.anomalous, s.domain, s.mask and s.mask.name) for s in read.test] == [
        ("dent", True, "same", "000_mask.png"),
        ("dent", True, "same", "001_mask.png"),
        ("good", False, "same", None),
    ]
    assert len(read.notes) == 1 and read.notes[0].startswith(f"{names[0]}: 2 training images, published")


def test_a_missing_mask_is_counted(plant):
    root = plant(*(name for name in tree("bottle") if not name.endswith("001_mask.png")))
    assert mvtec.read(root, "bottle").notes[0] == "bottle: 1 of 2 anomalous test images have no mask"


def test_sets_are_told_apart_by_their_categories(plant):
    root = plant(*tree("bottle"))
    assert not mpdd.recognises(root)
    with pytest.raises(NfadError, match=r"MPDD was not found in .*bracket_black.*; found bottle"):
        mpdd.categories(root)


def test_unknown_and_empty_categories_are_refused(plant):
    root = plant(*tree("bottle"))
    with pytest.raises(NfadError, match="MVTec AD has no category 'cable' here; it has bottle"):
        mvtec.read(root, "cable")
    for path in (root / "bottle/train/good").iterdir():
        path.unlink()
    with pytest.raises(NfadError, match="bottle has no training images"):
        mvtec.read(root, "bottle")
