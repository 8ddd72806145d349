import io
import json
import zipfile
from dataclasses import fields
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from service.serving import image, png, serving

from nfad import Detector
from nfad.data import folder
from nfad.records import RECORD_FIELDS
from nfad.service.record import Inspection, as_text, new_id
from nfad.service.review import photo_name, precision_and_recall, suggest
from nfad.vision.pixels import FORMATS, find_images

SCORES = st.lists(st.floats(0, 12), min_size=5, max_size=12)


@pytest.fixture(scope="module")
def detector(model):
    return Detector.load(model)


@given(SCORES, SCORES, st.floats(0.15, 0.9))
def test_the_suggestion_is_the_best_rate_there_is(detector, good, bad, rate):
    model = detector.at_rate(rate)

    def wrong(threshold):
        return sum(score > threshold for score in good) + sum(score <= threshold for score in bad)

    best = min(wrong(threshold) for threshold in (*model.held_out.every()[0], model.threshold))
    found = suggest(model, good, bad)
    if found is None:
        assert wrong(model.threshold) == best
        return
    assert found.false_alarms[1] + found.missed[1] == wrong(found.threshold) == best < wrong(model.threshold)
    assert detector.at_rate(found.rate).threshold == pytest.approx(
        found.threshold
    )  # it can be set, and does what it says
    assert f"instead of {wrong(model.threshold)}" in found.sentence


def test_precision_and_recall_by_hand():
    precision, recall = precision_and_recall({"good": 10, "bad": 8, "missed": 2, "false_alarms": 3})
    assert precision.value == 6 / 9 and recall.value == 6 / 8
    assert precision.low < precision.value < precision.high
    nothing, _ = precision_and_recall({"good": 0, "bad": 0, "missed": 0, "false_alarms": 0})
    assert np.isnan(nothing.value) and (nothing.low, nothing.high) == (0, 1)


def test_the_export_is_a_data_set_that_the_reader_reads(model, tmp_path):
    contents = {}
    with serving([model], tmp_path / "data") as client:
        kinds = ["PNG", "JPEG", "TIFF", "BMP", "PNG", "PNG", "PNG"]
        verdicts = ["good", "good", "good", "good", "bad", "unsure", None]
        for seed, (kind, verdict) in enumerate(zip(kinds, verdicts)):
            content = png(seed, kind=kind)
            id = client.post("/v1/inspect", files=image(content, "/etc/../cam 3.PNG")).json()["id"]
            contents[id] = content, verdict
            if verdict:
                client.put(f"/v1/inspections/{id}/review", json={"verdict": verdict, "note": "seen"})
        with client.stream("GET", "/v1/review/export") as answer:
            assert "content-length" not in answer.headers  # it is sent while it is made
            archive = zipfile.ZipFile(io.BytesIO(answer.read()))
    assert archive.testzip() is None
    archive.extractall(tmp_path)
    read = folder.read(tmp_path / "part", "part")
    lines = [json.loads(line) for line in (tmp_path / "part/inspections.jsonl").read_text().splitlines()]
    assert all(tuple(line)[: len(RECORD_FIELDS)] == RECORD_FIELDS for line in lines)
    ids = {tmp_path / "part" / line["image"]: line["id"] for line in lines}
    found = {ids[sample.path]: sample for sample in (*read.train, *read.test)}
    assert set(found) == {id for id, (_, verdict) in contents.items() if verdict in ("good", "bad")}
    for id, sample in found.items():
        content, verdict = contents[id]
        assert sample.path.read_bytes() == content and sample.anomalous == (verdict == "bad")
        assert sample.path.stem == f"cam 3-{id[-12:]}"
    assert {line["id"] for line in lines} == set(found) and all(line["review_note"] == "seen" for line in lines)


def inspected(image, id="0198c5a2f3b17c04d2e9aa", suffix=".png"):
    given = {each.name: None for each in fields(Inspection)}
    return Inspection(**given | {"id": id, "image": image, "suffix": suffix})


@pytest.mark.parametrize(
    ("given", "stem"),
    [
        ("cam3-0017.jpg", "cam3-0017-"),
        ("Teil Nr. 5.v2", "Teil Nr. 5.v2-"),  # not every dot begins a suffix
        ("名 é.png", "名 é-"),
        ("e\u0301.png", "é-"),  # as a Mac writes it
        ("C:\\fotos\\a.bmp", "a-"),
        ("../../.bashrc", "bashrc-"),
        ("-rf.png", "rf-"),
        ("a<b>\r\nc\u202egnp.exe", "a_b___c_gnp.exe-"),
        ("aux.v2.png", "_aux.v2-"),
        ("con.png", "con-"),
        ("", ""),
        ("...", ""),
    ],
)
def test_a_photo_is_called_what_the_client_called_it(given, stem):
    assert photo_name(inspected(given)) == f"{stem}b17c04d2e9aa.png"


DEVICES = st.from_regex(r"(con|prn|AUX|nul|com1|LPT9) ?[./: ]?.{0,5}", fullmatch=True)


@given(st.text(max_size=255) | DEVICES, st.sampled_from(sorted(FORMATS.values())))
def test_whatever_the_client_called_it_the_name_is_one_that_every_system_takes(given, suffix):
    name = photo_name(inspected(as_text(given, 255), suffix=suffix))
    assert name == PurePosixPath(name).name == PureWindowsPath(name).name and name.endswith(f"b17c04d2e9aa{suffix}")
    assert name.isprintable() and name[0] not in ".-" and not set(name) & set('<>:"/\\|?*')
    assert len(name.encode()) <= 120 and not PureWindowsPath(name).is_reserved()
    with TemporaryDirectory() as folder:
        (Path(folder) / name).touch()
        assert [path.name for path in find_images(Path(folder))] == [name]


def test_namesakes_stay_apart():
    assert len({photo_name(inspected("image.jpg", new_id())) for _ in range(1000)}) == 1000


def test_an_export_of_nothing_is_an_empty_archive(client):
    with zipfile.ZipFile(io.BytesIO(client.get("/v1/review/export").content)) as archive:
        assert archive.namelist() == ["part/inspections.jsonl"]
