"""The folder of results that an inspection leaves: lines, table, pictures and page, all of them or none."""

import csv
import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import PIL.Image
import pytest
from parts import part
from PIL import Image

from nfad.errors import NfadError
from nfad.records import NOT_JUDGED, RECORD_FIELDS, UNREADABLE
from nfad.report import inspection
from nfad.report.inspection import inspect


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seen") / "line"
    folder.mkdir()
    for index in range(5):
        Image.fromarray(part(index, 80, defect=index == 4)).save(folder / f"{index}.png")
    (folder / "2b.png").write_bytes(b"cut off")
    Image.fromarray(np.zeros((16, 3000, 3), np.uint8)).save(folder / "narrow.png")
    return folder


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_results_tell_the_same(detector, seen, tmp_path):
    records, skipped = [], []
    summary = inspect(
        detector, "part", [seen], tmp_path / "out", on_record=records.append, skip=lambda *told: skipped.append(told)
    )
    lines = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text(encoding="utf-8").splitlines()]
    with (tmp_path / "out/results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["0.png", "1.png", "2.png", "2b.png", "3.png", "4.png", "narrow.png"]
    assert [line["image"] for line in lines] == [row["image"] for row in rows] == [str(seen / name) for name in names]
    assert all(tuple(line) == RECORD_FIELDS for line in lines) and tuple(rows[0]) == RECORD_FIELDS
    assert lines == [dict(record.as_dict()) for record in records]
    assert [row["score"] for row in rows] == ["" if line["score"] is None else str(line["score"]) for line in lines]
    assert json.loads(rows[0]["nuisance_by_family"]) == lines[0]["nuisance_by_family"]
    assert (summary.judged, summary.not_judged) == (5, 1) and lines[-1]["verdict"] == NOT_JUDGED  # which is all black
    assert summary.failed == skipped and [image for image, _ in skipped] == [str(seen / "2b.png")]
    assert summary.verdicts == Counter(line["verdict"] for line in lines) and summary.verdicts.total() == 7
    pictures = sorted(path.name for path in (tmp_path / "out/overlays/line").iterdir())
    assert pictures == [f"{name}.png" for name in names if name != "2b.png"]
    page = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h3><bdi>(.*?)</bdi>", page) == names
    assert sorted(os.listdir(tmp_path / "out")) == ["index.html", "overlays", "results.csv", "results.jsonl"]


def test_what_is_not_judged_is_told_as_that_everywhere_and_counted_nowhere_else(detector, seen, tmp_path, monkeypatch):
    stream = type(detector).predict_stream

    def strange(self, *given, **more):
        for prediction in stream(self, *given, **more):
            yield replace(prediction, is_anomalous=False, score=float("nan"), strangeness=2.5, why_not_judged="no part")

    monkeypatch.setattr(type(detector), "predict_stream", strange)
    summary = inspect(detector, "part", [seen], tmp_path)
    assert (summary.judged, summary.not_judged, len(summary.failed), summary.verdict_changed) == (0, 6, 1, 0)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [line["verdict"] for line in lines] == [row["verdict"] for row in rows]
    assert Counter(line["verdict"] for line in lines) == {NOT_JUDGED: 6, UNREADABLE: 1}
    assert {line["strangeness"] for line in lines} == {2.5, None} and {line["score"] for line in lines} == {None}
    assert len(list((tmp_path / "overlays").rglob("*.png"))) == 6


@pytest.mark.parametrize("out", [True, False])
def test_every_image_is_decoded_once(detector, seen, tmp_path, monkeypatch, out):
    opened, real = [], PIL.Image.open

    def counted(file, *more, **named):
        opened.append(file)
        return real(file, *more, **named)

    monkeypatch.setattr(PIL.Image, "open", counted)
    inspect(detector, "part", [seen], tmp_path / "out" if out else None)
    assert opened == sorted(seen.iterdir())


def test_without_a_folder_nothing_is_made_for_pictures(detector, seen, monkeypatch):
    monkeypatch.setattr(inspection, "bounded", mock.Mock(side_effect=AssertionError))
    summary = inspect(detector, "part", [seen])
    assert (summary.judged, summary.not_judged) == (5, 1)


class Stop(Exception):
    pass


@pytest.mark.parametrize("where", ["judging", "page", "interrupted"])
@pytest.mark.parametrize("again", [True, False])
def test_a_failed_run_leaves_the_folder_as_it_was(detector, seen, tmp_path, monkeypatch, where, again):
    out = tmp_path / "out"
    if again:
        inspect(detector, "yesterday", [seen], out)
    before = tree(tmp_path)
    told = []

    def fail(record):
        told.append(record)
        if len(told) == 5:
            raise KeyboardInterrupt if where == "interrupted" else Stop

    if where == "page":
        monkeypatch.setattr("nfad.report.page.write_page", mock.Mock(side_effect=Stop))
    with pytest.raises(KeyboardInterrupt if where == "interrupted" else Stop):
        inspect(detector, "today", [seen], out, on_record=None if where == "page" else fail)
    assert tree(tmp_path) == before
    assert not any(path.name.startswith(".nfad") for path in out.iterdir())


def test_a_rerun_replaces_results_and_leaves_what_is_not_its_own(detector, seen, tmp_path):
    out = tmp_path / "out"
    inspect(detector, "yesterday", [seen], out)
    (out / "overlays" / "mine.txt").write_text("kept")
    inspect(detector, "today", [seen / "0.png"], out)
    assert [json.loads(line)["model"] for line in (out / "results.jsonl").read_text().splitlines()] == ["today"]
    assert (out / "overlays" / "mine.txt").read_text() == "kept" and (out / "overlays" / "0.png.png").is_file()
    assert (out / "overlays" / "0.png.png").stat().st_mode == (out / "index.html").stat().st_mode


def test_a_file_in_the_way_is_told_before_the_work_begins(detector, seen, tmp_path):
    (tmp_path / "overlays").write_text("")
    judged = []
    with pytest.raises(NfadError, match="overlays is a file"):
        inspect(detector, "part", [seen], tmp_path, on_record=judged.append)
    assert not judged and os.listdir(tmp_path) == ["overlays"]


def test_a_second_run_leaves_no_picture_of_the_first_and_all_that_is_not_its_own(detector, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / "line" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / f"line/{name}/1.png")
    pictures = tmp_path / "out/overlays"
    inspect(detector, "part", [tmp_path / "line"], tmp_path / "out")
    (pictures / "line/b/1.png.png").write_bytes(b"drawn on by somebody")
    (pictures / "line/b/mine.png").write_bytes(b"mine")
    listed = json.loads((pictures / ".written.json").read_text())
    outside = tmp_path / "outside.png"
    outside.write_bytes(b"outside")
    listed |= {"../../outside.png": hashlib.sha256(b"outside").hexdigest()}
    (pictures / ".written.json").write_text(json.dumps(listed))
    inspect(detector, "part", [tmp_path / "line/a"], tmp_path / "out")
    left = {str(path.relative_to(pictures)) for path in pictures.rglob("*.png")}
    assert left == {"a/1.png.png", "line/b/1.png.png", "line/b/mine.png"} and outside.exists()
    assert not (pictures / "line/c").exists()
    inspect(detector, "part", [tmp_path / "line/a"], tmp_path / "out", overlays=False)
    assert not (pictures / "a").exists() and (pictures / "line/b/mine.png").exists()


def test_overlays_can_be_left_out(detector, seen, tmp_path):
    inspect(detector, "part", [seen], tmp_path, overlays=False)
    assert sorted(os.listdir(tmp_path)) == ["index.html", "results.csv", "results.jsonl"]


def test_the_page_speaks_of_a_gate_only_where_there_is_one(detector, shipped, seen, tmp_path):
    inspect(detector, "part", [seen], tmp_path / "without")
    inspect(shipped.detector, "part", [seen], tmp_path / "with")
    texts = [(tmp_path / name / "index.html").read_text(encoding="utf-8") for name in ("without", "with")]
    assert not re.search(r"\bgate\b", texts[0], re.IGNORECASE)
    assert "The gate says" in texts[1] and texts[1].count("<p>Gate ") == texts[1].count('<div class="reading">') == 6
