"""Photos of your own in a plain folder; `good` is the only name with a meaning.

    ROOT/train/good/*, or ROOT/good/*                                 what a detector is fitted on
    ROOT/test/good/*, ROOT/test/<any other name>/*                    what it is tested on; the name is the defect's
    ROOT/ground_truth/<defect>/<stem>.png or <stem>_mask.png          optional masks; ROOT/masks/… does as well

A further folder between the name and the photos is the acquisition (test/scratch/new-lamp/*, with its masks in
ground_truth/scratch/new-lamp/ or ground_truth/scratch/); photos without one are of the source, `same`.
Without ROOT/test, the other folders of ROOT are the defects and half of ROOT/good, drawn with seed 0, is tested on.
The category is the name of ROOT; a ROOT of several such folders has a category for each.
"""

from __future__ import annotations

import random
from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, dataset, folders, masks, samples
from nfad.records import Dataset, Sample

NAME = "folder"
TITLE = "Plain folder"
_SEED = 0
_TRUTH = ("ground_truth", "masks")
_RESERVED = ("train", "test", *_TRUTH)


def recognises(root: Path) -> bool:
    return bool(_present(Path(root)))


def categories(root: Path) -> list[str]:
    found = _present(Path(root))
    if not found:
        raise absent(TITLE, Path(root), "train/good or good, in it or in folders of it")
    return list(found)


def read(root: Path, category: str) -> Dataset:
    check_category(TITLE, category, categories(root))
    base = _present(Path(root))[category]
    fitted = base / "train" / GOOD
    train = _samples(base, fitted if fitted.is_dir() else base / GOOD)
    if fitted.is_dir() or (base / "test").is_dir():
        test = [s for kind in folders(base / "test") for s in _samples(base, kind)]
        return dataset(NAME, category, base, train, test)
    count = len(train) // 2
    random.Random(_SEED).shuffle(train)
    bad = [s for kind in folders(base) if kind.name not in (GOOD, *_RESERVED) for s in _samples(base, kind)]
    note = f"{category}: there is no test folder, so {count} of {len(train)} good images are tested on (seed {_SEED})"
    return dataset(NAME, category, base, train[count:], train[:count] + bad, [note])


def _present(root: Path) -> dict[str, Path]:
    if _is_plain(root):
        return {root.resolve().name: root}
    return {f.name: f for f in folders(root) if f.name not in _RESERVED and _is_plain(f)}


def _is_plain(root: Path) -> bool:
    return (root / "train" / GOOD).is_dir() or (root / GOOD).is_dir()


def _samples(base: Path, kind: Path) -> list[Sample]:
    """The photos of one kind, in it and in its folders of acquisitions."""
    places = [base / name / kind.name for name in reversed(_TRUTH)]
    general = {stem: path for place in places for stem, path in masks(place).items()}
    found = samples(kind, kind.name, truth=general)
    for domain in folders(kind):
        own = {stem: path for place in places for stem, path in masks(place / domain.name).items()}
        found += samples(domain, kind.name, domain.name, general | own)
    return found
