"""Photos and maps on disk: one folder per inspection, named by its id alone, that appears whole or not at all."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.report.pictures import bounded
from nfad.service.errors import ApiError
from nfad.service.record import time_of
from nfad.system.files import locked, ready_folder, replacing, sync_folder
from nfad.vision.pixels import eight_bits, load_part

log = logging.getLogger("nfad.service")
PHOTO_SIDE, THUMBNAIL_SIDE = 1600, 256
THUMBNAIL, MAPS = "thumbnail.jpg", "maps.tif"
COARSER = 2  # maps are smooth: at half the view's resolution they lose less than a hundredth of their range
LOW, SPAN = -8.0, 128.0  # z-scores that 16 bits hold, in steps of 0.002; colours are full long before the end
SYNC_THREADS = 8
RECENT_DAYS = 2  # looked through at a start for what a crash has left


@dataclass(frozen=True)
class Pictures:
    """What is stored beside the upload itself, encoded; larger pictures are drawn when they are asked for."""

    thumbnail: bytes
    maps: bytes


def encode_pictures(thumbnail: np.ndarray, prediction: Prediction) -> Pictures:
    """A thumbnail, and a prediction's maps one below the other: `map`, `detection_map` if there is one, the
    unfiltered map."""
    maps = [prediction.map, prediction.detection_map, prediction.unfiltered_map]
    coarse = [np.asarray(Image.fromarray(each).reduce(COARSER)) for each in maps if each is not None]
    return Pictures(_encode(thumbnail, "JPEG", quality=80), _encode(raw(np.concatenate(coarse)), "TIFF"))


def for_display(pixels: np.ndarray, side: int) -> np.ndarray:
    """A photo of 8 or 16 bits in 8 bits, its longest side at most `side`."""
    return bounded(eight_bits(pixels), side)


@dataclass(frozen=True)
class Entry:
    """An upload to be stored under an id."""

    id: str
    upload: Path
    suffix: str
    pictures: Pictures


class PictureStore:
    """The data folder; for one process at a time."""

    def __init__(self, root: Path, least_free: int = 0) -> None:
        self.root, self._least_free = ready_folder(root), least_free
        self._incoming, self._pictures = self.root / "incoming", self.root / "pictures"
        self._quarantine = self.root / "quarantine"  # nothing of it is ever removed by us
        self._held = ExitStack()
        taken = f"another `nfad serve` uses {root}; stop it or name another folder (--data)"
        self._held.enter_context(locked(self.root / "lock", taken))
        self._syncing = self._held.enter_context(ThreadPoolExecutor(SYNC_THREADS, "syncing"))
        # One thread draws for all: a whole photo takes much memory, and a thread keeps for itself what it has freed.
        self._drawing = self._held.enter_context(ThreadPoolExecutor(1, "drawing"))
        shutil.rmtree(self._incoming, ignore_errors=True)  # uploads that were under way when the last process ended
        for folder in (self._incoming, self._pictures):
            folder.mkdir(exist_ok=True)

    def close(self) -> None:
        self._held.close()

    def bind_to(self, database: str) -> None:
        """Tie the folder to one database: `sweep` would set aside the pictures of inspections another does not have."""
        note = self.root / "database"
        if not note.exists():
            with replacing(note) as file:
                file.write(database.encode())
        if note.read_text(encoding="utf-8") != database:
            raise NfadError(
                f"{self.root} holds the pictures of another database; name the one it was used with (--db), "
                "or another folder (--data)"
            )

    def sweep(self, known: Callable[[Iterable[str]], set[str]]) -> None:
        """Set aside pictures whose inspection the database does not have; `known` tells those that it has.

        A crash leaves a few, which were never answered; an older database that was restored, all since then.
        """
        for day in sorted(self._pictures.iterdir())[-RECENT_DAYS:]:
            found = {folder.name for folder in day.iterdir()}
            strange = found - known(found)
            for id in strange:
                self._quarantine.mkdir(exist_ok=True)
                os.replace(day / id, self._quarantine / id)
            if strange:
                log.warning(
                    "the pictures of %d inspections of %s are not in the database; they were moved to %s",
                    len(strange), day.name, self._quarantine,
                )  # fmt: skip

    def free(self) -> int:
        """Bytes free on the disk."""
        return shutil.disk_usage(self.root).free

    def check_room(self, size: int = 0) -> None:
        """Refuse an upload of that size if it would leave less free than the service needs to run."""
        if self.free() - size < self._least_free:
            raise ApiError(507, "the disk of the service is full; free some space or start it with --keep")

    def new_upload(self) -> Path:
        return self._incoming / secrets.token_hex(8)

    def put(self, entries: Sequence[Entry]) -> None:
        """Move uploads here with their pictures, all or none; they are synced to disk when this returns."""
        written = [self._incoming / f"{entry.id}.parts" for entry in entries]
        places = [self._folder(entry.id) for entry in entries]
        try:
            files = [path for entry, folder in zip(entries, written, strict=True) for path in _write(folder, entry)]
            # In parallel: a disk syncs ten files in little more time than one.
            list(self._syncing.map(_sync_file, files))
            list(self._syncing.map(sync_folder, written))
            days = {place.parent for place in places}
            for day in days:
                if not day.exists():
                    day.mkdir()
                    sync_folder(self._pictures)
            for folder, place in zip(written, places, strict=True):
                os.replace(folder, place)
            for day in days:
                sync_folder(day)
        except OSError as error:
            for folder in (*written, *places):
                shutil.rmtree(folder, ignore_errors=True)
            raise ApiError(507, f"the pictures cannot be kept: {error.strerror}; is the disk full?") from error

    def path(self, id: str, name: str) -> Path | None:
        """One of the files of an inspection, if it is still there."""
        path = self._folder(id) / name
        return path if path.is_file() else None

    def photo(self, id: str, suffix: str) -> np.ndarray | None:
        """The upload as it is shown, upright and at most PHOTO_SIDE a side."""
        path = self.path(id, f"original{suffix}")
        if path is None:
            return None
        return self._drawing.submit(lambda: for_display(load_part(path), PHOTO_SIDE)).result()

    def map(self, id: str, name: str) -> np.ndarray | None:
        """One of the z-score maps of the model's view."""
        path = self.path(id, MAPS)
        if path is None:
            return None
        with Image.open(path) as opened:
            values = np.asarray(opened, dtype=np.float32)
        maps = np.split(values, round(values.shape[0] / values.shape[1]))  # a view is square
        # Where two maps are stored, the first is the detection map as well.
        index = {"map": 0, "detection_map": len(maps) - 2, "unfiltered_map": len(maps) - 1}[name]
        return maps[index] * (SPAN / 65535) + LOW

    def remove(self, id: str) -> None:
        shutil.rmtree(self._folder(id), ignore_errors=True)

    def remove_empty_days(self) -> None:
        for day in sorted(self._pictures.iterdir())[:-1]:
            if not any(day.iterdir()):
                day.rmdir()

    def _folder(self, id: str) -> Path:
        return folder_of(self.root, id)


def folder_of(root: Path, id: str) -> Path:
    """Where the pictures of an inspection are, below the data folder."""
    return root / "pictures" / f"{time_of(id):%Y-%m-%d}" / id


def file_names(suffix: str) -> tuple[str, str, str]:
    """Of every inspection's pictures; `suffix` is the original's."""
    return THUMBNAIL, MAPS, f"original{suffix}"


def png(values: np.ndarray) -> bytes:
    return _encode(values, "PNG", compress_level=1)


def raw(view: np.ndarray) -> np.ndarray:
    """A map as the 16-bit values it is stored in."""
    known = np.nan_to_num(view, posinf=LOW + SPAN, neginf=LOW)
    return np.rint((known - LOW) * (65535 / SPAN)).clip(0, 65535).astype(np.uint16)


def jpeg(values: np.ndarray) -> bytes:
    return _encode(values, "JPEG", quality=90)


def _encode(values: np.ndarray, kind: str, **options: int) -> bytes:
    buffer = BytesIO()
    Image.fromarray(values).save(buffer, kind, **options)
    return buffer.getvalue()


def _write(folder: Path, entry: Entry) -> list[Path]:
    """Write an entry's files, not yet synced, into a new folder."""
    folder.mkdir()
    thumbnail, maps, original = file_names(entry.suffix)
    (folder / thumbnail).write_bytes(entry.pictures.thumbnail)
    (folder / maps).write_bytes(entry.pictures.maps)
    os.replace(entry.upload, folder / original)
    return list(folder.iterdir())


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
