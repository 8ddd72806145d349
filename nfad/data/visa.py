"""VisA, twelve objects (Zou et al., 2022), in the one-class split, as released or converted.

    split_csv/1cls.csv with columns object,split,label,image,mask, beside the folders it names   (as released)
    [visa_pytorch/][1cls/]<category>/{train,test,ground_truth}/…                            (converted, as MVTec AD)

The root may hold either; the released files win where both are there. Released masks mark a defect with its small
number (1, 2, …), not with 255.
"""

from __future__ import annotations

import csv
from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, check_listed, dataset, inside, sample
from nfad.data.mvtec_layout import present, read_category
from nfad.errors import NfadError
from nfad.records import Dataset, Sample

NAME = "visa"
TITLE = "VisA"
_SPLIT = Path("split_csv", "1cls.csv")
_COLUMNS = ("object", "split", "label", "image", "mask")
_KINDS = {"normal": GOOD, "anomaly": "bad"}
_CONVERTED = ("visa_pytorch/1cls", "visa_pytorch", "1cls", ".")


def recognises(root: Path) -> bool:
    return (Path(root) / _SPLIT).is_file() or _converted(Path(root)) is not None


def categories(root: Path) -> list[str]:
    root = Path(root)
    if (root / _SPLIT).is_file():
        named = dict.fromkeys(row["object"] for row in _rows(root))
        found = [name for name in named if inside(root, name, root / _SPLIT).is_dir()]
    else:
        base = _converted(root)
        found = present(base, NAME) if base else []
    if not found:
        places = ", ".join(f"{place}/candle" for place in _CONVERTED)
        raise absent(TITLE, root, f"{_SPLIT.as_posix()} and the folders it names, or train/good in {places}")
    return found


def read(root: Path, category: str) -> Dataset:
    root = Path(root)
    check_category(TITLE, category, categories(root))
    source = root / _SPLIT
    if not source.is_file() and (base := _converted(root)):
        return read_category(base, NAME, category)
    parts: dict[str, list[Sample]] = {"train": [], "test": []}
    for row in _rows(root):
        if row["object"] == category:
            mask = inside(root, row["mask"], source) if row["mask"] else None
            parts[row["split"]].append(sample(inside(root, row["image"], source), _KINDS[row["label"]], mask=mask))
    listed = [s for part in parts.values() for s in part]
    check_listed([s.path for s in listed] + [s.mask for s in listed if s.mask], source)
    return dataset(NAME, category, root, parts["train"], parts["test"])


def _rows(root: Path) -> list[dict[str, str]]:
    source = root / _SPLIT
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (csv.Error, UnicodeDecodeError) as problem:
        raise NfadError(f"{source} is not a CSV file: {problem}") from problem
    for line, row in enumerate(rows, start=2):
        if any(row.get(column) is None for column in _COLUMNS):
            raise NfadError(f"{source} must have the columns {', '.join(_COLUMNS)}; line {line} has not")
        if row["split"] not in ("train", "test") or row["label"] not in _KINDS:
            raise NfadError(
                f"{source} line {line} says {row['split']}, {row['label']}; the split must be train or test, the label "
                "normal or anomaly"
            )
        if row["split"] == "train" and row["label"] != "normal":
            raise NfadError(f"{source} line {line} trains on an anomaly: is it the one-class split, 1cls.csv?")
    return rows


def _converted(root: Path) -> Path | None:
    return next((root / place for place in _CONVERTED if present(root / place, NAME)), None)
