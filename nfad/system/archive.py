"""A tar that tells whether it is whole: its last member, SHA256SUMS, names all others in their order.

Not compressed: photos are, and so nothing in it can be larger than itself. `tar x` and `sha256sum -c` read it too.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from nfad.errors import NfadError
from nfad.system.files import writing

SUMS = "SHA256SUMS"
CHUNK = 1 << 20


Add = Callable[[str, IO[bytes]], None]


@contextmanager
def archive(file: IO[bytes]) -> Iterator[Add]:
    """What adds a member: its name, and an open file that does not change meanwhile. Whole if the block ends well."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar, TemporaryFile() as sums:

        def add(name: str, content: IO[bytes]) -> None:
            member, counted = tarfile.TarInfo(name), _Hashing(content)
            member.size = content.seek(0, 2)
            content.seek(0)
            tar.addfile(member, counted)
            sums.write(f"{counted.sha256.hexdigest()}  {name}\n".encode())

        yield add
        last = tarfile.TarInfo(SUMS)
        last.size = sums.tell()
        sums.seek(0)
        tar.addfile(last, sums)


def extract(path: Path, folder: Path, allowed: re.Pattern[str]) -> None:
    """All members into an empty folder; fails if one is not of the allowed names, changed, missing or too many."""
    broken = f"{path} is not a whole backup (%s); take another copy of it"
    try:
        with tarfile.open(path, "r:") as tar, TemporaryFile() as sums:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                if source is not None and member.name == SUMS:
                    _compare(source, sums, broken)
                    return
                place = folder / member.name
                if source is None or not allowed.fullmatch(member.name) or place.exists():
                    raise NfadError(broken % f"it holds {member.name[:100]!r}, which no backup does")
                with writing(place):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with place.open("xb") as file:
                        counted = _Hashing(source)
                        shutil.copyfileobj(counted, file, CHUNK)
                sums.write(f"{counted.sha256.hexdigest()}  {member.name}\n".encode())
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise NfadError(broken % error) from None
    raise NfadError(broken % "its end is missing")


def _compare(given: IO[bytes], computed: IO[bytes], broken: str) -> None:
    computed.seek(0)
    while True:
        wanted, found = given.readline(10_000), computed.readline(10_000)
        if wanted != found:
            name = (wanted or found).decode("utf-8", "replace")[66:166].strip()
            raise NfadError(broken % f"the checksum of {name} differs")
        if not wanted:
            return


class _Hashing:
    """A file to read that adds up what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.sha256.update(piece)
        return piece
