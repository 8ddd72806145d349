"""Routes: logging the page in and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from nfad import __version__
from nfad.service.access import COOKIE, Caller
from nfad.service.errors import ApiError
from nfad.service.routes.dependencies import ServiceDep, errors, get_caller
from nfad.service.schemas import Me, TokenIn
from nfad.service.throttle import TokenThrottle

router = APIRouter(prefix="/v1", tags=["Page"])
COOKIE_SECONDS = 30 * 24 * 3600


@router.post("/login", status_code=204, summary="Get the page's cookie", responses=errors(400, 413, 429))
def login(request: Request, service: ServiceDep, given: TokenIn) -> Response:
    if service.access.is_open:
        raise ApiError(400, "this service has no token; there is nothing to log in to")
    throttle: TokenThrottle = request.app.state.logins
    client = request.client.host if request.client else ""
    throttle.check(client)
    token = service.access.by_secret(given.token)
    if token is None:
        throttle.failed(client)
        raise ApiError(403, "that is no token of this service, or it was revoked")
    response = Response(status_code=204)
    secure = request.url.scheme == "https"
    value = service.access.cookie(token)
    response.set_cookie(COOKIE, value, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
    return response


@router.post("/logout", status_code=204, summary="Drop the page's cookie", responses=errors())
def logout() -> Response:
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/me", summary="Whether a login is needed", responses=errors())
def me(service: ServiceDep, caller: Annotated[Caller | None, Depends(get_caller)]) -> Me:
    return Me(
        login_needed=not service.access.is_open,
        logged_in=caller is not None,
        version=__version__,
        name=caller and caller.name,
        role=caller and caller.role,  # pyright: ignore[reportArgumentType]
        may_change_verdicts=caller is not None and caller.may(service.settings.role_for_verdicts),
        role_for_verdicts=service.settings.role_for_verdicts,  # pyright: ignore[reportArgumentType]
    )
