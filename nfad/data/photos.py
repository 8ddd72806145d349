"""The photos a user names: folders, files, and lists of paths."""

from __future__ import annotations

from pathlib import Path

from nfad.errors import NfadError
from nfad.vision.pixels import find_images


def images_in(folder: Path) -> list[Path]:
    """The images below a folder, of which there must be some."""
    found = list(find_images(folder))
    if not found:
        raise NfadError(f"{folder} holds no images; give a folder with PNG, JPEG, TIFF, BMP or WebP files")
    return found


def images_of(places: list[Path]) -> list[Path]:
    """The images of several folders, files and lists (.txt, a path a line), each once, in that order."""
    found: list[Path] = []
    for place in places:
        found += _listed(place) if place.suffix == ".txt" else [place] if place.is_file() else images_in(place)
    return list(dict.fromkeys(found))


def _listed(path: Path) -> list[Path]:
    """Paths are taken from the list's own folder."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NfadError(f"the list {path} cannot be read: {error}; write one path a line, as UTF-8") from None
    found = [path.parent / line.strip() for line in lines if line.strip()]
    missing = [each for each in found if not each.is_file()]
    if missing or not found:
        what = f"names {missing[0]}, which does not exist" if missing else "is empty"
        raise NfadError(f"the list {path} {what}; write one image's path a line, from the list's own folder")
    return found
