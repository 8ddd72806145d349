"""`nfad serve`: judge images over HTTP and keep every inspection."""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.options import Device, Key, Weights
from nfad.cli.terminal import err, note
from nfad.errors import NfadError
from nfad.system.platform import uninterrupted

NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "python_multipart", "prometheus_client")


def serve(
    models: Annotated[
        list[str],
        typer.Argument(help="Models written by `nfad fit` or `nfad export`, known by their file's name, or NAME=PATH."),
    ],
    data: Annotated[Path, typer.Option(help="Folder for photos, maps and the database.")] = Path("inspections"),
    db: Annotated[
        str | None,
        typer.Option(envvar="NFAD_DB", help="E.g. postgresql://user@host/nfad.", show_default="SQLite in the folder"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="NFAD_TOKEN", help="What clients must send, at least 16 characters.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Keep the pictures of so many inspections (50000) or days (30d).", show_default="all; records always"
        ),
    ] = None,
    queue: Annotated[int, typer.Option(help="Images that may wait for a model.", min=1)] = 32,
    threads: Annotated[
        int | None, typer.Option(help="Cores each model judges with.", min=1, show_default="all of them")
    ] = None,
    upload_limit: Annotated[int, typer.Option(help="Megabytes an image may have.", min=1)] = 64,
    least_free: Annotated[int, typer.Option(help="Megabytes of the disk never to be used.", min=0)] = 500,
    weights: Weights = None,
    device: Device = "auto",
    key: Key = None,
) -> None:
    """Judge images over HTTP: verdicts, maps, history, reviews, drift, and a page for the line.

    An inspection is answered once it is kept, and survives a crash. Stop with Ctrl-C or SIGTERM: what is waiting is
    finished. Programs talk to /v1 as docs/service.md says; people open the page. History and the false-alarm rate that
    was set belong to a model's name: with NAME=PATH a better file takes it over.

    Example: nfad serve bottle.nfad line-3=models/cap-v2.nfad --data inspections --keep 30d
    """
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        raise NfadError(f"the service needs {', '.join(missing)}; run: pip install 'nfad[serve]'")
    import uvicorn

    from nfad.model import load_model
    from nfad.service.app import create_app
    from nfad.service.service import open_service
    from nfad.service.settings import MEGABYTE, Retention, Settings

    settings = Settings(
        data=data,
        db=db,
        host=host,
        port=port,
        token=token,
        retention=None if keep is None else Retention.parse(keep),
        places=queue,
        upload_limit=upload_limit * MEGABYTE,
        least_free=least_free * MEGABYTE,
    )
    uninterrupted()
    with _listener(host, port) as listener:  # an address that is taken is told of now, not after loading the models
        service = open_service(settings, models, lambda path: load_model(path, weights, threads, key, device))
        for each in filter(None, (model.note for model in service.models.values())):
            note(each)
        open_at = _address(socket.gethostname() if host in ("0.0.0.0", "::") else host, port)  # what others can type
        err.print(f"Serving {escape(', '.join(service.models))} at {open_at}; Ctrl-C stops.", soft_wrap=True)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn finishes what waits, then passes the signal on
            signal.signal(number, lambda *_: sys.exit(0))
        config = uvicorn.Config(
            create_app(service),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=60,
            http="h11",  # what a bad request is should not depend on which parsers are installed
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=512)
        # Its connections inherit it. Without, an answer in two pieces waits 40 ms for the first to be acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise NfadError(f"cannot listen at {_address(host, port)}: {error.strerror}; choose another --port") from None


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
