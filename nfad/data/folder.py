"""Photos of your own in a plain folder; `good` is the only name with a meaning.

    ROOT/train/good/*, or ROOT/good/*                                 what a detector is fitted on
    ROOT/test/good/*, ROOT/test/<any other name>/*                    what it is tested on; the name is the defect's
    ROOT/ground_truth/<defect>/<stem>.png or <stem>_mask.png          optional masks; ROOT/masks/… does as well

A further folder between the name and the photos is the acquisition (test/scratch/new-lamp/*, with its masks in
ground_truth/scratch/new-lamp/ or ground_truth/scratch/); photos without one are of the source, `same`.
Without ROOT/test, the other folders of ROOT are the defects and half of ROOT/good, drawn with seed 0, is tested on.
For a model that is fitted already (`read_tested`) ROOT/test alone will do; without it all of ROOT/good is tested on.
The category is the name of ROOT; a ROOT of several such folders has a category for each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, dataset, folders, masks, samples
from nfad.errors import NfadError
from nfad.records import Dataset, Sample

NAME = "folder"
TITLE = "Plain folder"
_SEED = 0
_TRUTH = ("ground_truth", "masks")
_RESERVED = ("train", "test", *_TRUTH)
_FITTED = (f"train/{GOOD}", GOOD)  # one of these makes a folder a set to fit on
_TESTED = ("test", *_FITTED)  # and one of these a set to test a model on


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


def read_tested(root: Path, chosen: Sequence[str] | None = None) -> list[Dataset]:
    """The chosen categories, or all, for a model that is fitted already: nothing need be kept back to fit on."""
    found = _present(Path(root), _TESTED)
    if not found:
        raise absent(TITLE, Path(root), "test or good, in it or in folders of it")
    for category in chosen or ():
        check_category(TITLE, category, list(found))
    return [_tested(found[category], category) for category in chosen or found]


def _tested(base: Path, category: str) -> Dataset:
    apart = (base / "test").is_dir()
    kinds = folders(base / "test") if apart else [kind for kind in folders(base) if kind.name not in _RESERVED]
    test = [s for kind in kinds for s in _samples(base, kind)]
    if not test:
        place = base / "test" if apart else base
        raise NfadError(f"{place} has no images to test on: put them in {place / GOOD} and {place / '<defect>'}")
    good = sum(not s.anomalous for s in test)
    note = (
        f"{category}: there is no test folder, so all {good} good images are tested on; any that the model was fitted "
        "on come out better than new ones"
    )
    # A set without training images is refused where one has to be fitted; here the test stands in for them.
    read = dataset(NAME, category, base, test, test, [note] if good and not apart else [])
    return replace(read, train=())


def _present(root: Path, marks: Sequence[str] = _FITTED) -> dict[str, Path]:
    def plain(place: Path) -> bool:
        return any((place / mark).is_dir() for mark in marks)

    if plain(root):
        return {root.resolve().name: root}
    return {f.name: f for f in folders(root) if f.name not in _RESERVED and plain(f)}


def _samples(base: Path, kind: Path) -> list[Sample]:
    """The photos of one kind, in it and in its folders of acquisitions."""
    places = [base / name / kind.name for name in reversed(_TRUTH)]
    general = {stem: path for place in places for stem, path in masks(place).items()}
    found = samples(kind, kind.name, truth=general)
    for domain in folders(kind):
        own = {stem: path for place in places for stem, path in masks(place / domain.name).items()}
        found += samples(domain, kind.name, domain.name, general | own)
    return found
