"""What a table is made of: its options, variants and results, and what is laid beside them from the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nfad.config import Config
from nfad.paper.estimates import Entry, Result, entry, estimate
from nfad.paper.published import TABLES as PLACES
from nfad.paper.published import published
from nfad.vision.corruptions import CORRUPTIONS

SEEDS = (54, 1, 42, 123, 2025)
RANKS = (8, 16, 32, 64)
FOUNDATIONS = {
    "augreg": "AugReg", "deit": "DeiT", "beitv2": "BEiTv2", "dino": "DINO", "clip": "CLIP", "dinov2": "DINOv2",
    "dinov2r": "DINOv2-R", "dinov3": "DINOv3",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What a run may choose; the defaults are the paper's."""

    teachers: tuple[str, ...] = tuple(FOUNDATIONS)
    severities: tuple[int, ...] = (1, 2, 3)
    seeds: tuple[int, ...] = ()  # none: SEEDS for the table of seeds, the config's own for plugins
    ranks: tuple[int, ...] = RANKS
    hosts: tuple[str, ...] = ("rd4ad", "recontrast", "patchcore", "glass", "uniad", "nfad")
    steps: int | None = None  # of trained hosts

    @property
    def corruptions(self) -> tuple[str, ...]:
        return tuple(f"{name}:{level}" for name in CORRUPTIONS for level in self.severities)


@dataclass(frozen=True)
class Variant:
    """One row of a table: what is changed in the config, and what is measured."""

    row: str
    changes: Mapping[str, object] = field(default_factory=dict)
    measure: str = "metrics"
    corruption: str = ""
    host: str = ""  # another detector that wears the filter


@dataclass(frozen=True)
class Block:
    """All results of one data set and method: by row, a result a category."""

    dataset: str
    method: str
    categories: tuple[str, ...]
    results: Mapping[str, Sequence[Result]]

    @property
    def sheet(self) -> str:
        only = f" {self.categories[0]}" if len(self.categories) == 1 else ""
        return f"{self.dataset}{only} · {self.method}"

    @property
    def first(self) -> Result:
        return next(iter(self.results.values()))[0]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    variants: Callable[[Config, Options], list[Variant]]
    entries: Callable[[Block], list[Entry]]
    published: tuple[str, ...]  # the CSVs it stands beside
    needs: str = "any"  # "domains": test images under several acquisitions
    baseline: str = "the control"  # what a bold value differs from
    both_orders: bool = True  # of filtering and fitting; a host has its own
    options: tuple[str, ...] = ()  # those of Options that it uses

    @property
    def place(self) -> str:
        return ", ".join(dict.fromkeys(PLACES[name] for name in self.published))


def nearest_published(table: str, dataset: str, domains: int) -> str:
    """The paper's data set to lay beside ours: the same, or else the shifted or the standard one it has."""
    have = list(dict.fromkeys(value.dataset for value in published(table)))
    if dataset in have:
        return dataset
    wanted = "aebad-s" if domains > 1 else "mvtec-ad"
    return wanted if wanted in have else have[0]


def compare(
    block: Block,
    table: str,
    near: str,
    rows: Mapping[str, tuple[str, str]],
    columns: Sequence[str],
    baseline: str,
) -> list[Entry]:
    """Rows that are each an arm of a result, against one of them."""
    found = []
    for column in columns:
        base = estimate(block.results[rows[baseline][0]], rows[baseline][1], column)
        for row, (label, arm) in rows.items():
            ours = estimate(block.results[label], arm, column)
            paper = paper_value(table, near, row, column)
            found.append(entry(block.sheet, row, column, ours, None if row == baseline else base, paper))
    return found


def paper_value(table: str, dataset: str, row: str, column: str) -> float | None:
    """The published value, None also for a column the paper never has."""
    have = {(value.dataset, value.row, value.column): value.value for value in published(table)}
    return have.get((dataset, row, column))
