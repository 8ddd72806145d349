import csv
import hashlib
import json
import os
import re
import tracemalloc
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import PIL.Image
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parts import part
from PIL import Image

from nfad.errors import NfadError
from nfad.records import NOT_JUDGED, RECORD_FIELDS, UNREADABLE, Prediction
from nfad.report import inspection
from nfad.report.inspection import MOST_UNDERWAY, entries, expand, inspect
from nfad.vision.pixels import load_part


class Batching:
    """Judges as a Detector does, a batch at a time; an image's first pixel is its score, 255 is refused, and 254 is
    more than it can bear."""

    sha256, false_alarm_rate = "0" * 64, 0.1

    def __init__(self, batch, on_batch=lambda: None):
        self.batch, self.on_batch = batch, on_batch

    def predict_stream(self, images, skip=None, *, prefetch=True):
        seen = []
        for image in images:
            if image[0, 0, 0] == 255:
                skip(image, "the array is not for this model")
                continue
            seen.append(float(image[0, 0, 0]))
            if len(seen) == self.batch:
                yield from self.judged(seen)
                seen = []
        yield from self.judged(seen)

    def judged(self, scores):
        self.on_batch()
        if 254 in scores:
            raise RuntimeError("no kernel\nfor this")
        view = np.zeros((8, 8), np.float32)
        return [Prediction(score, False, 300.0, view, view, 0.5, 0.5, unfiltered_score=1.0) for score in scores]


def image_at(path, value=0, side=16):
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(path)
    return path


KINDS = {
    "good": lambda path, place: image_at(path, place),
    "refused": lambda path, place: image_at(path, 255),
    "small": lambda path, place: image_at(path, place, side=8),
    "broken": lambda path, place: path.write_bytes(b"not an image"),
    "empty": lambda path, place: path.write_bytes(b""),
    "fatal": lambda path, place: image_at(path, 254),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from([*KINDS, "good", "good"]), max_size=12), batch=st.integers(1, 5))
def test_every_image_is_recorded_once_in_order_with_its_own_verdict(tmp_path, kinds, batch):
    paths = [tmp_path / f"{place:02}.png" for place in range(len(kinds))]
    for place, (kind, path) in enumerate(zip(kinds, paths)):
        KINDS[kind](path, place)
    found = list(entries(Batching(batch), "m", paths))
    assert [entry.record.image for entry in found] == [str(path) for path in paths]
    assert [entry.record.id for entry in found] == [str(place + 1) for place in range(len(kinds))]
    for place, (kind, entry) in enumerate(zip(kinds, found)):
        if kind == "good":
            assert entry.record.score == entry.prediction.score == place and len(entry.record.sha256) == 64
            assert entry.prediction.source == entry.record.image and (entry.photo == place).all()
        elif kind == "fatal":
            assert entry.record.verdict == NOT_JUDGED and entry.record.score is None and entry.prediction is None
            wanted = "Not judged: the model failed on this photo (RuntimeError: no kernel for this)."
            assert entry.record.explanation == wanted and len(entry.record.sha256) == 64
        else:
            assert entry.record.verdict == UNREADABLE and entry.record.score is None and entry.record.sha256 == ""
            assert entry.prediction is None and str(paths[place]) in entry.record.explanation


def test_an_unreadable_image_by_two_ways_is_recorded_twice(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"")
    image_at(tmp_path / "good.png")
    found = list(entries(Batching(4), "m", [tmp_path, tmp_path / "bad.png"]))
    assert [entry.record.verdict for entry in found] == [UNREADABLE, "normal", UNREADABLE]
    assert all("is empty" in entry.record.explanation for entry in (found[0], found[2]))


def test_an_image_that_vanishes_is_recorded_and_the_others_are_judged(tmp_path, monkeypatch):
    paths = [image_at(tmp_path / f"{place}.png", place) for place in range(3)]
    real = inspection.sha256_of

    def gone(path):
        if path == paths[1]:
            raise FileNotFoundError(2, "No such file or directory")
        return real(path)

    monkeypatch.setattr(inspection, "sha256_of", gone)
    found = list(entries(Batching(2), "m", paths))
    assert [entry.record.verdict for entry in found] == ["normal", UNREADABLE, "normal"]
    assert "No such file" in found[1].record.explanation


def test_the_time_is_the_model_s_and_not_that_of_whoever_takes_the_records(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(inspection, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    paths = [image_at(tmp_path / f"{place}.png") for place in range(6)]

    def judge():
        now[0] += 0.5

    times = []
    for entry in entries(Batching(2, judge), "m", paths):
        times.append(entry.record.milliseconds)
        now[0] += 100
    assert times == [250.0] * 6  # two at a time


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    def peak(count):
        paths = [tmp_path / f"{place}.png" for place in range(count)]
        for path in paths:
            path.exists() or image_at(path, side=256)
        tracemalloc.start()
        try:
            for _ in entries(Batching(2), "m", paths):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(3)
    assert peak(60) - peak(6) < 2 * 256 * 256 * 3


@pytest.mark.parametrize(
    ("given_names", "names"),
    [
        (["a/x.png", "b/x.png", "c/x-2.png"], ["x.png", "x-2.png", "x-2-2.png"]),
        (["c/x-2.png", "a/x.png", "b/x.png"], ["x-2.png", "x.png", "x-3.png"]),
        (["a/set/1.png", "a/set", "b/set"], ["1.png", "set/1.png", "set-2/1.png"]),
        (["a/x.png", "a/x.png"], ["x.png"]),
        (["d/y", "e/y.png"], ["y", "y-2.png/1.png"]),  # the file's overlay is y.png, as the folder is called
    ],
)
def test_no_two_images_have_one_name(tmp_path, given_names, names):
    for name in ("a/x.png", "b/x.png", "c/x-2.png", "a/set/1.png", "b/set/1.png", "e/y.png/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image_at(tmp_path / name)
    (tmp_path / "d").mkdir()
    image_at(tmp_path / "d" / "y.png").rename(tmp_path / "d" / "y")
    assert [str(name) for _, name in expand([tmp_path / name for name in given_names])] == names


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
        image_at(tmp_path / f"line/{name}/1.png")
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


def test_a_folder_of_files_that_are_no_images_is_told_of_as_it_is_read(tmp_path):
    for place in range(3 * MOST_UNDERWAY):
        (tmp_path / f"{place:04}.png").touch()
    image_at(tmp_path / "last.png", 7)
    opened = []
    with mock.patch.object(inspection, "load_part", side_effect=lambda path: (opened.append(path), load_part(path))[1]):
        scores = []
        for entry in entries(Batching(4), "m", [tmp_path]):
            scores.append(entry.record.score)
            assert len(opened) - len(scores) < MOST_UNDERWAY
    assert scores == 3 * MOST_UNDERWAY * [None] + [7]


def test_a_model_that_cannot_judge_at_all_is_an_error_and_no_empty_result(tmp_path):
    class Broken(Batching):
        def predict_stream(self, images, skip=None, *, prefetch=True):
            raise RuntimeError("no session")

    with pytest.raises(RuntimeError, match="no session"):
        list(entries(Broken(2), "m", [image_at(tmp_path / "a.png")]))
