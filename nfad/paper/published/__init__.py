"""Every number of the paper's tables, so that a result can be laid beside the value it should come near.

One CSV a table, one line a number: `dataset,row,column,value`, the value with the digits the paper prints.
A row is named as the paper names it, or by our word where we have one: domains and categories as their folders,
bases as `Config.basis`, "NFAD" for the whole method, "Control" and "Ours" for a detector without and with the operator.
A slash separates what a row combines, e.g. "DINOv3/Ours", "contrast/s=2/Control", "PatchCore/d=16".
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from nfad.errors import NfadError

# Name of a table → where the paper has it.
TABLES = {
    "comparison": "Table 2",
    "aebad-domains": "Table 3",
    "standard": "Table 4",
    "detection-ablation": "Table 5",
    "localization-ablation": "Table 6",
    "entanglement-datasets": "Table 1a",
    "entanglement-backbones": "Table 1b",
    "entanglement-rank": "Supplement C.1",
    "entanglement-categories": "Supplement C.2",
    "mechanism": "Supplement C.3",
    "seeds": "Supplement D.1",
    "basis": "Supplement D.2",
    "incidence": "Supplement D.3",
    "rank": "Supplement D.4",
    "foundations": "Supplement D.5",
    "visa-c": "Supplement D.6",
    "plugins": "Supplement D.7",
    "categories-mvtec": "Supplement E",
    "categories-visa": "Supplement E",
    "categories-real-iad": "Supplement E",
    "datasets": "Supplement B",
}

# Name of a column → what it holds. No table has any other.
COLUMNS = {
    "i_auroc": "image AUROC, %",
    "i_ap": "image average precision, %",
    "i_f1": "image F1-max, %",
    "p_auroc": "pixel AUROC, %",
    "p_ap": "pixel average precision, %",
    "p_f1": "pixel F1-max, %",
    "aupro": "AUPRO to a false-positive rate of 0.3, %",
    "f_def": "share of defect patches' residual energy inside V",
    "f_norm": "share of normal patches' residual energy inside V",
    "f_disc": "share of the direction from mean normal to mean defect residual inside V",
    "chance": "the share a random subspace of V's dimension would hold",
    "rms_before": "normal patches' residual, root mean square, before projection",
    "rms_after": "the same after projection",
    "energy_removed": "share of normal patches' residual energy that projection removes, %",
    "contrast_before": "defect over normal patches' root-mean-square residual, before projection",
    "contrast_after": "the same after projection",
    "spearman": "rank correlation of image scores before and after projection",
    "size": "side of the teacher's input, pixels",
    "categories": "number of categories",
    "train": "normal training images",
    "test": "test images",
    "test_normal": "normal test images",
    "test_anomalous": "anomalous test images",
}


@dataclass(frozen=True)
class Value:
    """One number of one table; it keeps its printed digits because they say how far it was rounded."""

    dataset: str
    row: str
    column: str
    printed: str

    @property
    def value(self) -> float:
        return float(self.printed)


@cache
def published(table: str) -> tuple[Value, ...]:
    """A table's values in the paper's order; what it prints as n/a is left out."""
    if table not in TABLES:
        raise NfadError(f"unknown table {table!r}; the paper's tables are {', '.join(TABLES)}")
    text = files(__name__).joinpath(f"{table}.csv").read_text(encoding="utf-8")
    lines = csv.DictReader(text.splitlines())
    return tuple(Value(line["dataset"], line["row"], line["column"], line["value"]) for line in lines)


def lookup(table: str, dataset: str, row: str, column: str) -> float | None:
    """The published number to compare with, or None where the paper has none."""
    if column not in COLUMNS:
        raise NfadError(f"unknown column {column!r}; published columns are {', '.join(COLUMNS)}")
    return _index(table).get((dataset, row, column))


@cache
def _index(table: str) -> Mapping[tuple[str, str, str], float]:
    return {(each.dataset, each.row, each.column): each.value for each in published(table)}
