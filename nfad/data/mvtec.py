"""MVTec AD, fifteen objects and textures (Bergmann et al., 2019), in the layout named after it."""

from __future__ import annotations

from pathlib import Path

from nfad.data.listing import check_category
from nfad.data.mvtec_layout import categories_of, present, read_category
from nfad.records import Dataset

NAME = "mvtec-ad"
TITLE = "MVTec AD"


def recognises(root: Path) -> bool:
    return bool(present(Path(root), NAME))


def categories(root: Path) -> list[str]:
    return categories_of(Path(root), NAME, TITLE)


def read(root: Path, category: str) -> Dataset:
    check_category(TITLE, category, categories(root))
    return read_category(Path(root), NAME, category)
