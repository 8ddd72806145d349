import tracemalloc
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from nfad.records import NOT_JUDGED, UNREADABLE, Prediction
from nfad.report import inspection
from nfad.report.inspection import MOST_UNDERWAY, entries, expand
from nfad.vision.pixels import load_part


class Batching:
    """Judges as a Detector does, a batch at a time; an image's first pixel is its score, 255 is refused, and 254 is
    more than it can bear."""

    sha256, false_alarm_rate, exported = "0" * 64, 0.1, ""

    def __init__(self, batch, on_batch=lambda: None):
        self.batch, self.on_batch = batch, on_batch
        self.config = SimpleNamespace(at_once=batch)

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


class Ahead(Batching):
    """Judges as an export does: one by one, and the next is read before."""

    exported = "onnx"

    def predict_stream(self, images, skip=None, *, prefetch=True):
        before = None
        for image in images:
            if before is not None:
                yield from self.judged([before])
            before = float(image[0, 0, 0])
        yield from self.judged([before])


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


@pytest.mark.parametrize(("model", "wanted"), [(Batching, 250.0), (Ahead, 500.0)])
def test_the_time_is_the_model_s_and_not_that_of_whoever_takes_the_records(tmp_path, monkeypatch, model, wanted):
    now = [0.0]
    monkeypatch.setattr(inspection, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    paths = [image_at(tmp_path / f"{place}.png") for place in range(6)]

    def judge():
        now[0] += 0.5

    times = []
    for entry in entries(model(2, judge), "m", paths):
        times.append(entry.record.milliseconds)
        now[0] += 100
    assert times == [wanted] * 6  # two at a time, or one


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
