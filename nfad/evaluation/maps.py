"""What another program wrote about a data set: a map a photo, a CSV of scores, or both, found by the photo's path."""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from nfad.errors import NfadError
from nfad.vision.pixels import DEEP, MAX_PIXELS

SUFFIXES = (".npy", ".npz", ".tiff", ".tif", ".png")
SCORES = "scores.csv"
COLUMNS = ("image", "score")
MOST_BYTES = 8 * MAX_PIXELS  # of an array, unpacked
MOST_LISTED = 10**8  # of a CSV


@dataclass(frozen=True)
class Foreign:
    """One program's folder: `score` and `map` of a photo by its path relative to the data set's root."""

    name: str
    folder: Path
    maps: Mapping[str, Path]  # by the photo's path
    scores: Mapping[str, float]
    extra: tuple[str, ...] = ()  # files and lines that belong to no photo of the set

    @classmethod
    def open(cls, place: Path, photos: Sequence[str]) -> Foreign:
        """A folder of maps that may hold a scores.csv, or such a CSV alone; `photos` are the set's, as posix paths."""
        if not place.exists():
            raise NfadError(f"{place} does not exist; name a folder of maps laid out as the data set, or a scores.csv")
        listed = place if place.is_file() else place / SCORES
        scores = _scores(listed) if listed.is_file() else {}
        found: dict[str, list[Path]] = {}
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                if path.suffix.lower() in SUFFIXES and path.is_file():
                    found.setdefault(path.relative_to(place).with_suffix("").as_posix(), []).append(path)
        maps, used = {}, set()
        for photo, key in _keys(photos, found).items():
            if len(found[key]) > 1:
                raise NfadError(f"{photo} has several maps, {' and '.join(map(str, found[key]))}; leave one")
            maps[photo] = found[key][0]
            used.add(key)
        extra = [str(paths[0].relative_to(place)) for key, paths in found.items() if key not in used]
        extra += [f"{image} in {listed.name}" for image in scores if image not in set(photos)]
        if not maps and not scores.keys() & set(photos):
            raise NfadError(
                f"{place} holds nothing of this data set: looked for {photos[0]} as {Path(photos[0]).with_suffix('')}"
                f".npy (or {', '.join(SUFFIXES[1:])}), or in a {SCORES} with the columns {', '.join(COLUMNS)}"
            )
        return cls(place.stem if place.is_file() else place.name, place, maps, scores, tuple(extra))

    def read(self, photo: str, size: int) -> tuple[float, np.ndarray | None]:
        """A photo's score (of the CSV, else the map's largest value) and its map on `size`² pixels.

        A score that is not there, or not finite, is NaN: that photo is not judged.
        """
        path = self.maps.get(photo)
        found = None if path is None else read_map(path)
        largest = math.nan if found is None else float(found.max())
        score = self.scores.get(photo, math.nan if self.scores else largest)
        return score, None if found is None else resized(found, size)


def _keys(photos: Sequence[str], found: Mapping[str, object]) -> dict[str, str]:
    """Of each photo that has a map: `a/0.png` has `a/0.npy`, or `a/0.png.npy` where two photos share a stem."""
    stems: dict[str, int] = {}
    for photo in photos:
        stem = Path(photo).with_suffix("").as_posix()
        stems[stem] = stems.get(stem, 0) + 1
    keys = {}
    for photo in photos:
        stem = Path(photo).with_suffix("").as_posix()
        if photo in found:
            keys[photo] = photo
        elif stem in found and stems[stem] > 1:
            raise NfadError(f"two photos are called {stem}; name their maps by the whole name, {photo}.npy")
        elif stem in found:
            keys[photo] = stem
    return keys


def read_map(path: Path) -> np.ndarray:
    """A finite map (height, width) as float32; nothing in the file is executed, and its size is known before it is
    unpacked."""
    try:
        values = {".npy": _npy, ".npz": _npz}.get(path.suffix.lower(), _image)(path)
    except NfadError:
        raise
    except MemoryError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, SyntaxError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NfadError(f"the map {path} cannot be read ({reason}); write it again") from None
    values = values.reshape([side for side in values.shape if side != 1] if values.ndim > 2 else values.shape)
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise NfadError(f"the map {path} must be a 2-d array of numbers; it is {values.dtype} {values.shape}")
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        row, column = map(int, np.argwhere(~np.isfinite(values))[0])
        raise NfadError(f"the map {path} is {values[row, column]} at row {row}, column {column}; it must be finite")
    return values


def resized(values: np.ndarray, size: int) -> np.ndarray:
    """Bilinear, without a change where the map has that size: every program is measured on as many pixels."""
    if values.shape == (size, size):
        return values
    return np.asarray(Image.fromarray(values).resize((size, size), Image.Resampling.BILINEAR))


def _npy(path: Path) -> np.ndarray:
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # only the header is read
    _check_size(path, mapped.nbytes)
    return np.array(mapped)


def _npz(path: Path) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        names = [each.filename for each in archive.infolist()]
        _check_size(path, sum(each.file_size for each in archive.infolist()))
    if len(names) != 1:
        raise NfadError(f"the map {path} holds {len(names)} arrays; it must hold one")
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[arrays.files[0]]


def _image(path: Path) -> np.ndarray:
    try:
        with Image.open(path, formats=("PNG", "TIFF")) as opened:
            _check_size(path, 8 * opened.width * opened.height)
            if opened.mode not in ("F", *DEEP) or getattr(opened, "n_frames", 1) > 1:
                raise NfadError(
                    f"the map {path} is a picture of mode {opened.mode}; 8 bits are too few to rank pixels by: save "
                    "one channel with 16 bits, or floats as TIFF or npy"
                )
            return np.asarray(opened)
    except UnidentifiedImageError:
        raise NfadError(f"the map {path} is neither a PNG nor a TIFF; write it again") from None
    except Image.DecompressionBombError:
        raise NfadError(f"the map {path} unpacks to far more than a photo's pixels; scale it down") from None


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise NfadError(f"the map {path} would take {size / 1e9:.1f} GB; at most {MOST_BYTES / 1e9:.1f} are read")


def _scores(path: Path) -> dict[str, float]:
    """One finite or empty score an image."""
    if path.stat().st_size > MOST_LISTED:
        raise NfadError(f"{path} has {path.stat().st_size / 1e6:.0f} MB; at most {MOST_LISTED / 1e6:.0f} are read")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            names, rows = list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise NfadError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if not set(COLUMNS) <= set(names):
        raise NfadError(f"{path} must have the columns {', '.join(COLUMNS)}; it has {', '.join(names) or 'none'}")
    found: dict[str, float] = {}
    for line, row in enumerate(rows, start=2):
        image, score = (str(row[column] or "").strip().replace("\\", "/") for column in COLUMNS)
        if image in found:
            raise NfadError(f"{path} line {line} names {image} a second time; each image has one score")
        try:
            found[image] = float(score) if score else math.nan
        except ValueError:
            raise NfadError(f"{path} line {line} has the score {score!r}; it must be a number, or empty") from None
    return found
