"""MPDD, painted metal parts in changing positions (Jezek et al., 2021): six categories in the layout of MVTec AD."""

from __future__ import annotations

from pathlib import Path

from nfad.data.listing import check_category
from nfad.data.mvtec_layout import categories_of, present, read_category
from nfad.records import Dataset

NAME = "mpdd"
TITLE = "MPDD"


def recognises(root: Path) -> bool:
    return bool(present(Path(root), NAME))


def categories(root: Path) -> list[str]:
    return categories_of(Path(root), NAME, TITLE)


def read(root: Path, category: str) -> Dataset:
    check_category(TITLE, category, categories(root))
    return read_category(Path(root), NAME, category)
