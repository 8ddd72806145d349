"""The command line: each command calls one library function and says what came of it."""

from __future__ import annotations

import io
import signal
import sys
import threading
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.benchmark import benchmark
from nfad.cli.corrupt import corrupt
from nfad.cli.demo import demo
from nfad.cli.evaluate import evaluate
from nfad.cli.export import export
from nfad.cli.fit import fit
from nfad.cli.fleet import app as fleet
from nfad.cli.info import info
from nfad.cli.predict import predict
from nfad.cli.serve import serve
from nfad.cli.station import station
from nfad.cli.stress import stress
from nfad.cli.terminal import err
from nfad.cli.upgrade import upgrade
from nfad.cli.watch import watch
from nfad.errors import NfadError
from nfad.system.platform import keep_freed_memory

app = typer.Typer(
    help="Fit on a folder of good parts, judge the next one, and survive a new lamp.",
    epilog="Start with: nfad demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (fit, predict, info, demo, evaluate, corrupt, stress, export, watch, serve, upgrade, benchmark):
    app.command()(command)
app.add_typer(station, name="station")
app.add_typer(fleet, name="fleet")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from nfad import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """The entry point: bad input is one sentence and exit code 2; Ctrl-C is 130, and SIGTERM 143: both leave nothing in
    temporary folders. Services have handlers of their own."""
    keep_freed_memory()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text; in JSON this is an escape
    try:
        app()
    except NfadError as error:
        err.print(f"[red]nfad:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torchvision", "timm", "safetensors", "scipy", "jaxtyping", "onnx"):
            raise
        err.print(f"[red]nfad:[/] this needs {error.name}, which is not installed; run: pip install 'nfad\\[fit]'")
        sys.exit(2)
    except MemoryError:
        err.print("[red]nfad:[/] there is not enough memory for this; close other programs, or use smaller images")
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
