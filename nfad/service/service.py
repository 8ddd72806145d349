"""Everything the service is made of, put together in one place, and its tidying thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nfad.service.metrics import Metrics
from nfad.service.models import Load, ServedModel, load_models
from nfad.service.refusal import Refused
from nfad.service.settings import Keep, Settings
from nfad.service.shelf import Shelf
from nfad.service.store import Store

log = logging.getLogger("nfad.service")
TIDY_SECONDS = 60.0


@dataclass(frozen=True)
class Service:
    settings: Settings
    store: Store
    shelf: Shelf
    metrics: Metrics
    models: dict[str, ServedModel]
    _stop: threading.Event = field(default_factory=threading.Event)

    def model(self, name: str | None) -> ServedModel:
        """The model of that name; the only one there is, without one."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            raise Refused(400, f"say which model: ?model= one of {', '.join(self.models)}")
        if name not in self.models:
            raise Refused(404, f"there is no model of that name; there are {', '.join(self.models)}")
        return self.models[name]

    def start(self) -> None:
        if self.settings.keep is not None:
            threading.Thread(target=self._tidy_all, name="tidying", daemon=True).start()

    def close(self) -> None:
        """Finish what is waiting, then let go of the database and the folder."""
        self._stop.set()
        for model in self.models.values():
            model.queue.close()
        self.store.close()
        self.shelf.close()

    def _tidy_all(self) -> None:
        while not self._stop.is_set():
            try:
                tidy(self.store, self.shelf, self.settings.keep, datetime.now(UTC))
            except Exception:
                log.exception("old pictures could not be removed")
            self._stop.wait(TIDY_SECONDS)


def open_service(settings: Settings, models: Sequence[str | Path], load: Load) -> Service:
    """The one place where the parts meet; a model (PATH or NAME=PATH) that cannot be loaded leaves nothing behind."""
    found = load_models(models, load)
    with ExitStack() as undo:
        shelf = Shelf(settings.data, settings.least_free)
        undo.callback(shelf.close)
        store = Store(settings.database)
        undo.callback(store.close)
        shelf.belong_to(store.identity)
        shelf.sweep(store.known)
        metrics = Metrics()
        metrics.free.set_function(shelf.free)
        loaded = {
            name: ServedModel(name, model, store, shelf, metrics, settings.places) for name, model in found.items()
        }
        undo.pop_all()
    return Service(settings, store, shelf, metrics, loaded)


def tidy(store: Store, shelf: Shelf, keep: Keep, now: datetime) -> int:
    """Remove pictures that need not be kept; says of how many inspections.

    Files first: if it is cut short, the next time finds the same rows and goes on.
    """
    which = {"beyond": keep.count} if keep.days is None else {"until": now - timedelta(days=keep.days)}
    removed = 0
    while ids := store.with_pictures(**which):
        for id in ids:
            shelf.remove(id)
        store.pictures_gone(ids)
        removed += len(ids)
    if removed:
        shelf.remove_empty_days()
    return removed
