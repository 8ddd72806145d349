"""Judge a stream of images and leave a record: CSV, JSON lines, overlay pictures and a page, all in one pass."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nfad.errors import NfadError
from nfad.model import Model, why_failed
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, RECORD_FIELDS, UNREADABLE, InspectionRecord, Prediction, utc_now
from nfad.report.card import changed
from nfad.report.overlays import picture_name, pictures_in
from nfad.report.page import Page, about
from nfad.report.pictures import SIDE, bounded, full_at, save_png, triptych
from nfad.system.files import inert, ready_folder, replacing, sha256_of, strict_json, writing
from nfad.system.progress import Skip
from nfad.vision.pixels import eight_bits, find_images, load_part

MOST_UNDERWAY = 256  # images read ahead of the verdicts; more than any batch


@dataclass
class Summary:
    """What came of a run, by verdict; `failed` names the images that could not be read and why."""

    verdicts: Counter[str] = field(default_factory=Counter)
    verdict_changed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def judged(self) -> int:
        return self.verdicts[NORMAL] + self.verdicts[ANOMALOUS]

    @property
    def not_judged(self) -> int:
        return self.verdicts[NOT_JUDGED]


@dataclass(frozen=True)
class Entry:
    """One image's record and, where it could be read, what its pictures are made of."""

    record: InspectionRecord
    name: Path  # in the output, unlike any other
    prediction: Prediction | None = None
    photo: np.ndarray | None = None  # small enough to show; None if no pictures are wanted


@dataclass
class _Taken:
    """An image that is read and not yet judged."""

    path: Path
    name: Path
    sha256: str = ""
    photo: np.ndarray | None = None
    unreadable: str = ""  # why, if it is
    failed: str = ""  # why the model has no verdict on it, if it failed


def expand(inputs: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Folders are walked, files are taken as they are: (image, its name in the output), no two names alike."""
    used: set[str] = set()
    for given in dict.fromkeys(inputs):
        place = given.resolve()
        # A file's overlay has one suffix more, so it is that which must not meet a folder's name.
        suffix = ".png" if given.is_file() else ""
        label, count = place.name, 1
        while label + suffix in used:
            count += 1
            label = f"{place.stem}-{count}{place.suffix}"
        used.add(label + suffix)
        try:
            found = list(find_images(given))
        except OSError as error:
            raise NfadError(f"{given} cannot be listed: {error.strerror or error}") from error
        for path in found:
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

    `name` is the model's in the records. `on_record` is told of every image, `skip` also of those that
    cannot be read. A run that fails leaves the results of an earlier one as they were; one that does not takes their
    place, overlays included.
    """
    summary = Summary()
    with ExitStack() as stack:
        add = stack.enter_context(results_in(ready_folder(out), model, overlays)) if out else None
        for entry in entries(model, name, inputs, photos=out is not None):
            record = entry.record
            summary.verdicts[record.verdict] += 1
            if not record.is_readable:
                summary.failed.append((record.image, record.explanation))
                if skip:
                    skip(record.image, record.explanation)
            elif entry.prediction is not None:
                summary.verdict_changed += changed(entry.prediction)
            if on_record:
                on_record(record)
            if add:
                add(entry)
    return summary


def entries(model: Model, name: str, inputs: Iterable[Path], photos: bool = True) -> Iterator[Entry]:
    """Every image in order, each decoded once, in memory that does not grow with their number."""
    places = expand(inputs)
    underway: deque[_Taken] = deque()  # ahead of the verdicts by a batch at most, and what is unreadable among it
    count, spent, since = 0, 0.0, time.perf_counter()  # seconds of those under way, and of the clock

    def pixels() -> Iterator[np.ndarray]:
        for path, label in places:
            taken = _Taken(path, label)
            underway.append(taken)
            try:
                image = load_part(path)
                taken.sha256 = sha256_of(path)
            except NfadError as error:
                taken.unreadable = str(error)
            except OSError as error:  # gone since it was decoded
                taken.unreadable = f"{path} cannot be read: {error.strerror or error}"
            else:
                taken.photo = bounded(eight_bits(image), SIDE) if photos else None
                yield image
                continue
            if len(underway) >= MOST_UNDERWAY:
                return  # many that cannot be read, one after the other: what waits is handed out first

    def refuse(_: object, reason: str) -> None:
        """What the model cannot take is the image it was given last."""
        underway[-1].unreadable = reason.replace("the array", str(underway[-1].path))

    def finished(prediction: Prediction | None = None) -> Entry:
        nonlocal count, spent, since
        now = time.perf_counter()
        spent, since = spent + now - since, now
        # A batch is read and judged as one: every image has an equal share of the time that it took. An export judges
        # one by one, and reads the next meanwhile.
        share = spent / min(len(underway), 1 if model.exported else model.config.at_once)
        spent -= share
        taken, count = underway.popleft(), count + 1
        moment, milliseconds = utc_now(), round(1000 * share, 1)
        if prediction is None:
            record = InspectionRecord(
                id=str(count), time=moment, image=str(taken.path), sha256=taken.sha256 if taken.failed else "",
                model=name, model_sha256=model.sha256, verdict=NOT_JUDGED if taken.failed else UNREADABLE,
                explanation=taken.failed or taken.unreadable, milliseconds=milliseconds,
            )  # fmt: skip
            return Entry(record, taken.name)
        prediction = replace(prediction, source=str(taken.path))
        record = InspectionRecord.of(
            prediction, id=str(count), time=moment, image=str(taken.path), sha256=taken.sha256, model=name,
            model_sha256=model.sha256, false_alarm_rate=model.false_alarm_rate, milliseconds=milliseconds,
        )  # fmt: skip
        return Entry(record, taken.name, prediction, taken.photo)

    def alone(taken: _Taken) -> Prediction | None:
        """Judged by itself, because a model failed on it or on one beside it."""
        try:
            if not taken.unreadable:
                image = load_part(taken.path)
                taken.sha256 = sha256_of(taken.path)
                taken.photo = bounded(eight_bits(image), SIDE) if photos else None
                [prediction] = model.predict_stream([image], prefetch=False)
                return prediction
        except NfadError as error:
            taken.unreadable = str(error).replace("the array", str(taken.path))
        except OSError as error:
            taken.unreadable = f"{taken.path} cannot be read: {error.strerror or error}"
        except Exception as error:
            taken.failed = why_failed(error)
        return None

    def in_order() -> Iterator[Entry]:
        while True:
            failed = False
            try:
                for prediction in model.predict_stream(pixels(), refuse, prefetch=True):
                    while underway[0].unreadable:
                        yield finished()
                    yield finished(prediction)
            except NfadError:
                raise
            except Exception:  # a backend's own, on one of those under way: the others are judged all the same
                if not underway:
                    raise
                failed = True
            if not underway:
                return
            while underway:
                yield finished(alone(underway[0]) if failed else None)

    for entry in in_order():
        yield entry
        since = time.perf_counter()  # what whoever takes the entries does with them is not the model's


@contextmanager
def results_in(folder: Path, model: Model, overlays: bool) -> Iterator[Callable[[Entry], None]]:
    """results.csv, results.jsonl, overlays/ and index.html in a folder, from the entries that are added.

    They take their names when the block ends well; if it does not, older ones are as they were.
    """
    scale = full_at(model.threshold)
    with ExitStack() as stack:
        # Left in the reverse of this order: the page needs the most room, so nothing has its name before it is written.
        table = stack.enter_context(replacing(folder / "results.csv"))
        lines = stack.enter_context(replacing(folder / "results.jsonl"))
        pictures = stack.enter_context(pictures_in(folder / "overlays"))
        page = stack.enter_context(Page(folder / "index.html", "Inspection", about(model).items(), scale))
        writer = csv.writer(_Text(table))
        writer.writerow(RECORD_FIELDS)

        def add(entry: Entry) -> None:
            record, families = entry.record.as_dict(), entry.record.nuisance_by_family
            cells = record | {"nuisance_by_family": json.dumps(families) if families else ""}
            writer.writerow(map(inert, cells.values()))
            # A name that is no UTF-8 holds lone surrogates; `backslashreplace` writes them as JSON's own escapes.
            lines.write(strict_json(record).encode("utf-8", "backslashreplace") + b"\n")
            if entry.prediction is None or entry.photo is None:
                page.add_failure(entry.record.image, entry.record.explanation, readable=entry.record.is_readable)
                return
            page.add(entry.photo, entry.prediction)
            if overlays:
                target = pictures / entry.name.with_name(picture_name(entry.name))
                with writing(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                save_png(triptych(entry.photo, entry.prediction, scale), target)

        yield add
        table.flush()  # a full disk is told of here
        lines.flush()


class _Text:
    """What csv writes to, as bytes; a name that is no UTF-8 stays as it was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode("utf-8", "surrogateescape"))
