"""An exported detector on disk: the graph's files, and model.json with all that is not arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfad.deploy.seal import check_seal, sealed, unique
from nfad.errors import NfadError
from nfad.system.files import replacing, sha256_of

FORMAT = 6
READ = (5, FORMAT)  # folders of 5 count all views of a normal at once
METADATA = "model.json"
NEEDED = ("backend", "input", "families", "threshold", "held_out", "normals", "fitted_on", "config", "teacher", "files")
GRAPHS = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}
LARGEST_SCORE = 1e6  # in a normal map's spreads: above it every part passes, or none


def write_metadata(folder: Path, metadata: dict[str, Any], key: bytes | None = None) -> dict[str, Any]:
    """model.json, with the checksums of the graph's files beside it and a seal; signed if there is a key."""
    files = {name: sha256_of(folder / name) for name in GRAPHS[metadata["backend"]]}
    metadata = sealed({"format": FORMAT, **metadata, "files": files}, key)
    with replacing(folder / METADATA) as file:
        file.write((json.dumps(metadata, indent=2, ensure_ascii=False) + "\n").encode())
    return metadata


def read_metadata(folder: Path, key: bytes | None = None) -> dict[str, Any]:
    """The checked contents of model.json: as they were written, and so is the graph; with a key, by whoever has it."""
    path = folder / METADATA
    if not path.is_file():
        raise NfadError(f"{path} does not exist; name a folder written by `nfad export`")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
        version = metadata["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _incomplete(path) from None
    if version not in READ:
        raise NfadError(f"{path} has format {version}, this nfad reads {READ[0]} to {FORMAT}; export the model again")
    check_seal(metadata, path, key)
    graphs = GRAPHS.get(metadata.get("backend"), ())
    if any(name not in metadata for name in NEEDED) or set(metadata["files"]) != set(graphs) or not graphs:
        raise _incomplete(path)
    _check_scores(metadata, path)
    for name, wanted in metadata["files"].items():
        if not (folder / name).is_file():
            raise NfadError(f"{folder / name} is missing; copy the folder again")
        if sha256_of(folder / name) != wanted:
            raise NfadError(f"{folder / name} was changed after the export (its checksum differs); export it again")
    return metadata


def others_of(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The teachers beside the first, of an export's metadata, or of a model file's header, which holds each look within
    the one before."""
    beside = header.get("beside") or []
    if isinstance(beside, Mapping):  # so it was in exports, too, when there were two at the most
        return [beside.get("teacher", beside), *others_of(beside)]
    return list(beside)


def _check_scores(metadata: dict[str, Any], path: Path) -> None:
    """Also of a folder whose seal holds: a program that goes wrong seals what it writes."""
    held_out = metadata["held_out"]
    scores = [metadata["threshold"], *(score for name in held_out if name != "images" for score in held_out[name])]
    for score in scores:
        if not (math.isfinite(score) and abs(score) <= LARGEST_SCORE):
            raise NfadError(
                f"{path} holds the score {score:g} among its normals' and the threshold; none is above "
                f"{LARGEST_SCORE:g} in any model: fit and export it again"
            )


def _incomplete(path: Path) -> NfadError:
    return NfadError(f"{path} was not written by `nfad export`, or is incomplete; copy the folder again")
