"""The models being served: each with its queue, its false-alarm rate and its drift monitor."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from nfad.drift.camera import of_a_stopped_camera
from nfad.drift.state import CAMERA, FROZEN
from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, InspectionRecord
from nfad.report.pictures import full_at
from nfad.service.changes import SERVICE
from nfad.service.errors import ApiError
from nfad.service.metrics import Metrics
from nfad.service.monitor import REPLAYED, Monitor
from nfad.service.pictures import Entry, PictureStore, encode_pictures
from nfad.service.queue import Queue, Result
from nfad.service.record import Ids, Inspection, iso, view_of
from nfad.service.store import Store
from nfad.system.files import replacing, sha256_of

log = logging.getLogger("nfad.service")
Load = Callable[[Path], Model]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NOTE, METADATA = "models.json", "model.json"  # ours in the data folder, and that of an export
RULE = "up to 64 of A-Z a-z 0-9 . _ -, none of . - first"


class ServedModel:
    """One model under a name. `model` is replaced as a whole when the false-alarm rate is changed."""

    def __init__(
        self,
        name: str,
        model: Model,
        store: Store,
        pictures: PictureStore,
        metrics: Metrics,
        ids: Ids,
        *,
        places: int,
        silent_after: float | None = None,
    ) -> None:
        self.name, self.sha256, self._silent_after = name, model.sha256, silent_after
        self._store, self._pictures, self._metrics, self._ids = store, pictures, metrics, ids
        self._changing = threading.Lock()  # rate, model and monitor together; nothing is kept meanwhile
        rate = store.rate(name)
        self.note = None if rate is None else rate_note(name, model, rate)  # for whoever starts the service
        self.model: Model = model if rate is None else model.at_rate(rate)
        self.monitor = self._replayed_monitor()
        self.queue = Queue(name, lambda: self.model, self.keep, places, model.config.batch)
        for verdict in (NORMAL, ANOMALOUS, NOT_JUDGED):
            metrics.inspections.labels(name, verdict)  # from the start, so that an alert finds a zero and not nothing
        metrics.places.labels(name).set(places)
        metrics.waiting.labels(name).set_function(lambda: self.queue.waiting)
        metrics.drift.labels(name).set_function(lambda: float(self.monitor.state().alarm))
        metrics.frozen.labels(name).set_function(lambda: float(self.monitor.camera()[0] == FROZEN))
        for state in CAMERA:
            metrics.camera.labels(name, state).set_function(
                lambda state=state: float(self.monitor.camera()[0] == state)
            )

    def set_rate(self, rate: float, who: str = SERVICE) -> None:
        """Set the false-alarm rate from the next image on, also after a restart."""
        self.check_rate(rate)
        with self._changing:
            model = self.model.at_rate(rate)
            self._store.set_rate(self.name, rate, who, self.model.false_alarm_rate)
            self.model = model
            self.monitor = self._replayed_monitor()

    def check_rate(self, rate: float) -> None:
        """Refuse a rate that the held-out normals cannot support."""
        held_out = self.model.held_out
        if rate < held_out.smallest_rate:
            raise ApiError(
                422,
                f"the {held_out.count} held-out normals of {self.name} support a false-alarm rate of "
                f"{held_out.smallest_rate:.3g} at the least; got {rate:g}: accept a higher one or fit on more images",
            )

    def keep(self, results: Sequence[Result]) -> list[Inspection]:
        """Write the pictures, then all rows in one transaction: whatever has a row has its pictures."""
        results = self._with_stopped(results)
        inspections, since = [self._inspection(each) for each in results], time.perf_counter()
        self._pictures.put(
            [
                Entry(
                    inspection.id,
                    each.ticket.upload.path,
                    inspection.suffix,
                    encode_pictures(each.thumbnail, each.prediction),
                )
                for inspection, each in zip(inspections, results, strict=True)
            ]
        )
        with self._changing:
            try:
                self._store.add(inspections)
            except SQLAlchemyError as error:
                log.error("inspections were not kept: %s", getattr(error, "orig", error))
                for inspection in inspections:
                    self._pictures.remove(inspection.id)
                raise ApiError(503, "the database does not answer; send the image again", retry_after=5) from None
            for each, inspection in zip(results, inspections, strict=True):
                self.monitor.update(inspection, each.frame)
        now = time.perf_counter()
        if results:
            self._metrics.commit.observe(now - since)
        for each, inspection in zip(results, inspections, strict=True):
            self._metrics.inspections.labels(self.name, inspection.verdict).inc()
            self._metrics.seconds.labels(self.name).observe(now - each.ticket.since)
        return inspections

    def _with_stopped(self, results: Sequence[Result]) -> list[Result]:
        """None of them judged whose photo shows that the camera has stopped."""
        stopped = self.monitor.stopped_at((each.ticket.upload.sha256, each.frame) for each in results)
        return [
            replace(each, prediction=of_a_stopped_camera(each.prediction)) if is_stopped else each
            for each, is_stopped in zip(results, stopped, strict=True)
        ]

    def _replayed_monitor(self) -> Monitor:
        past = self._store.latest(self.name, self.sha256, REPLAYED)
        return Monitor(self.model, past, self._silent_after)

    def _inspection(self, result: Result) -> Inspection:
        prediction, upload, now = result.prediction, result.ticket.upload, datetime.now(UTC)
        id = self._ids.next(now)
        record = InspectionRecord.of(
            prediction,
            id=id,
            time=iso(now),
            image=upload.image,
            sha256=upload.sha256,
            model=self.name,
            model_sha256=self.sha256,
            false_alarm_rate=result.model.false_alarm_rate,
            milliseconds=result.milliseconds,
        )
        geometry = prediction.geometry
        assert geometry is not None  # every prediction of a photo has one
        return Inspection(
            **record.as_dict(),
            suffix=upload.suffix,
            width=geometry.width,
            height=geometry.height,
            scale=full_at(result.model.threshold),
            view=view_of(geometry),
        )


@dataclass(frozen=True)
class Noted:
    """Where a model that is served was loaded from: a backup holds it too."""

    name: str
    path: Path
    sha256: str

    def has_changed(self) -> bool:
        file = self.path / METADATA if self.path.is_dir() else self.path
        return not file.is_file() or sha256_of(file) != self.sha256


def note_models(data: Path, paths: Mapping[str, Path], models: Mapping[str, Model]) -> None:
    """Leave in the data folder which models it is used with."""
    notes = {name: {"path": str(paths[name].resolve()), "sha256": model.sha256} for name, model in models.items()}
    with replacing(data / NOTE) as file:
        file.write(json.dumps(notes, indent=2).encode())


def models_noted(data: Path) -> list[Noted]:
    try:
        notes = json.loads((data / NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [Noted(name, Path(note["path"]), note["sha256"]) for name, note in notes.items()]


def model_paths(models: Sequence[str | Path]) -> dict[str, Path]:
    """By name."""
    paths: dict[str, Path] = {}
    for given in models:
        name, path = named(str(given))
        if name in paths:
            raise NfadError(f"two models are called {name}; give {path} another name: NAME={path}")
        paths[name] = path
    return paths


def named(given: str) -> tuple[str, Path]:
    """A model's name and path from NAME=PATH, or from a path alone, whose last part without its suffix is the name.

    What exists is taken as a path, even with a `=` in it, and so is what has a folder before its first `=`.
    """
    name, separator, place = given.partition("=")
    if not separator or os.path.exists(given) or {"/", os.sep} & set(name):
        path = Path(given)
        if not NAME.fullmatch(path.stem):
            raise NfadError(f"{path.stem!r} cannot be a model's name ({RULE}); rename {path} or write NAME={path}")
        return path.stem, path
    if not NAME.fullmatch(name):
        raise NfadError(f"{given} does not exist, and {name!r} cannot be a model's name ({RULE}); choose another")
    if not place:
        raise NfadError(f"{given} names no file; write {name}=PATH")
    return name, Path(os.path.expanduser(place))  # shells leave a ~ after = alone


def rate_note(name: str, model: Model, rate: float) -> str | None:
    """A note for the start where the rate that was set for a name is not the one of the model file now given to it."""
    least, own = model.held_out.smallest_rate, model.false_alarm_rate
    if rate < least:
        return (
            f"{name} was set to a false-alarm rate of {rate:g}, but the {model.held_out.count} held-out "
            f"normals of its file support {least:.3g} at the least and it judges at that; fit on more images for less"
        )
    if rate == own:
        return None
    return f"{name} judges at the false-alarm rate of {rate:g} it was set to, not at its file's {own:.3g}"


def thresholds(model: Model, rates: Sequence[float] = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)) -> dict[float, float]:
    """By rate: those of the usual rates that the held-out normals support, the smallest they do, the one in use. Of
    rates with one and the same threshold, the one in use or else the smallest is told."""
    held_out = model.held_out
    wanted = {held_out.smallest_rate, *(r for r in rates if r > held_out.smallest_rate)} - {model.false_alarm_rate}
    told: dict[float, float] = {}
    for rate in (model.false_alarm_rate, *sorted(wanted)):
        threshold = held_out.at(rate)[0]
        if threshold not in told.values():
            told[rate] = threshold
    return dict(sorted(told.items()))
