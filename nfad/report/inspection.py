"""Judge a stream of images and leave a record: CSV, JSON lines, overlay pictures and a page, all in one pass."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import numpy as np

from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import RECORD_FIELDS, UNREADABLE, InspectionRecord, Prediction
from nfad.report.page import Page, about
from nfad.report.pictures import SIDE, bounded, full_at, save_png, triptych
from nfad.system.files import ready_folder, replacing, sha256_of, strict_json
from nfad.system.progress import Skip
from nfad.vision.pixels import eight_bits, find_images, load_part


@dataclass
class Summary:
    """What came of a run; `failed` names the images that could not be read and why."""

    judged: int = 0
    anomalous: int = 0
    verdict_changed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Inspected:
    """One image's record and, where it could be read, the prediction and a photo small enough to show."""

    record: InspectionRecord
    name: Path  # in the output, unlike any other
    prediction: Prediction | None = None
    photo: np.ndarray | None = None


def expand(inputs: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Folders are walked, files are taken as they are: (image, its name in the output), no two names alike."""
    taken: Counter[str] = Counter()
    for given in dict.fromkeys(inputs):
        label = given.resolve().name
        taken[label] += 1
        if taken[label] > 1:
            label = f"{given.resolve().stem}-{taken[label]}{given.suffix}"
        for path in find_images(given):
            yield path, Path(label) if given.is_file() else label / path.relative_to(given)


def inspect(
    model: Model,
    name: str,
    inputs: Iterable[Path],
    out: Path | None = None,
    *,
    overlays: bool = True,
    on_record: Callable[[InspectionRecord], None] | None = None,
    skip: Skip | None = None,
) -> Summary:
    """Judge every image; with `out`, write results.csv, results.jsonl, overlays/ and index.html there.

    `name` is the model's in the records. `skip` is told of images that cannot be read, which are recorded too.
    """
    summary = Summary()
    with ExitStack() as stack:
        results = stack.enter_context(Results(ready_folder(out), model, overlays)) if out else None
        for each in inspected(model, name, inputs):
            record = each.record
            if each.prediction is None:
                summary.failed.append((record.image, record.explanation))
                if skip:
                    skip(record.image, record.explanation)
            else:
                summary.judged += 1
                summary.anomalous += each.prediction.is_anomalous
                summary.verdict_changed += record.verdict != record.unfiltered_verdict
                if on_record:
                    on_record(record)
            if results:
                results.add(each)
    return summary


def inspected(model: Model, name: str, inputs: Iterable[Path]) -> Iterator[Inspected]:
    """Every image in order, each decoded once, in memory that does not grow with their number."""
    # Read ahead of the verdicts by a batch at most: path, name in the output, photo to show, when it was taken.
    underway: deque[tuple[Path, Path, np.ndarray | None, float]] = deque()
    unreadable: dict[Path, str] = {}
    count = 0

    def pixels() -> Iterator[np.ndarray]:
        for path, label in expand(inputs):
            since = time.perf_counter()
            try:
                image = load_part(path)
            except NfadError as error:
                unreadable[path] = str(error)
                underway.append((path, label, None, since))
                continue
            underway.append((path, label, bounded(eight_bits(image), SIDE), since))
            yield image

    def refuse(_: object, reason: str) -> None:
        """What the model cannot take is the image it was given last."""
        path, label, _photo, since = underway.pop()
        unreadable[path] = reason.replace("the array", str(path))
        underway.append((path, label, None, since))

    def facts(path: Path, since: float) -> dict[str, object]:
        nonlocal count
        count += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "id": str(count), "time": now, "image": str(path), "model": name, "model_sha256": model.sha256,
            "milliseconds": round((time.perf_counter() - since) * 1000, 1),
        }  # fmt: skip

    def failures() -> Iterator[Inspected]:
        while underway and underway[0][2] is None:
            path, label, _, since = underway.popleft()
            record = InspectionRecord(
                **facts(path, since), sha256="", verdict=UNREADABLE, explanation=unreadable.pop(path)
            )
            yield Inspected(record, label)

    for prediction in model.predict_stream(pixels(), refuse, prefetch=True):
        yield from failures()
        path, label, photo, since = underway.popleft()
        prediction = replace(prediction, source=str(path))
        record = InspectionRecord.of(
            prediction, **facts(path, since), sha256=sha256_of(path), false_alarm_rate=model.false_alarm_rate
        )
        yield Inspected(record, label, prediction, photo)
    yield from failures()


class Results:
    """results.csv, results.jsonl, overlays/ and index.html in a folder; a failed run leaves older ones as they were."""

    def __init__(self, folder: Path, model: Model, overlays: bool) -> None:
        self._folder, self._overlays, self._stack = folder, overlays, ExitStack()
        self._scale = full_at(model.threshold)
        metadata = list(about(model).items())
        self._table: IO[bytes] = self._stack.enter_context(replacing(folder / "results.csv"))
        self._lines: IO[bytes] = self._stack.enter_context(replacing(folder / "results.jsonl"))
        self._page = self._stack.enter_context(Page(folder / "index.html", "Inspection", metadata, self._scale))
        self._writer = csv.writer(_Text(self._table))
        self._writer.writerow(RECORD_FIELDS)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.__exit__(*raised)

    def add(self, inspected: Inspected) -> None:
        record, prediction, photo = inspected.record.as_dict(), inspected.prediction, inspected.photo
        families = record["nuisance_by_family"]
        self._writer.writerow((record | {"nuisance_by_family": json.dumps(families) if families else ""}).values())
        self._lines.write(strict_json(record).encode("utf-8", "surrogateescape") + b"\n")
        if prediction is None or photo is None:
            self._page.add_failure(record["image"], record["explanation"])
            return
        self._page.add(photo, prediction)
        if self._overlays:
            target = self._folder / "overlays" / inspected.name.with_name(inspected.name.name + ".png")
            target.parent.mkdir(parents=True, exist_ok=True)
            save_png(triptych(photo, prediction, self._scale), target)


class _Text:
    """What csv writes to, as bytes; a name that is no UTF-8 stays as it was."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode("utf-8", "surrogateescape"))
