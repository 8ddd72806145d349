"""Routes: logging the page in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from nfad import __version__
from nfad.service.errors import ApiError
from nfad.service.routes.dependencies import ServiceDep, errors
from nfad.service.schemas import Me, TokenIn
from nfad.service.security import COOKIE, is_authenticated, session_cookie, tokens_match
from nfad.service.throttle import TokenThrottle

router = APIRouter(prefix="/v1", tags=["Page"])
COOKIE_SECONDS = 30 * 24 * 3600


@router.post("/login", status_code=204, summary="Get the page's cookie", responses=errors(400, 413, 429))
def login(request: Request, service: ServiceDep, given: TokenIn) -> Response:
    token = service.settings.token
    if token is None:
        raise ApiError(400, "this service has no token; there is nothing to log in to")
    throttle: TokenThrottle = request.app.state.logins
    client = request.client.host if request.client else ""
    throttle.check(client)
    if not tokens_match(given.token, token):
        throttle.failed(client)
        raise ApiError(403, "that is not the token of this service")
    response = Response(status_code=204)
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, session_cookie(token), max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure
    )
    return response


@router.post("/logout", status_code=204, summary="Drop the page's cookie", responses=errors())
def logout() -> Response:
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/me", summary="Whether a login is needed", responses=errors())
def me(request: Request, service: ServiceDep) -> Me:
    token = service.settings.token
    logged_in = is_authenticated(request.headers, token)
    return Me(login_needed=token is not None, logged_in=logged_in, version=__version__)
