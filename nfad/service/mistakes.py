"""What is wrong with a request, in our words: the name of the parameter, the rule, and what was given instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nfad.service.record import as_text

UNREADABLE = "the body cannot be read; send a small JSON object in UTF-8"
OBJECT = "send the body as a JSON object, with the header Content-Type: application/json"
PLACES = {"query": "", "path": " in the address", "body": " in the body"}
# By the validator's kind of mistake, up to the first word that tells kinds of the same rule apart.
RULES = {
    "bool": "must be true or false",
    "datetime": "must be a moment such as 2026-03-02T09:00:00Z, whose + for a zone is %2B in an address",
    "float": "must be a number such as 0.05",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int": "must be a whole number",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "string": "must be text",
    "string_pattern_mismatch": "must be an inspection's id, 22 digits of 0-9 and a-f, taken from an answer",
    "string_too_long": "may have at most {max_length} characters",
}
SHOWN = 60  # characters of what was given
SECRET = "token"


def sentence_of(mistake: Mapping[str, Any]) -> str:
    """One of a RequestValidationError's mistakes, as one sentence."""
    kind, (place, *names) = mistake["type"], mistake["loc"]
    if kind == "json_invalid":
        return f"the body is not JSON from its character {names[0] + 1} on; send a JSON object"
    if not names:
        return OBJECT
    name = _short(".".join(map(str, names)))
    where = f"{name}{PLACES[place]}"
    if kind == "missing":
        return f"{where} is missing; add it"
    if kind == "extra_forbidden":
        return f"{where} is not known; leave it out"
    rule = RULES.get(kind) or RULES.get(kind.split("_")[0], "is not as /openapi.json describes it")
    return f"{where} {rule.format(**mistake.get('ctx', {}))}; got {_given(name, mistake['input'])}"


def _given(name: str, value: Any) -> str:
    """What was given, if it is short and no secret."""
    if isinstance(value, str) and (len(value) > SHOWN or name == SECRET):
        return f"{len(value)} characters"
    if name == SECRET or isinstance(value, (dict, list)):
        return {dict: "an object", list: "a list"}.get(type(value), "something else")
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return as_text(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…", SHOWN)
