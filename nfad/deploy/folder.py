"""An exported detector on disk: the graph's files, and model.json with all that is not arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nfad.errors import NfadError
from nfad.system.files import replacing, sha256_of

FORMAT = 3
METADATA = "model.json"
NEEDED = ("backend", "input", "families", "threshold", "held_out", "normals", "fitted_on", "config", "teacher", "files")
GRAPHS = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}


def write_metadata(folder: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """model.json, with the checksums of the graph's files beside it."""
    files = {name: sha256_of(folder / name) for name in GRAPHS[metadata["backend"]]}
    metadata = {"format": FORMAT, **metadata, "files": files}
    with replacing(folder / METADATA) as file:
        file.write((json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode())
    return metadata


def read_metadata(folder: Path) -> dict[str, Any]:
    """The checked contents of model.json; its graph is whole."""
    path = folder / METADATA
    if not path.is_file():
        raise NfadError(f"{path} does not exist; name a folder written by `nfad export`")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        version = metadata["format"]
    except (ValueError, KeyError, TypeError):
        raise _incomplete(path) from None
    if version != FORMAT:
        raise NfadError(f"{path} has format {version}, this nfad reads {FORMAT}; export the model again")
    if any(name not in metadata for name in NEEDED) or metadata["backend"] not in GRAPHS:
        raise _incomplete(path)
    for name, wanted in metadata["files"].items():
        if not (folder / name).is_file():
            raise NfadError(f"{folder / name} is missing; copy the folder again")
        if sha256_of(folder / name) != wanted:
            raise NfadError(f"{folder / name} was changed after the export (its checksum differs); export it again")
    return metadata


def _incomplete(path: Path) -> NfadError:
    return NfadError(f"{path} was not written by `nfad export`, or is incomplete; copy the folder again")
