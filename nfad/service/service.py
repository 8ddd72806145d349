"""Everything the service is made of, put together in one place; and the thread that tidies up every minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from nfad.service.access import Access, session_key
from nfad.service.clock import CautiousClock
from nfad.service.errors import ApiError
from nfad.service.metrics import Metrics
from nfad.service.models import Load, ServedModel, model_paths, note_models
from nfad.service.pictures import PictureStore
from nfad.service.record import Ids
from nfad.service.settings import Retention, Settings
from nfad.service.store import Store
from nfad.system.platform import return_freed_memory

log = logging.getLogger("nfad.service")
TIDY_SECONDS = 60.0  # between two runs


@dataclass(frozen=True)
class Service:
    settings: Settings
    store: Store
    pictures: PictureStore
    metrics: Metrics
    models: dict[str, ServedModel]
    access: Access
    clock: CautiousClock = field(default_factory=CautiousClock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _tidying: threading.Lock = field(default_factory=threading.Lock)

    def model(self, name: str | None) -> ServedModel:
        """The model of that name; without a name, the only one there is."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            raise ApiError(400, f"say which model: ?model= one of {', '.join(self.models)}")
        if name not in self.models:
            raise ApiError(404, f"there is no model of that name; there are {', '.join(self.models)}")
        return self.models[name]

    def start(self) -> None:
        threading.Thread(target=self._tidy, args=(self.settings.retention,), name="tidy", daemon=True).start()

    def close(self) -> None:
        """Finish what is waiting, then close the database and release the folder."""
        self._stop.set()
        for model in self.models.values():
            model.queue.close()
        with self._tidying:  # no picture is gone whose row still has it
            self.store.close()
            self.pictures.close()

    def _tidy(self, retention: Retention | None) -> None:
        """Remove old pictures, and give back the memory that is free."""
        while not self._stop.is_set():
            with self._tidying:
                if retention is not None and not self._stop.is_set():
                    try:
                        apply_retention(self.store, self.pictures, retention, self.clock.now())
                    except Exception:
                        log.exception("old pictures could not be removed")
            return_freed_memory()
            self._stop.wait(TIDY_SECONDS)


def open_service(settings: Settings, models: Sequence[str | Path], load: Load) -> Service:
    """The one place where the parts meet; a model (PATH or NAME=PATH) that cannot be loaded leaves nothing behind."""
    paths = model_paths(models)
    found = {name: load(path) for name, path in paths.items()}
    with ExitStack() as undo:
        pictures = PictureStore(settings.data, settings.least_free)
        undo.callback(pictures.close)
        store = Store(settings.database)
        undo.callback(store.close)
        pictures.bind_to(store.identity)
        pictures.sweep(store.known)
        access = Access(store.engine, settings.token, session_key(settings.data))
        newest, metrics = store.newest(), Metrics()
        ids = Ids(newest and newest.id)
        metrics.free.set_function(pictures.free)
        metrics.least_free.set(settings.least_free)
        metrics.database.set_function(lambda: float(store.answers()))
        served = {
            name: ServedModel(
                name, model, store, pictures, metrics, ids, places=settings.places, silent_after=settings.silent_after
            )
            for name, model in found.items()
        }
        for name, model in found.items():
            store.note_model(name, model.sha256)
        note_models(settings.data, paths, found)
        undo.pop_all()
    clock = CautiousClock(datetime.fromisoformat(newest.time) if newest else None)
    return Service(settings, store, pictures, metrics, served, access, clock)


def apply_retention(store: Store, pictures: PictureStore, retention: Retention, now: datetime) -> int:
    """Remove pictures that need no longer be kept; returns of how many inspections.

    Files first: if it is interrupted, the next run finds the same rows and goes on.
    """
    beyond = retention.count or 0
    until = None if retention.days is None else now - timedelta(days=retention.days)
    removed = 0
    while ids := store.with_pictures(beyond=beyond, until=until):
        for id in ids:
            pictures.remove(id)
        store.mark_pictures_removed(ids)
        removed += len(ids)
    if removed:
        pictures.remove_empty_days()
    return removed
