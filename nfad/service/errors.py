"""What a client gets instead of a result: an HTTP status and {"error": one sentence}."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nfad.errors import NfadError
from nfad.service.record import as_text

log = logging.getLogger("nfad.service")
MALFORMED_BODY = "the body cannot be read; send a small JSON object in UTF-8"
NOT_AN_OBJECT = "send the body as a JSON object, with the header Content-Type: application/json"
ROUTING = {400: MALFORMED_BODY, 404: "there is nothing at this address", 405: "this address does not take that method"}
PLACES = {"query": "", "path": " in the address", "body": " in the body"}
# By pydantic's type of error; where that is not listed, by its first word, e.g. int for int_parsing and int_type.
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


class ApiError(NfadError):
    """A request that gets no result. `retry_after` is in seconds, where the same request may succeed later."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def add_error_handlers(app: FastAPI) -> None:
    """Every error becomes {"error": one sentence} and is counted; details of internal errors go to the log only."""

    def response(request: Request, status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        request.app.state.service.metrics.refused.labels(status).inc()
        return JSONResponse({"error": message}, status, headers)

    @app.exception_handler(ApiError)
    def api_error(request: Request, error: ApiError) -> JSONResponse:
        return response(request, error.status, str(error), error.headers)

    @app.exception_handler(NfadError)
    def bad_request(request: Request, error: NfadError) -> JSONResponse:
        return response(request, 400, str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return response(request, 422, validation_message(error.errors()[0]))

    @app.exception_handler(HTTPException)
    def routing(request: Request, error: HTTPException) -> JSONResponse:
        message = ROUTING.get(error.status_code, str(error.detail))
        return response(request, error.status_code, message, error.headers)

    @app.exception_handler(ClientDisconnect)
    def disconnected(request: Request, error: ClientDisconnect) -> JSONResponse:
        return response(request, 499, "the client has hung up")  # nobody reads it, but it is counted

    @app.exception_handler(SQLAlchemyError)
    def no_database(request: Request, error: SQLAlchemyError) -> JSONResponse:
        log.error("the database failed: %s", getattr(error, "orig", error))
        return response(request, 503, "the database does not answer; try again", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    def internal(request: Request, error: Exception) -> JSONResponse:
        return response(request, 500, "the service failed; its log says more")


def validation_message(error: Mapping[str, Any]) -> str:
    """One of pydantic's validation errors as a sentence: the parameter, the rule, and what was given instead."""
    kind, (place, *names) = error["type"], error["loc"]
    if kind == "json_invalid":
        return f"the body is not JSON from its character {names[0] + 1} on; send a JSON object"
    if not names:
        return NOT_AN_OBJECT
    name = _short(".".join(map(str, names)))
    where = f"{name}{PLACES[place]}"
    if kind == "missing":
        return f"{where} is missing; add it"
    if kind == "extra_forbidden":
        return f"{where} is not known; leave it out"
    rule = RULES.get(kind) or RULES.get(kind.split("_")[0], "is not as /openapi.json describes it")
    return f"{where} {rule.format(**error.get('ctx', {}))}; got {_given(name, error['input'])}"


def _given(name: str, value: object) -> str:
    """What was given, if it is short and no secret."""
    if isinstance(value, str) and (len(value) > SHOWN or name == SECRET):
        return f"{len(value)} characters"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "something else" if name == SECRET else _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return as_text(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…", SHOWN)
