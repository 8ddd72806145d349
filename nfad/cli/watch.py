"""`nfad watch`: judge what a camera drops into a folder, as it comes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.options import Device, Json, Key, Model, Rate, Weights, at_rate
from nfad.cli.terminal import err, exit_code, note, out, show, told
from nfad.errors import NfadError
from nfad.watch.record import WatchRecord, as_line


def watch(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="The folder a camera writes into; subfolders are watched too.")],
    results: Annotated[
        Path | None,
        typer.Option(
            "--to", help="Folder of the ledger and results.jsonl, on a local disk.", show_default="FOLDER-results"
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            help="Also send each part on: copy:DIR, link:DIR or move:DIR into good/, bad/ and not-judged/, "
            "http(s)://… to a webhook, mqtt(s)://host/topic to a broker; may be given several times."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Judge what is there and stop.")] = False,
    poll: Annotated[float, typer.Option(help="Seconds between two looks.")] = 0.5,
    settle: Annotated[float, typer.Option(help="Seconds a file must have been unchanged.")] = 0.3,
    patience: Annotated[float, typer.Option(help="Seconds until a file that cannot be read is recorded so.")] = 10.0,
    silent_after: Annotated[
        float | None, typer.Option(help="Seconds without a photo that are recorded and sent.", show_default="none are")
    ] = None,
    false_alarm_rate: Rate = None,
    weights: Weights = None,
    device: Device = "auto",
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Judge each image that arrives in a folder, exactly once, and keep a ledger that survives a pulled plug.

    Half-written files are waited for; a name written again is a new part. Stop with Ctrl-C or SIGTERM: the image in
    hand is finished, and the next start goes on behind it. Exit code 0: stopped, or with --once all judged; 1: with
    --once some files could not be read; 2: nothing could be done; 3: with --once all could be read, some are not
    judged.

    Example: nfad watch part.nfad /camera --sink move:/sorted --sink https://mes.example/parts
    """
    from nfad.model import load_model
    from nfad.watch.sinks import open_sinks
    from nfad.watch.watch import LEDGER, LINES, Pace, Watch

    pace = Pace(poll, settle, patience)
    if not folder.is_dir():
        raise NfadError(f"{folder} is not a folder; name the one the camera writes into")
    place = results or folder.resolve().with_name(folder.resolve().name + "-results")
    senders, sorters = open_sinks(sink or [], folder)  # first: what makes no sense is told before a model is loaded
    loaded = at_rate(load_model(model, weights, key=key, device=device), false_alarm_rate)

    def tell(record: WatchRecord) -> None:
        if as_json:
            print(as_line(record), flush=True)
        elif record.is_part:  # the rest is a note already
            show(record)

    watching = Watch(
        loaded, model.stem, folder, place, senders=senders, sorters=sorters, pace=pace, silent_after=silent_after,
        on_record=tell, warn=note,
    )  # fmt: skip
    if not as_json:
        err.print(f"Watching {escape(str(folder))}; results go to {escape(str(place / LINES))}.", soft_wrap=True)
    with _signals() as came:
        tally = watching.run(came, once=once)
    if not as_json:
        said = (
            f"{told(tally)}; all are in" if tally.total() or not once else "Nothing new; what was judged before is in"
        )
        out.print(f"{said} {escape(str(place / LEDGER))}.", soft_wrap=True)
    if once and (code := exit_code(tally)):
        raise typer.Exit(code)


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came. A second Ctrl-C does not wait for the image in hand."""
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came and number == signal.SIGINT:
            raise KeyboardInterrupt
        came = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
