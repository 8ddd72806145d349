"""The application: routes and the page's files, behind authentication and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from nfad import __version__
from nfad.service.errors import add_error_handlers
from nfad.service.logs import RequestIds
from nfad.service.routes import changes, health, history, inspections, models, pictures, review, session
from nfad.service.routes.dependencies import ConcurrentUploads
from nfad.service.security import Authentication, BodyLimit, LingeringClose
from nfad.service.service import Service
from nfad.service.throttle import TokenThrottle

# Not asked of the system: some tell browsers that scripts are plain text, which they then refuse.
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
ABOUT = "Judge images against a model of good parts; every inspection is kept. See docs/service.md."
ROUTES = (inspections, history, pictures, models, review, changes, session, health)


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
    app.state.uploads = ConcurrentUploads(service.settings.uploads_at_once)
    app.state.logins = TokenThrottle()
    for routes in ROUTES:
        app.include_router(routes.router)
    add_error_handlers(app)
    page = _page()
    for address, (content, media_type) in page.items():
        app.add_api_route(address, _static(content, media_type), include_in_schema=False)
    limited = BodyLimit(app, inspections.UPLOAD_PATHS)
    guarded = Authentication(limited, service.access, page, TokenThrottle())
    return RequestIds(LingeringClose(guarded, service.settings.upload_limit))


def _page() -> dict[str, tuple[bytes, str]]:
    """The page's files by address, read once: no request ever becomes a path. Its colours are the reports'."""
    found = {}
    for file in (*(files("nfad.service") / "page").iterdir(), files("nfad.report") / "templates" / "palette.css"):
        if file.is_file() and not file.name.startswith((".", "__")):
            media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
            found["/" if file.name == "index.html" else f"/{file.name}"] = (file.read_bytes(), media_type)
    return found


def _static(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return send
