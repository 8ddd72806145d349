"""Photos and maps on disk: a folder an inspection, named by its id alone, that appears whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.report.pictures import bounded
from nfad.service.record import time_of
from nfad.service.refusal import Refused
from nfad.system.files import ready_folder, replacing
from nfad.vision.pixels import eight_bits, load_part

MAPS = ("map", "detection_map", "unfiltered_map")
PHOTO_SIDE, THUMBNAIL_SIDE = 1600, 256
COARSER = 2  # maps are smooth: at half the view's resolution they lose less than a hundredth of their range
LOW, SPAN = -8.0, 128.0  # z-scores that 16 bits hold, in steps of 0.002; colours are full long before the end
SYNCS = 8  # files synced at once
RECENT = 2  # days of pictures looked through at a start for what a crash has left


@dataclass(frozen=True)
class Pictures:
    """What is kept of a judged image beside the upload itself, encoded; larger pictures are drawn when asked for."""

    thumbnail: bytes
    maps: bytes


def drawn(thumbnail: np.ndarray, prediction: Prediction) -> Pictures:
    """Encode a thumbnail and a prediction's maps, one below the other."""
    maps = [each for name in MAPS if (each := getattr(prediction, name)) is not None]
    coarse = [np.asarray(Image.fromarray(each).reduce(COARSER)) for each in maps]
    return Pictures(_encoded(thumbnail, "JPEG", quality=80), _encoded(raw(np.concatenate(coarse)), "TIFF"))


def shown(pixels: np.ndarray, side: int) -> np.ndarray:
    """A photo of 8 or 16 bits as people see it, its longest side bounded."""
    return bounded(eight_bits(pixels), side)


@dataclass(frozen=True)
class Entry:
    """An upload to be kept under an id."""

    id: str
    upload: Path
    suffix: str
    pictures: Pictures


class Shelf:
    """The data folder; for one process at a time."""

    def __init__(self, root: Path, least_free: int = 0) -> None:
        self.root, self._least_free = ready_folder(root), least_free
        self._incoming, self._pictures = self.root / "incoming", self.root / "pictures"
        self._lock, self._threads = _lock(self.root), ThreadPoolExecutor(SYNCS, "syncing")
        # However many ask, one whole photo is in memory, and in one thread's: each keeps for itself what it has freed.
        self._drawing = ThreadPoolExecutor(1, "drawing")
        shutil.rmtree(self._incoming, ignore_errors=True)  # what was under way when the last process ended
        for folder in (self._incoming, self._pictures):
            folder.mkdir(exist_ok=True)

    def close(self) -> None:
        self._threads.shutdown()
        self._drawing.shutdown()
        self._lock.close()

    def belong_to(self, store: str) -> None:
        """Tie the folder to one database: what another one does not know of would be taken for litter."""
        note = self.root / "database"
        if not note.exists():
            with replacing(note) as file:
                file.write(store.encode())
        if note.read_text(encoding="utf-8") != store:
            raise NfadError(
                f"{self.root} holds the pictures of another database; name the one it was used with (--db), "
                "or another folder (--data)"
            )

    def sweep(self, known: Callable[[Iterable[str]], set[str]]) -> None:
        """Remove pictures that were put here but, because of a crash, never committed as an inspection."""
        for day in sorted(self._pictures.iterdir())[-RECENT:]:
            found = {folder.name for folder in day.iterdir()}
            for id in found - known(found):
                self.remove(id)

    def free(self) -> int:
        return shutil.disk_usage(self.root).free

    def check_room(self, size: int = 0) -> None:
        """Refuse while there is still room to run in."""
        if self.free() - size < self._least_free:
            raise Refused(507, "the disk of the service is full; free some space or start it with --keep")

    def new_upload(self) -> Path:
        return self._incoming / secrets.token_hex(8)

    def put(self, entries: Sequence[Entry]) -> None:
        """Move uploads here with their pictures, all or none; they are on the disk when this returns."""
        parts = [self._incoming / f"{entry.id}.parts" for entry in entries]
        places = [self._folder(entry.id) for entry in entries]
        try:
            written = [path for entry, folder in zip(entries, parts, strict=True) for path in _fill(folder, entry)]
            # Side by side: a disk syncs ten files in little more time than one.
            list(self._threads.map(_sync, [*written, *parts]))
            days = {place.parent for place in places}
            for day in days:
                if not day.exists():
                    day.mkdir()
                    _sync(self._pictures)
            for folder, place in zip(parts, places, strict=True):
                os.replace(folder, place)
            for day in days:
                _sync(day)
        except OSError as error:
            for folder in (*parts, *places):
                shutil.rmtree(folder, ignore_errors=True)
            raise Refused(507, f"the pictures cannot be kept: {error.strerror}; is the disk full?") from error

    def path(self, id: str, name: str) -> Path | None:
        """One of the files of an inspection, if it is still there."""
        path = self._folder(id) / name
        return path if path.is_file() else None

    def photo(self, id: str, suffix: str) -> np.ndarray | None:
        """The upload as it is shown, upright and at most PHOTO_SIDE a side."""
        path = self.path(id, f"original{suffix}")
        if path is None:
            return None
        return self._drawing.submit(lambda: shown(load_part(path), PHOTO_SIDE)).result()

    def map(self, id: str, name: str) -> np.ndarray | None:
        """One of the z-score maps of the model's view."""
        path = self.path(id, "maps.tif")
        if path is None:
            return None
        with Image.open(path) as opened:
            values = np.asarray(opened, dtype=np.float32)
        kept = np.split(values, round(values.shape[0] / values.shape[1]))  # a view is square
        place = {"map": 0, "detection_map": len(kept) - 2, "unfiltered_map": -1}[name]  # the first may be both
        return kept[place] * (SPAN / 65535) + LOW

    def remove(self, id: str) -> None:
        shutil.rmtree(self._folder(id), ignore_errors=True)

    def remove_empty_days(self) -> None:
        for day in sorted(self._pictures.iterdir())[:-1]:
            if not any(day.iterdir()):
                day.rmdir()

    def _folder(self, id: str) -> Path:
        return self._pictures / f"{time_of(id):%Y-%m-%d}" / id


def png(values: np.ndarray) -> bytes:
    return _encoded(values, "PNG", compress_level=1)


def raw(view: np.ndarray) -> np.ndarray:
    """A map as the 16-bit values it is kept in."""
    return np.rint((np.nan_to_num(view) - LOW) * (65535 / SPAN)).clip(0, 65535).astype(np.uint16)


def jpeg(values: np.ndarray) -> bytes:
    return _encoded(values, "JPEG", quality=90)


def _encoded(values: np.ndarray, kind: str, **options: int) -> bytes:
    buffer = BytesIO()
    Image.fromarray(values).save(buffer, kind, **options)
    return buffer.getvalue()


def _fill(folder: Path, entry: Entry) -> list[Path]:
    """Write an entry's files, not yet synced, into a new folder."""
    folder.mkdir()
    (folder / "thumbnail.jpg").write_bytes(entry.pictures.thumbnail)
    (folder / "maps.tif").write_bytes(entry.pictures.maps)
    os.replace(entry.upload, folder / f"original{entry.suffix}")
    return list(folder.iterdir())


def _sync(path: Path) -> None:
    """A file's content, or the names in a folder."""
    if os.name == "nt" and path.is_dir():  # Windows has no such thing as a synced folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(root: Path) -> sqlite3.Connection:
    """Refuse a second process; the lock is SQLite's, so that every system has it and a killed process leaves none."""
    lock = sqlite3.connect(root / "lock", timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise NfadError(f"another `nfad serve` uses {root}; stop it or name another folder (--data)") from None
    return lock
