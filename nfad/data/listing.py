"""What every reader does alike: list a folder without its litter, pair images with masks, say what is not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath

from nfad.data.counts import count_notes
from nfad.errors import NfadError
from nfad.records import Dataset, Sample

SUFFIXES = frozenset({".gif", ".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
GOOD = "good"
SOURCE = "same"  # the domain a detector is fitted in
SHOWN = 5  # names in a message


def images(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name; none where there is no such folder."""
    return files(folder, SUFFIXES)


def files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Likewise the files with these suffixes, written in either case."""
    return _entries(folder, lambda path: path.suffix.lower() in suffixes and path.is_file())


def folders(folder: Path) -> list[Path]:
    """The folders directly in a folder, by name."""
    return _entries(folder, Path.is_dir)


def masks(folder: Path) -> dict[str, Path]:
    """The masks in a folder by the stem of the image they belong to: `000.png` and `000_mask.png` are both of `000`."""
    return {path.stem.removesuffix("_mask"): path for path in images(folder)}


def samples(folder: Path, kind: str, domain: str = SOURCE, truth: Mapping[str, Path] | None = None) -> list[Sample]:
    """A folder of one kind and domain; every kind but `good` is anomalous."""
    return [sample(path, kind, domain, (truth or {}).get(path.stem)) for path in images(folder)]


def sample(path: Path, kind: str, domain: str = SOURCE, mask: Path | None = None) -> Sample:
    bad = kind != GOOD
    return Sample(path, anomalous=bad, kind=kind, domain=domain, mask=mask if bad else None)


def dataset(
    name: str, category: str, root: Path, train: Iterable[Sample], test: Iterable[Sample], notes: Iterable[str] = ()
) -> Dataset:
    """A category in a fixed order, the source domain first, with a note on all that a reader of results should know."""
    fitted = tuple(sorted(train, key=lambda s: s.path))
    tested = tuple(sorted(test, key=lambda s: (s.domain != SOURCE, s.domain, s.path)))
    if not fitted:
        raise NfadError(f"{name} {category} in {root} has no training images; is it complete?")
    bad = [s for s in tested if s.anomalous]
    unmarked = sum(s.mask is None for s in bad)
    found = [*notes]
    found += [f"{category}: the test has no good images"] if len(bad) == len(tested) else []
    found += [f"{category}: the test has no anomalous images"] if not bad else []
    found += [f"{category}: {unmarked} of {len(bad)} anomalous test images have no mask"] if unmarked else []
    read = Dataset(name, category, fitted, tested, tuple(found))
    return replace(read, notes=read.notes + count_notes(read))


def absent(title: str, root: Path, wanted: str) -> NfadError:
    """The error for a wrong root: what was looked for there, and what is there instead."""
    return NfadError(f"{title} was not found in {root}: looked for {wanted}; found {contents(root)}")


def contents(root: Path) -> str:
    """The first few names in a folder, for a message."""
    if not root.is_dir():
        return "a file, not a folder" if root.exists() else "no such folder"
    names = [path.name for path in _entries(root, lambda path: True)]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "an empty folder"


def check_category(title: str, category: str, known: Sequence[str]) -> None:
    """Refuse an unknown category before it becomes part of a path."""
    if category not in known:
        raise NfadError(f"{title} has no category {category!r} here; it has {', '.join(known)}")


def inside(root: Path, name: object, source: Path) -> Path:
    """A file named by a list that came with the data; the name may not lead out of `root`.

    Only the name is judged, on any system's terms: links on disk are the user's own doing.
    """
    pure = PureWindowsPath(name) if isinstance(name, str) else PureWindowsPath()
    if not pure.parts or pure.anchor or ".." in pure.parts or "\0" in str(name):
        raise NfadError(f"{source} names the file {name!r}; names must be relative and stay inside {root}")
    return root / str(name)


def check_listed(paths: Sequence[Path], source: Path) -> None:
    """Refuse a list whose files are not all there: results on the rest would not be comparable."""
    gone = [path for path in paths if not path.is_file()]
    if gone:
        raise NfadError(
            f"{source} lists {len(paths)} files of which {len(gone)} are missing, {gone[0]} for one; "
            "download or extract the rest"
        )


def _entries(folder: Path, keep: Callable[[Path], bool]) -> list[Path]:
    """Archives made on macOS carry `__MACOSX` and a `._x` beside every x: all hidden names are litter."""
    try:
        found = [p for p in folder.iterdir() if not p.name.startswith(".") and p.name != "__MACOSX" and keep(p)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        raise NfadError(f"{folder} can't be listed: {problem.strerror}") from problem
    return sorted(found)
