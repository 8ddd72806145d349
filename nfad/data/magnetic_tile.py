"""Magnetic tiles photographed at six exposures each (Huang et al., 2020): a real change of acquisition.

    <class>/exposure<1-6>/tile<k>.jpg, a defect's mask beside it as tile<k>_mask.png       (sorted by tile)
    MT_<Class>/Imgs/exp<e>_num_<n>.jpg, its mask beside it as exp<e>_num_<n>.png           (as released)

A category is the exposure a detector is fitted at: half of the good (`free`) tiles at that exposure train, the other
half and all defects at every exposure are the test. The halves are of tiles, never of images, drawn with seed 0.
`uneven` is no local defect and is left out, with a note. Of the exposures' order the release says nothing; they are
taken as they are numbered.

The released number n is the camera's counter, not the tile's: one tile's photos follow one another, usually from
exposure 1 to 6. So a tile is a run of rising exposures, and two neighbouring runs that share no exposure are taken
for one tile: that may join two tiles, which does no harm, rather than put one tile into both halves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, dataset, files, sample
from nfad.records import Dataset

NAME = "magnetic-tile"
TITLE = "Magnetic tile"
_SEED = 0  # as in benchmarks/magnetic_tile.py
_EXPOSURES = range(1, 7)
_FREE, _UNEVEN = "free", "uneven"
_CLASSES = (_FREE, "blowhole", "break", "crack", "fray", _UNEVEN)
_RELEASED = re.compile(r"exp(\d+)_num_(\d+)", re.ASCII)


@dataclass(frozen=True)
class _Photo:
    path: Path
    kind: str
    tile: str
    exposure: int
    mask: Path


def recognises(root: Path) -> bool:
    return _is_sorted(Path(root)) or _is_released(Path(root))


def categories(root: Path) -> list[str]:
    root = Path(root)
    if not recognises(root):
        raise absent(TITLE, root, f"{_FREE}/exposure1 or MT_Free/Imgs")
    found = {photo.exposure for photo in _photos(root) if photo.kind == _FREE}
    return [_domain(exposure) for exposure in _EXPOSURES if exposure in found]


def read(root: Path, category: str) -> Dataset:
    root = Path(root)
    check_category(TITLE, category, categories(root))
    every = _photos(root)
    photos = [photo for photo in every if photo.exposure in _EXPOSURES]
    tiles = sorted({photo.tile for photo in photos if photo.kind == _FREE})
    random.Random(_SEED).shuffle(tiles)
    fitted = set(tiles[: len(tiles) // 2])
    train, test, uneven = [], [], 0
    for photo in photos:
        if photo.kind == _UNEVEN:
            uneven += 1
        elif photo.kind != _FREE:
            mask = photo.mask if photo.mask.is_file() else None
            test.append(sample(photo.path, photo.kind, _domain(photo.exposure), mask))
        elif photo.tile not in fitted:
            test.append(sample(photo.path, GOOD, _domain(photo.exposure)))
        elif _domain(photo.exposure) == category:
            train.append(sample(photo.path, GOOD, category))
    notes = [f"{category}: of {len(tiles)} good tiles {len(fitted)} are fitted on, the others tested (seed {_SEED})"]
    if uneven:
        notes.append(f"{category}: {uneven} photos of {_UNEVEN} tiles are left out, unevenness is no local defect")
    if len(every) > len(photos):
        notes.append(f"{category}: {len(every) - len(photos)} photos at none of the exposures 1 to 6 are left out")
    return dataset(NAME, category, root, train, test, notes)


def _domain(exposure: int) -> str:
    return f"exposure{exposure}"


def _is_sorted(root: Path) -> bool:
    return any((root / _FREE / _domain(exposure)).is_dir() for exposure in _EXPOSURES)


def _is_released(root: Path) -> bool:
    return _images(root, _FREE).is_dir()


def _images(root: Path, kind: str) -> Path:
    return root / f"MT_{kind.capitalize()}" / "Imgs"


def _photos(root: Path) -> list[_Photo]:
    take = _sorted_photos if _is_sorted(root) else _released_photos
    return [photo for kind in _CLASSES for photo in take(root, kind)]


def _sorted_photos(root: Path, kind: str) -> list[_Photo]:
    return [
        _Photo(path, kind, path.stem, exposure, path.with_name(f"{path.stem}_mask.png"))
        for exposure in _EXPOSURES
        for path in files(root / kind / _domain(exposure), {".jpg"})
    ]


def _released_photos(root: Path, kind: str) -> list[_Photo]:
    named = [(_RELEASED.fullmatch(path.stem), path) for path in files(_images(root, kind), {".jpg"})]
    shots = {(int(match[2]), int(match[1])): path for match, path in named if match}
    return [
        _Photo(shots[shot], kind, f"tile{tile[0][0]:07d}", shot[1], shots[shot].with_suffix(".png"))
        for tile in _tiles(shots)
        for shot in tile
    ]


def _tiles(shots: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """(counter, exposure) of each photo, grouped by tile; the module's head gives the rule."""
    runs: list[list[tuple[int, int]]] = []
    for shot in sorted(shots):
        if runs and shot[1] > runs[-1][-1][1]:
            runs[-1].append(shot)
        else:
            runs.append([shot])
    tiles: list[list[tuple[int, int]]] = []
    for run in runs:
        if tiles and {exposure for _, exposure in tiles[-1]}.isdisjoint(exposure for _, exposure in run):
            tiles[-1].extend(run)
        else:
            tiles.append(run)
    return tiles
