"""An exported detector on disk: the graph's files, and model.json with all that is not arithmetic."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nfad.errors import NfadError

FORMAT = 1
FACTS = "model.json"
NEEDED = ("backend", "input", "families", "threshold", "held_out", "normals", "fitted_on", "config", "teacher", "files")
GRAPHS = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into that takes the name `path` once the block ends well, and vanishes if it does not."""
    if path.exists():
        raise NfadError(f"{path} exists; choose another name or remove it first")
    temporary = path.with_name(f".nfad-{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise NfadError(f"cannot write {path}: {error.strerror}; it needs a folder with room and permission") from None
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_facts(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """model.json, with the checksums of the graph's files beside it."""
    files = {name: sha256(folder / name) for name in GRAPHS[facts["backend"]]}
    facts = {"format": FORMAT, **facts, "files": files}
    (folder / FACTS).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return facts


def read_facts(folder: Path) -> dict[str, Any]:
    """The checked contents of model.json; its graph is whole."""
    path = folder / FACTS
    if not path.is_file():
        raise NfadError(f"{path} does not exist; name a folder written by `nfad export`")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts["format"]
    except (ValueError, KeyError, TypeError):
        raise _incomplete(path) from None
    if version != FORMAT:
        raise NfadError(f"{path} has format {version}, this nfad reads {FORMAT}; export the model again")
    if any(name not in facts for name in NEEDED) or facts["backend"] not in GRAPHS:
        raise _incomplete(path)
    for name, wanted in facts["files"].items():
        if not (folder / name).is_file():
            raise NfadError(f"{folder / name} is missing; copy the folder again")
        if sha256(folder / name) != wanted:
            raise NfadError(f"{folder / name} was changed after the export (its checksum differs); export it again")
    return facts


def _incomplete(path: Path) -> NfadError:
    return NfadError(f"{path} was not written by `nfad export`, or is incomplete; copy the folder again")
