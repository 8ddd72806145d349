"""Routes: health and metrics, for the machines that watch over the service."""

from __future__ import annotations

from fastapi import APIRouter, Response

from nfad.service.errors import ApiError
from nfad.service.routes.dependencies import ServiceDep, errors, errors_or
from nfad.service.schemas import Health

router = APIRouter(tags=["Machines"])


@router.get("/healthz", summary="Whether all is well", responses=errors())
def healthz(service: ServiceDep) -> Health:
    """Needs no token."""
    service.store.ping()
    if not all(model.queue.alive for model in service.models.values()):
        raise ApiError(503, "a worker has ended; restart the service")
    return Health(status="ok")


@router.get("/metrics", summary="Numbers for Prometheus", response_class=Response, responses=errors_or("text/plain"))
def metrics(service: ServiceDep) -> Response:
    return Response(service.metrics.text(), media_type=service.metrics.content_type)
