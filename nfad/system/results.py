"""Finished results of long work, a JSON file each: an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfad.errors import NfadError
from nfad.system.files import replacing, strict_json


def key_of(settings: Mapping[str, Any]) -> str:
    """A short name for all that decides a result."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class ResultCache:
    """Results in a folder, found again by the settings that decide them."""

    folder: Path

    def get(self, settings: Mapping[str, Any]) -> Any | None:
        """What was put there under the same settings, as JSON gives it back; None if nothing was."""
        path = self._path(settings)
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return kept["result"] if kept["settings"] == json.loads(json.dumps(settings)) else None
        except (ValueError, KeyError, TypeError):
            raise NfadError(f"{path} is not a finished result; delete it and run again") from None

    def put(self, settings: Mapping[str, Any], result: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._path(settings)) as file:
            file.write(strict_json({"settings": settings, "result": result}).encode())

    def _path(self, settings: Mapping[str, Any]) -> Path:
        return self.folder / f"{key_of(settings)}.json"
