import pytest

from nfad.data import visa
from nfad.errors import NfadError

HEAD = "object,split,label,image,mask"
ROWS = [
    "candle,train,normal,candle/Data/Images/Normal/0000.JPG,",
    "candle,train,normal,candle/Data/Images/Normal/0002.JPG,",
    "candle,test,normal,candle/Data/Images/Normal/0001.JPG,",
    "candle,test,anomaly,candle/Data/Images/Anomaly/000.JPG,candle/Data/Masks/Anomaly/000.png",
    "pcb1,train,normal,pcb1/Data/Images/Normal/0000.JPG,",
]
CONVERTED = [
    "candle/train/good/0000.JPG",
    "candle/test/good/0001.JPG",
    "candle/test/bad/000.JPG",
    "candle/ground_truth/bad/000.png",
]


@pytest.fixture
def released(plant):
    """A root as released, with other rows if given."""

    def lay(*rows: str, head: str = HEAD):
        names = [name for row in ROWS if row.startswith("candle") for name in row.split(",")[3:] if name]
        root = plant("split_csv/1cls.csv", *names)
        (root / "split_csv/1cls.csv").write_text("\n".join([head, *(rows or ROWS)]) + "\n", encoding="utf-8")
        return root

    return lay


def test_the_release_is_read_by_its_split(released):
    root = released()
    assert visa.recognises(root) and visa.categories(root) == ["candle"]  # pcb1 is listed but not there
    read = visa.read(root, "candle")
    assert [s.path.name for s in read.train] == ["0000.JPG", "0002.JPG"]
    assert [(s.path.name, s.kind, s.mask and s.mask.name) for s in read.test] == [
        ("000.JPG", "bad", "000.png"),
        ("0001.JPG", "good", None),
    ]
    assert read.notes == ("candle: 2 training images, published 900; test 1 good / 1 bad, published 100 / 100",)


@pytest.mark.parametrize("place", ["visa_pytorch/1cls/", "visa_pytorch/", "1cls/", ""])
def test_a_converted_set_is_read_wherever_converters_put_it(plant, place):
    root = plant(*(place + name for name in CONVERTED))
    assert visa.recognises(root) and visa.categories(root) == ["candle"]
    read = visa.read(root, "candle")
    assert [(s.path.name, s.kind, s.mask and s.mask.name) for s in read.test] == [
        ("000.JPG", "bad", "000.png"),
        ("0001.JPG", "good", None),
    ]


def test_the_release_wins(released, plant):
    released()
    root = plant(*("visa_pytorch/" + name for name in CONVERTED))
    assert len(visa.read(root, "candle").train) == 2


@pytest.mark.parametrize(
    "row, problem",
    [
        ("candle,test,normal,../secret.JPG,", "stay inside"),
        ("candle,test,anomaly,candle/Data/Images/Anomaly/000.JPG,/etc/passwd", "stay inside"),
        ("candle,test,normal,candle/Data/Images/Normal/9999.JPG,", "1 are missing, .*9999.JPG"),
        ("candle,dev,normal,candle/x.JPG,", "line 2 says dev, normal"),
        ("candle,test,fine,candle/x.JPG,", "line 2 says test, fine"),
        ("candle,train,anomaly,candle/x.JPG,", "line 2 trains on an anomaly"),
        ("candle,train,normal", "must have the columns .*; line 2 has not"),
        ("../..,train,normal,x.JPG,", "stay inside"),
    ],
)
def test_a_split_that_can_not_be_right_is_refused(released, row, problem):
    root = released(row, *ROWS)
    with pytest.raises(NfadError, match=problem):
        visa.read(root, "candle")


def test_a_split_without_its_columns_is_refused(released):
    root = released(*ROWS, head="a,b,c,d,e")
    with pytest.raises(NfadError, match="must have the columns object, split, label, image, mask"):
        visa.categories(root)


def test_a_split_that_is_no_text_is_refused(released):
    root = released()
    (root / "split_csv/1cls.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NfadError, match="not a CSV file"):
        visa.categories(root)


def test_a_wrong_root_is_named(plant):
    root = plant("bottle/train/good/x.png", "bottle/test/good/x.png")
    assert not visa.recognises(root)
    with pytest.raises(NfadError, match=r"VisA was not found in .*1cls.csv.*; found bottle"):
        visa.categories(root)
