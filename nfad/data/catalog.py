"""All data sets by name: load one, or tell which one a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nfad.data import aebad, demo, folder, magnetic_tile, mpdd, mvtec, mvtec2, realiad, visa
from nfad.data.listing import contents
from nfad.errors import NfadError
from nfad.records import Dataset


class Reader(Protocol):
    """What each module of a data set offers. Readers list files and open no pixels."""

    @property
    def NAME(self) -> str: ...
    @property
    def TITLE(self) -> str:
        """As printed."""
        ...

    def recognises(self, root: Path) -> bool:
        """Whether a folder looks like this set, from a few names in it."""
        ...

    def categories(self, root: Path) -> list[str]:
        """What is there, one detector each; an error says what was looked for if there is nothing."""
        ...

    def read(self, root: Path, category: str) -> Dataset: ...


_READERS: tuple[Reader, ...] = (aebad, mvtec, mvtec2, visa, mpdd, realiad, magnetic_tile, demo, folder)
READERS = {reader.NAME: reader for reader in _READERS}


def load(name: str, root: Path, categories: Sequence[str] | None = None) -> list[Dataset]:
    """The chosen categories of a data set, or all that are in the folder."""
    if name not in READERS:
        raise NfadError(f"There is no data set {name!r}; there are {', '.join(READERS)}")
    reader = READERS[name]
    chosen = reader.categories(root) if categories is None else categories
    return [reader.read(root, category) for category in chosen]


def recognise(root: Path) -> str:
    """The name of the one set that a folder holds. `folder` fits most of them too, so it stands back."""
    found = [name for name, reader in READERS.items() if name != folder.NAME and reader.recognises(root)]
    if not found and folder.recognises(root):
        found = [folder.NAME]
    if not found:
        titles = ", ".join(reader.TITLE for name, reader in READERS.items() if name != folder.NAME)
        raise NfadError(
            f"No data set was recognised in {root}: looked for {titles}, and for a plain folder with good or "
            f"train/good; found {contents(Path(root))}"
        )
    if len(found) > 1:
        raise NfadError(f"{root} looks like {' and like '.join(found)}; say by name which one to read")
    return found[0]
