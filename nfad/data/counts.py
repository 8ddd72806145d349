"""How many images a data set should have, so that a table never stands on half a download unnoticed.

`published_counts.csv` holds what the authors print; a field is blank where they print only the total (`all`).
MVTec AD 2 counts its validation normals as training images, as the reader does.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nfad.records import Dataset

TABLE = Path(__file__).with_name("published_counts.csv")
TOTAL = "all"


class Counts(NamedTuple):
    """Images of one category, or of all; None where nothing is published."""

    train: int | None
    good: int | None
    bad: int | None


@cache
def published() -> dict[tuple[str, str], Counts]:
    """The table, by data set and category."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            (row["dataset"], row["category"]): Counts(*(_number(row[c]) for c in ("train", "test_good", "test_bad")))
            for row in csv.DictReader(file)
        }


def published_categories(name: str) -> list[str]:
    """The categories a data set is known by, in the table's order."""
    return [category for dataset, category in published() if dataset == name and category != TOTAL]


def counts_of(*datasets: Dataset) -> Counts:
    """What was found, added up."""
    labels = [sample.anomalous for dataset in datasets for sample in dataset.test]
    return Counts(sum(len(dataset.train) for dataset in datasets), labels.count(False), labels.count(True))


def count_notes(dataset: Dataset) -> tuple[str, ...]:
    """One sentence if a category has other counts than published; nothing when equal or unknown."""
    return _difference(dataset.category, counts_of(dataset), published().get((dataset.name, dataset.category)))


def total_notes(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    """The same for a whole set once all its categories are there, which for some is the only published number."""
    name = datasets[0].name if datasets else ""
    complete = {dataset.category for dataset in datasets} == set(published_categories(name))
    return _difference(name, counts_of(*datasets), published().get((name, TOTAL))) if complete else ()


def _difference(what: str, found: Counts, known: Counts | None) -> tuple[str, ...]:
    if known is None or all(known[i] in (None, found[i]) for i in range(3)):
        return ()
    parts = []
    if known.train is not None:
        parts.append(f"{found.train} training images, " + _beside(found.train == known.train, f"{known.train}"))
    if known.good is not None and known.bad is not None:
        same = found[1:] == known[1:]
        parts.append(f"test {found.good} good / {found.bad} bad, " + _beside(same, f"{known.good} / {known.bad}"))
    return (f"{what}: " + "; ".join(parts),)


def _beside(same: bool, known: str) -> str:
    return "as published" if same else f"published {known}"


def _number(field: str) -> int | None:
    return int(field) if field else None
