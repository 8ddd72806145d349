"""Images into folders by verdict, all but the good ones with a picture that shows where or says why."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, Prediction
from nfad.report.pictures import full_at, save_png, triptych
from nfad.system.files import LONGEST_NAME, cut_name, ready_folder, replacing, sha256_of, sync_folder
from nfad.vision.pixels import photo_of
from nfad.watch.delivery import Refused
from nfad.watch.record import WatchRecord, as_path

PICTURE = ".overlay.png"  # longer than an image's own suffix
WAYS = ("copy", "link", "move")
FOLDERS = {NORMAL: "good", ANOMALOUS: "bad", NOT_JUDGED: "not-judged"}


class Sorter:
    """Puts each image into good/, bad/ or not-judged/ as NAME-POSITION.SUFFIX: unique, and it leads to its record.

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

    def file(self, record: WatchRecord, prediction_of: Callable[[WatchRecord], Prediction | None]) -> None:
        """Put one image into its place; `prediction_of` gives its maps where they can be had."""
        if not record.is_readable or not record.is_part:
            return
        source = self._watched / as_path(record.image)
        target = self._free(record)
        if target is not None:
            if not _is_image_of(record, source):
                raise Refused("it was gone, or another part had its name, before it could be filed")
            target.parent.mkdir(parents=True, exist_ok=True)
            picture = target.with_suffix(PICTURE)
            prediction = prediction_of(record) if record.verdict != NORMAL else None
            try:
                if prediction is not None:  # first, because the image in its place says that all is done
                    save_png(_picture(source, prediction), picture)
                self._place(source, target)
                if not _is_image_of(record, target):
                    raise Refused("another part took its name while it was filed")
            except Refused:
                target.unlink(missing_ok=True)
                picture.unlink(missing_ok=True)
                raise
        if self.way == "move":
            _remove(source, record)

    def _place(self, source: Path, target: Path) -> None:
        """Under its new name, and on the disk: the original may be removed next."""
        if self.way == "link":
            os.link(source, target)
            sync_folder(target.parent)
            return
        with source.open("rb") as original, replacing(target) as copy:
            shutil.copyfileobj(original, copy, 1 << 20)

    def _free(self, record: WatchRecord) -> Path | None:
        """A name that is not taken; None if this very image has its place already."""
        name = as_path(record.image)
        folder = self.folder / FOLDERS[record.verdict] / name.parent
        for number in count(1):
            end = f"-{record.position:06}" + ("" if number == 1 else f"-{number}")
            target = folder / f"{cut_name(name.stem, LONGEST_NAME - len(end) - len(PICTURE))}{end}{name.suffix}"
            if not target.exists():
                return target
            if _is_image_of(record, target):
                return None
        raise AssertionError


def _picture(path: Path, prediction: Prediction) -> np.ndarray:
    """Where the part is bad, or why it is not judged."""
    return triptych(photo_of(path), prediction, full_at(prediction.threshold))


def _remove(source: Path, record: WatchRecord) -> None:
    """Remove the image that was judged, and nothing that a camera writes to its name meanwhile.

    It is taken aside before it is looked at, under a hidden name that leads back here after a crash.
    """
    aside = source.with_name(f".nfad-{record.id}.moving")
    if not aside.exists():
        if not _is_image_of(record, source):
            return
        with contextlib.suppress(FileNotFoundError):
            os.rename(source, aside)
    if _is_image_of(record, aside):
        aside.unlink()
    elif aside.exists():
        _put_back(aside, source, record)


def _put_back(aside: Path, source: Path, record: WatchRecord) -> None:
    """A camera was quicker: what was taken aside is the next part, and nobody has judged it yet."""
    try:
        os.link(aside, source)  # unlike a rename, it never takes the place of the part after that
    except FileExistsError:
        name = f"{cut_name(source.stem, LONGEST_NAME - 30)}-behind-{record.position:06}{source.suffix}"
        os.rename(aside, source.with_name(name))
    except OSError:  # a disk without links
        os.rename(aside, source)
    else:
        aside.unlink()


def _is_image_of(record: WatchRecord, path: Path) -> bool:
    """Cameras use names again: whether the file is still the one that was judged."""
    try:
        return sha256_of(path) == record.sha256
    except FileNotFoundError:
        return False
