"""`nfad serve`: judge images over HTTP and keep every inspection."""

from __future__ import annotations

import importlib.util
import signal
import socket
import ssl
import sys
from contextlib import closing
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
    lock: Annotated[
        bool, typer.Option("--lock", help="Only tokens of the role administer may change the false-alarm rate.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM, with its chain): serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    trust_proxy: Annotated[
        str | None,
        typer.Option(
            help="Addresses of proxies whose X-Forwarded-For and -Proto are believed, e.g. 10.0.0.5,127.0.0.1.",
            show_default="none is believed",
        ),
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
    log_format: Annotated[
        str, typer.Option(help="text: warnings; json: a line a request too, with its time and id.")
    ] = "text",
    silent_after: Annotated[
        float | None, typer.Option(help="Seconds without a photo that are an alarm.", show_default="none are")
    ] = None,
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
    from nfad.service.logs import configure
    from nfad.service.service import open_service
    from nfad.service.settings import MEGABYTE, Retention, Settings, is_local

    _check_tls(tls_cert, tls_key)
    if log_format not in ("text", "json"):
        raise NfadError(f"--log-format takes text or json; got {log_format}")
    configure(log_format)
    settings = Settings(
        data=data,
        db=db,
        host=host,
        port=port,
        token=token,
        has_tokens=token is None and not is_local(host) and _has_tokens(data, db),
        locked=lock,
        retention=None if keep is None else Retention.parse(keep),
        places=queue,
        upload_limit=upload_limit * MEGABYTE,
        least_free=least_free * MEGABYTE,
        silent_after=silent_after,
    )
    uninterrupted()
    with _listener(host, port) as listener:  # an address that is taken is told of now, not after loading the models
        service = open_service(settings, models, lambda path: load_model(path, weights, threads, key, device))
        for each in filter(None, (model.note for model in service.models.values())):
            note(each)
        reached = socket.gethostname() if host in ("0.0.0.0", "::") else host  # what others can type
        open_at = _address(reached, port, "https" if tls_cert else "http")
        err.print(f"Serving {escape(', '.join(service.models))} at {open_at}; Ctrl-C stops.", soft_wrap=True)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn finishes what waits, then passes the signal on
            signal.signal(number, lambda *_: sys.exit(0))
        config = uvicorn.Config(
            create_app(service),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=trust_proxy is not None,
            forwarded_allow_ips=trust_proxy or "",
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
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


def _address(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _has_tokens(data: Path, db: str | None) -> bool:
    """Whether the station has tokens of its own, also revoked ones."""
    from nfad.service.access import all_tokens
    from nfad.service.settings import DATABASE
    from nfad.service.store import Store

    if db is None and not (data / DATABASE).is_file():
        return False
    with closing(Store(db or f"sqlite:///{(data / DATABASE).resolve()}")) as store:
        return bool(all_tokens(store.engine))


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    """A pair that does not belong together is told of now."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise NfadError("--tls-cert and --tls-key belong together; give both")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise NfadError(
            f"{certificate} and {key} are no certificate with its key ({error}); give PEM files, the key not encrypted"
        ) from None
