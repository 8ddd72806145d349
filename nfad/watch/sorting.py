"""Parts into folders by verdict, the bad ones with a picture that shows where."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, Prediction
from nfad.report.pictures import full_at, save_png, triptych
from nfad.system.files import ready_folder, replacing
from nfad.vision.pixels import photo_of
from nfad.watch.delivering import Refused
from nfad.watch.record import UNREADABLE, Judgement, as_path

WAYS = ("copy", "link", "move")


class Sorter:
    """Puts each part into good/ or bad/ as NAME-ID.SUFFIX: the id makes names unique and leads to the ledger's row.

    To do it twice does it once, so a crash between the files and the ledger costs nothing. Nothing is ever
    overwritten, and what cannot be read stays where it is: it may yet be finished.
    """

    def __init__(self, folder: Path, way: str, watched: Path) -> None:
        self.folder, self.name = ready_folder(folder).resolve(), f"{way}:{folder.resolve()}"
        self.way, self._watched = way, watched.resolve()
        if way not in WAYS:
            raise NfadError(f"parts are sorted by {', '.join(WAYS)}; got {way!r}")
        if self.folder == self._watched:
            raise NfadError(f"{folder} is the watched folder; sort into another one")
        if way == "link" and self.folder.stat().st_dev != self._watched.stat().st_dev:
            raise NfadError(f"{folder} is on another disk than {watched}, where no link can lead; use copy:{folder}")

    def file(self, row: Judgement, prediction_of: Callable[[Judgement], Prediction | None]) -> None:
        """Put one part into its place; `prediction_of` gives its maps where they can be had."""
        if row.verdict == UNREADABLE:
            return
        source = self._watched / as_path(row.path)
        target = self._free(row)
        if target is not None:
            if not _is(source, row):
                raise Refused("it was gone, or another part had its name, before it could be filed")
            target.parent.mkdir(parents=True, exist_ok=True)
            picture = target.with_suffix(".overlay.png")
            prediction = prediction_of(row) if row.verdict == ANOMALOUS else None
            try:
                if prediction is not None:  # first, because the part in its place says that all is done
                    save_png(_picture(source, prediction), picture)
                self._place(source, target)
                if not _is(target, row):
                    raise Refused("another part took its name while it was filed")
            except Refused:
                target.unlink(missing_ok=True)
                picture.unlink(missing_ok=True)
                raise
            _sync(target.parent)
        if self.way == "move" and _is(source, row):
            source.unlink()

    def _place(self, source: Path, target: Path) -> None:
        if self.way == "link":
            os.link(source, target)
            return
        with source.open("rb") as original, replacing(target) as copy:
            shutil.copyfileobj(original, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())

    def _free(self, row: Judgement) -> Path | None:
        """A name that is not taken; None if this very part has its place already."""
        name = as_path(row.path)
        folder = self.folder / ("bad" if row.verdict == ANOMALOUS else "good") / name.parent
        for number in count(1):
            again = "" if number == 1 else f"-{number}"
            target = folder / f"{name.stem}-{row.id:06}{again}{name.suffix}"
            if not target.exists():
                return target
            if _is(target, row):
                return None
        raise AssertionError


def digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _picture(path: Path, prediction: Prediction) -> np.ndarray:
    """Where the part is bad."""
    return triptych(photo_of(path), prediction, full_at(prediction.threshold))


def _is(path: Path, row: Judgement) -> bool:
    """Cameras use names again: whether this is the part that was judged."""
    try:
        return digest(path) == row.sha256
    except FileNotFoundError:
        return False


def _sync(folder: Path) -> None:
    """Make a new name last through a power cut; Windows does so by itself and opens no folders."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
