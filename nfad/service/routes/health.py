"""Routes: health and metrics, for the machines that watch over the service."""

from __future__ import annotations

from fastapi import APIRouter, Response

from nfad.service.errors import ApiError
from nfad.service.routes.dependencies import ServiceDep, errors, errors_or
from nfad.service.schemas import Health

router = APIRouter(tags=["Machines"])


@router.get("/livez", summary="Whether a restart would help", responses=errors())
def livez(service: ServiceDep) -> Health:
    """503 if one of the service's own threads has ended; what lies outside of it does not count. Needs no token."""
    if not all(model.queue.alive for model in service.models.values()):
        raise ApiError(503, "a worker has ended; restart the service")
    return Health(status="ok")


@router.get("/readyz", summary="Whether it can take images", responses=errors(507))
def readyz(service: ServiceDep) -> Health:
    """Lives, has a database that answers and room on the disk. Needs no token."""
    service.store.ping()
    service.pictures.check_room()
    return livez(service)


@router.get("/healthz", summary="Whether all is well", responses=errors())
def healthz(service: ServiceDep) -> Health:
    """Lives and has a database that answers. Needs no token."""
    service.store.ping()
    return livez(service)


@router.get("/metrics", summary="Numbers for Prometheus", response_class=Response, responses=errors_or("text/plain"))
def metrics(service: ServiceDep) -> Response:
    return Response(service.metrics.text(), media_type=service.metrics.content_type)
