"""The overlay pictures of a run, in a folder that may hold those of an earlier one and what is not ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from nfad.errors import NfadError
from nfad.system.files import LONGEST_NAME, cut_name, replacing, sha256_of, strict_json, writing

WRITTEN = ".written.json"  # in overlays/: the names and SHA-256 of what the last run left there


def picture_name(image: Path) -> str:
    """The image's own with a suffix more; one that is too long for that is cut, and bears a hash to be itself."""
    name = f"{image.name}.png"
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    end = f"-{hashlib.sha256(os.fsencode(image.name)).hexdigest()[:12]}.png"
    return cut_name(image.stem, LONGEST_NAME - len(end)) + end


@contextmanager
def pictures_in(folder: Path) -> Iterator[Path]:
    """A scratch folder whose files take the places of an earlier run's in `folder` when the block ends well.

    What that run wrote is known from WRITTEN, by name and content; what else lies there stays.
    """
    if folder.exists() and not folder.is_dir():
        raise NfadError(f"{folder} is a file; remove it, or name another folder to write into")
    with writing(folder):
        scratch = Path(mkdtemp(prefix=".nfad-", suffix=".tmp", dir=folder.parent))
    try:
        yield scratch
        try:
            files = [path for path in scratch.rglob("*") if path.is_file()]
            written = {str(file.relative_to(scratch)): sha256_of(file) for file in files}
            for name in written:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(scratch / name, folder / name)
            _remove_earlier(folder, written)
            if written:
                with replacing(folder / WRITTEN) as file:
                    file.write(strict_json(written).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise NfadError(f"cannot write {folder}: {error.strerror or error}; is something else there?") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_earlier(folder: Path, written: Container[str]) -> None:
    """Take away the pictures that WRITTEN names, are as they were written and not written again; a list that is none
    names none."""
    try:
        earlier = json.loads((folder / WRITTEN).read_bytes())
        pairs = [(folder / name, sha256) for name, sha256 in earlier.items() if name not in written]
    except (OSError, ValueError, AttributeError):
        return
    for path, sha256 in pairs:
        inside = path.resolve().is_relative_to(folder.resolve()) and path.suffix == ".png"
        if inside and path.is_file() and not path.is_symlink() and sha256_of(path) == sha256:
            path.unlink()
            with contextlib.suppress(OSError):  # others are still in it
                for parent in path.relative_to(folder).parents[:-1]:
                    (folder / parent).rmdir()
    (folder / WRITTEN).unlink()
