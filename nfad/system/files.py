"""Files that appear whole or not at all, also when the power fails."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedWriter, FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from nfad.errors import NfadError

LONGEST_NAME = 255  # bytes of a file's name, on nearly every file system


@contextmanager
def replacing(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that takes the name `path` once the block ends well, and vanishes if it does not.

    If `durable`, its content is on the disk before it has the name, and the name before this returns: a power cut
    leaves the old file or the new one. What can be made again, e.g. a picture, need not wait for the disk.
    What the block does besides writing to the file may fail as it likes: only an error of writing is told as one.
    Not from `tempfile`: its files can be read by their owner only, and what is written here is made to be passed on.
    """
    path = Path(path)
    temporary = path.with_name(f".nfad-{secrets.token_hex(6)}.tmp")
    with writing(path):
        raw = _Unbuffered(temporary, path)
    try:
        file = BufferedWriter(raw)
        yield file
        with writing(path):
            file.flush()
            if durable:
                os.fsync(file.fileno())
            file.close()
            os.replace(temporary, path)
            if durable:
                sync_folder(path.parent)
    finally:
        raw.close()  # without what is still in the buffer, where the block failed
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """All that the block does is to write `path`: its OSError is told as that."""
    try:
        yield
    except OSError as error:
        raise NfadError(
            f"cannot write {path}: {error.strerror or error}; it needs an existing folder with room and permission."
        ) from error


class _Unbuffered(FileIO):
    """A new file on its way to be `path`, whose errors of writing say so."""

    def __init__(self, temporary: Path, path: Path) -> None:
        super().__init__(temporary, "x")
        self._path = path

    def write(self, data: Any) -> int:
        with writing(self._path):
            return super().write(data)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """The same for a folder that must not exist yet."""
    if path.exists():
        raise NfadError(f"{path} exists; choose another name or remove it first")
    temporary = path.with_name(f".nfad-{secrets.token_hex(6)}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
        temporary.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(file: Path, message: str) -> Iterator[None]:
    """Hold a lock that one process at a time can have; if another has it, fail at once with `message`.

    `file` is made beside what it protects and means nothing else. The lock is SQLite's exclusive one: every system has
    it, and a killed process leaves none. It may be let go of in another thread than it was taken in.
    """
    lock = None
    try:
        lock = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if lock is not None:
            lock.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise NfadError(message) from None
        raise NfadError(f"cannot lock {file} ({error}); it needs a local folder with permission to write") from None
    try:
        yield
    finally:
        lock.close()


def sync_tree(folder: Path) -> None:
    """All that is in a folder is on the disk."""
    for place in [*folder.rglob("*"), folder]:
        if place.is_dir():
            sync_folder(place)
        else:
            with place.open("rb") as written:
                os.fsync(written.fileno())


def sync_folder(folder: Path) -> None:
    """A rename lasts once its folder is synced; systems that cannot sync a folder order renames by themselves."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sha256_of(path: Path) -> str:
    """Of a file's content, whatever its size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scratch_beside(path: str | Path) -> BinaryIO:
    """A nameless file on the same disk as `path`, gone when closed; fails now if `path` cannot be written later."""
    with writing(path):
        return TemporaryFile(dir=Path(path).parent)


def ready_folder(path: str | Path) -> Path:
    """The folder, made if need be; fails now if nothing can be written into it later."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise NfadError(f"{path} is a file; name a folder to write into")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    scratch_beside(path / "any").close()
    return path


def cut_name(name: str, most: int) -> str:
    """As much of a file's name as fits into so many bytes, in whole letters."""
    given = os.fsencode(name)
    return name if len(given) <= most else given[:most].decode("utf-8", "ignore")


def inert(cell: object) -> object:
    """A cell of a CSV file that no spreadsheet takes for a formula; numbers, also as text, stay as they are."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def strict_json(value: Any) -> str:
    """JSON that every parser takes: what is not a finite number is null."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """The same with None for NaN and infinities, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
