"""Whether an exported folder is as it was written: a seal over all of it, and a signature for whoever has a key."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfad.errors import NfadError

SEAL, SIGNATURE = "seal", "signature"
SHORTEST_KEY = 16  # bytes; 128 bits are beyond guessing


def read_key(path: str | Path) -> bytes:
    """The content of a key file, every byte of it."""
    try:
        key = Path(path).read_bytes()
    except OSError as error:
        raise NfadError(f"the key {path} cannot be read: {error.strerror or error}") from None
    if len(key) < SHORTEST_KEY:
        raise NfadError(
            f"the key {path} has {len(key)} bytes; at least {SHORTEST_KEY} are needed, e.g. of: openssl rand -out "
            f"{path} 32"
        )
    return key


def sealed(metadata: Mapping[str, Any], key: bytes | None = None) -> dict[str, Any]:
    """The metadata with a seal (SHA-256 of all else), before it a signature (HMAC-SHA256) if there is a key.

    The metadata hold the checksums of the other files, so the seal is one over the whole folder.
    """
    body = {name: value for name, value in metadata.items() if name not in (SEAL, SIGNATURE)}
    if key is not None:
        body[SIGNATURE] = hmac.new(key, _canonical(body), "sha256").hexdigest()
    return body | {SEAL: hashlib.sha256(_canonical(body)).hexdigest()}


def check_seal(metadata: Mapping[str, Any], path: Path, key: bytes | None = None) -> None:
    """Refuse metadata that are not what was sealed and, with a key, what was not signed with it."""
    body = {name: value for name, value in metadata.items() if name != SEAL}
    if hashlib.sha256(_canonical(body)).hexdigest() != metadata.get(SEAL):
        raise NfadError(f"{path} was changed after the export (its seal differs); copy the folder again")
    if key is None:
        return
    if SIGNATURE not in metadata:
        raise NfadError(f"{path} is not signed; export the model with this --key, or leave it out")
    if not hmac.compare_digest(str(metadata[SIGNATURE]).encode(), sealed(body, key)[SIGNATURE].encode()):
        raise NfadError(f"{path} was not signed with this key; use the key of the export, or export the model again")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: of a name that stands twice, readers differ in which they take."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _canonical(value: Mapping[str, Any]) -> bytes:
    """One text for one content: names in order, no white space, ASCII, numbers to their last digit."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
