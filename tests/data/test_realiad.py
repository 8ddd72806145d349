import json

import pytest

from nfad.data import realiad
from nfad.errors import NfadError

OK = "OK/S0001/audiojack_0001_OK_C1_20231021.jpg"
FRESH = "OK/S0002/audiojack_0002_OK_C5_20231021.jpg"
BAD = "NG/HS/S0003/audiojack_0003_NG_HS_C2_20231021.jpg"
MASK = "NG/HS/S0003/audiojack_0003_NG_HS_C2_20231021.png"


def entry(image: object, kind: object = "OK", mask: object = None) -> dict:
    return {"category": "audiojack", "anomaly_class": kind, "image_path": image, "mask_path": mask}


def content(**changes) -> dict:
    return {
        "meta": {"normal_class": "OK", "prefix": "audiojack/"},
        "train": [entry(OK)],
        "test": [entry(FRESH), entry(BAD, "HS", MASK)],
        **changes,
    }


@pytest.fixture
def laid(plant):
    def lay(listed: object, sizes=("realiad_512",), place="realiad_jsons"):
        names = [f"{size}/audiojack/{name}" for size in sizes for name in (OK, FRESH, BAD, MASK)]
        root = plant(*names, f"{place}/audiojack.json", f"{place}/._audiojack.json", f"{place}/usb.json")
        text = listed if isinstance(listed, str) else json.dumps(listed)
        (root / place / "audiojack.json").write_text(text, encoding="utf-8")
        return root

    return lay


@pytest.mark.parametrize("place", ["realiad_jsons", "realiad_jsons/realiad_jsons"])
def test_the_list_is_read(laid, place):
    root = laid(content(), place=place)
    assert realiad.recognises(root) and realiad.categories(root) == ["audiojack"]  # usb has a list but no images
    read = realiad.read(root, "audiojack")
    base = root / "realiad_512" / "audiojack"
    assert [s.path for s in read.train] == [base / OK]
    assert [(s.path, s.kind, s.domain, s.mask) for s in read.test] == [
        (base / BAD, "HS", "same", base / MASK),
        (base / FRESH, "good", "same", None),
    ]
    assert read.notes == ("audiojack: images of realiad_512",)


def test_the_largest_size_is_read(laid):
    root = laid(content(), sizes=("realiad_256", "realiad_1024"))
    assert realiad.read(root, "audiojack").notes == ("audiojack: images of realiad_1024",)


@pytest.mark.parametrize(
    "listed, problem",
    [
        (content(test=[entry("../../../secret.jpg")]), "stay inside"),
        (content(test=[entry("/etc/passwd")]), "stay inside"),
        (content(test=[entry(BAD, "HS", "../../x.png")]), "stay inside"),
        (content(meta={"normal_class": "OK", "prefix": "../"}), "stay inside"),
        (content(test=[entry(7)]), "stay inside"),
        (content(test=[entry("OK/none.jpg")]), "1 are missing"),
        (content(test=[entry(OK, None)]), "without anomaly_class"),
        (content(test=["x"]), "without anomaly_class"),
        (content(train=[entry(BAD, "HS", MASK)]), "trains on anomalies"),
        (content(train=[]), "no training images"),
        (content(train=None), "must hold an object"),
        (content(meta=[]), "must hold an object"),
        ([], "must hold an object"),
        ("{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
    ],
)
def test_a_list_that_can_not_be_right_is_refused(laid, listed, problem):
    with pytest.raises(NfadError, match=problem):
        realiad.read(laid(listed), "audiojack")


def test_a_wrong_root_is_named(plant):
    root = plant("realiad_jsons/usb.json")
    assert not realiad.recognises(root)
    with pytest.raises(NfadError, match=r"Real-IAD was not found in .*realiad_1024.*; found realiad_jsons"):
        realiad.categories(root)
