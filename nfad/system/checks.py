"""Whether a setting is what it should be: its type, its words, its range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nfad.errors import NfadError


def check_type(name: str, kind: str, value: Any) -> None:
    """A setting may come from a command line or a file: its type is checked before anything is computed."""
    if value is None and kind.endswith("| None"):
        return
    kind = kind.removesuffix(" | None")

    def is_number(item: Any) -> bool:
        return isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item)

    def is_whole(item: Any) -> bool:
        return isinstance(item, int) and not isinstance(item, bool)

    fits, rule = {
        "int": (is_whole(value), "a whole number"),
        "float": (is_number(value), "a number"),
        "bool": (isinstance(value, bool), "true or false"),
        "str": (isinstance(value, str), "a word"),
        "tuple[int, ...]": (
            isinstance(value, (list, tuple)) and all(is_whole(item) for item in value),
            "a list of whole numbers, e.g. [2, 4]",
        ),
        "tuple[str, ...]": (
            isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value),
            "words, e.g. a,b",
        ),
        "Mapping[str, int | float]": (
            isinstance(value, Mapping) and all(is_number(item) and item >= 0 for item in value.values()),
            'a number for each family, e.g. {"photometric": 16}',
        ),
    }[kind]
    if not fits:
        raise NfadError(f"{name} must be {rule}; got {value!r}")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise NfadError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def within(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise NfadError(f"{name} must lie between {max(low, 0):g} and {high:g}; got {value:g}")
