"""The application: routes, the guard before them, one shape for every refusal, and the page."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from nfad import __version__
from nfad.errors import NfadError
from nfad.service import history, inspecting, steering
from nfad.service.answers import Health, Me, TokenIn
from nfad.service.mistakes import UNREADABLE, sentence_of
from nfad.service.refusal import Refused
from nfad.service.routes import Here, Uploads, refusals
from nfad.service.security import COOKIE, Brevity, Guard, Patience, cookie_of, is_known, is_token
from nfad.service.service import Service

log = logging.getLogger("nfad.service")
# Not asked of the system: some tell browsers that scripts are plain text, which they then refuse.
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COOKIE_SECONDS = 30 * 24 * 3600
ABOUT = "Judge images against a model of good parts; every inspection is kept. See docs/service.md."


def create_app(service: Service) -> ASGIApp:
    """The whole service as one ASGI application, which closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="nfad", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = service
    app.state.uploads = Uploads(service.settings.uploads_at_once)
    for part in (inspecting, history, steering):
        app.include_router(part.router)
    _add_own(app)
    _add_errors(app)
    page = _page()
    for address, (content, kind) in page.items():
        app.add_api_route(address, _file(content, kind), include_in_schema=False)
    guarded = Guard(Brevity(app, inspecting.ADDRESSES), service.settings.token, page)
    return Patience(guarded, service.settings.upload_limit)


def _add_own(app: FastAPI) -> None:
    """Logging in, and what machines ask."""

    @app.post(
        "/v1/login", status_code=204, summary="Get the page's cookie", responses=refusals(400, 413), tags=["Page"]
    )
    def login(request: Request, here: Here, given: TokenIn) -> Response:
        token = here.settings.token
        if token is None:
            raise Refused(400, "this service has no token; there is nothing to log in to")
        if not is_token(given.token, token):
            raise Refused(403, "that is not the token of this service")
        answer = Response(status_code=204)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, cookie_of(token), max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return answer

    @app.post("/v1/logout", status_code=204, summary="Drop the page's cookie", responses=refusals(), tags=["Page"])
    def logout() -> Response:
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    @app.get("/v1/me", summary="Whether a login is needed", responses=refusals(), tags=["Page"])
    def me(request: Request, here: Here) -> Me:
        token = here.settings.token
        return Me(login_needed=token is not None, logged_in=is_known(request.headers, token), version=__version__)

    @app.get("/healthz", summary="Whether all is well", responses=refusals(), tags=["Machines"])
    def healthz(here: Here) -> Health:
        """Needs no token."""
        here.store.ping()
        if not all(model.queue.alive for model in here.models.values()):
            raise Refused(503, "a worker has ended; restart the service")
        return Health(status="ok")

    @app.get(
        "/metrics",
        summary="Numbers for Prometheus",
        response_class=Response,
        responses=refusals() | {200: {"content": {"text/plain": {}}}},
        tags=["Machines"],
    )
    def metrics(here: Here) -> Response:
        return Response(here.metrics.text(), media_type=here.metrics.content_type)


def _add_errors(app: FastAPI) -> None:
    """Every refusal is {"error": one sentence}; what went wrong inside stays inside."""

    def told(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
        request.app.state.service.metrics.refused.labels(status).inc()
        return JSONResponse({"error": sentence}, status, headers)

    @app.exception_handler(Refused)
    def refused(request: Request, error: Refused) -> JSONResponse:
        return told(request, error.status, str(error), error.headers)

    @app.exception_handler(NfadError)
    def bad(request: Request, error: NfadError) -> JSONResponse:
        return told(request, 400, str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return told(request, 422, sentence_of(error.errors()[0]))

    @app.exception_handler(HTTPException)
    def routed(request: Request, error: HTTPException) -> JSONResponse:
        sentences = {
            400: UNREADABLE,
            404: "there is nothing at this address",
            405: "this address does not take that method",
        }
        return told(request, error.status_code, sentences.get(error.status_code, str(error.detail)), error.headers)

    @app.exception_handler(ClientDisconnect)
    def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return told(request, 499, "the client has hung up")  # nobody reads it, but it is counted

    @app.exception_handler(SQLAlchemyError)
    def no_database(request: Request, error: SQLAlchemyError) -> JSONResponse:
        log.error("the database failed: %s", getattr(error, "orig", error))
        return told(request, 503, "the database does not answer; try again", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> JSONResponse:
        return told(request, 500, "the service failed; its log says more")


def _page() -> dict[str, tuple[bytes, str]]:
    """The page's files by address, read once: no request ever becomes a path."""
    folder = files("nfad.service") / "page"
    found = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.is_file() and not file.name.startswith((".", "__")):
            kind = KINDS[file.name.rpartition(".")[2]]
            found["/" if file.name == "index.html" else f"/{file.name}"] = (file.read_bytes(), kind)
    return found


def _file(content: bytes, kind: str):
    async def send() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return send
