"""The layout of MVTec AD, which other sets took over.

    <category>/train/good/*.png
    <category>/test/{good,<defect>}/*.png
    <category>/ground_truth/<defect>/<stem>_mask.png, or without `_mask`

The sets are told apart by the names of their categories.
"""

from __future__ import annotations

from pathlib import Path

from nfad.data.counts import published_categories
from nfad.data.listing import GOOD, absent, dataset, folders, masks, samples
from nfad.records import Dataset


def present(root: Path, name: str) -> list[str]:
    """The categories of a data set that are there."""
    known = published_categories(name)
    return [c for c in known if (root / c / "train" / GOOD).is_dir() and (root / c / "test").is_dir()]


def categories_of(root: Path, name: str, title: str) -> list[str]:
    """Likewise, where having none is an error."""
    found = present(root, name)
    if not found:
        one, two, *_ = published_categories(name)
        raise absent(title, root, f"train/good and test in folders such as {one} or {two}")
    return found


def read_category(root: Path, name: str, category: str) -> Dataset:
    base = root / category
    test = [
        s
        for kind in folders(base / "test")
        for s in samples(kind, kind.name, truth=masks(base / "ground_truth" / kind.name))
    ]
    return dataset(name, category, base, samples(base / "train" / GOOD, GOOD), test)
