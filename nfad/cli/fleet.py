"""`nfad fleet`: the same for hundreds of products, over many workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from nfad.cli.options import Device, Json, Preset, RayAddress, Setting, Workers, cluster_at, config_from
from nfad.cli.terminal import err, out
from nfad.errors import NfadError
from nfad.presets import DEFAULT
from nfad.system.files import strict_json

if TYPE_CHECKING:
    from nfad.config import Config
    from nfad.fleet.products import Outcome

SOME_FAILED = 1

app = typer.Typer(help="Hundreds of products, over many workers (nfad\\[ray]).", no_args_is_help=True)


@app.command()
def fit(
    manifest: Annotated[
        Path, typer.Argument(help="A folder with a folder of photos a product, or a CSV file: name, photos, settings.")
    ],
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Folder for NAME.nfad, one a product.")],
    preset: Preset = DEFAULT,
    setting: Setting = None,
    stress: Annotated[bool, typer.Option("--stress", help="Also say what each model bears, in NAME-stress.")] = False,
    export: Annotated[str | None, typer.Option(help="Also export each: onnx or openvino, in NAME-onnx.")] = None,
    device: Device = "auto",
    ray: RayAddress = "local",
    workers: Workers = None,
    cpus: Annotated[int, typer.Option(help="Cores a product is fitted with.", min=1)] = 1,
    memory: Annotated[
        float | None,
        typer.Option(
            help="GB a product is given; Ray starts no more than fit.",
            min=0.1,
            show_default="reckoned from its settings",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit one model a product, several at a time, on this machine or a Ray cluster.

    A CSV's settings are those of `nfad fit --set` with ; between, e.g. `preset=embedded-fast;
    size=448`. What was finished from the same photos and settings is not fitted again: an
    interrupted command goes on when it is repeated. A lost worker's product is fitted anew by
    another. On a cluster, photos and OUT must have the same path on every node.

    Exit code 0: all fitted; 1: some failed, the others are there; 2: nothing could be done.
    """
    from nfad.fleet.fit import fit_fleet
    from nfad.fleet.products import Wish, read_manifest

    if export not in (None, "onnx", "openvino"):
        raise NfadError(f"--export must be onnx or openvino; got {export!r}")

    @cache  # what is to be told of settings is told once, of however many products
    def config_of(*pairs: str) -> Config:
        own = [pair.partition("=")[2].strip() for pair in pairs if pair.partition("=")[0].strip() == "preset"]
        others = [pair for pair in pairs if pair.partition("=")[0].strip() != "preset"]
        return config_from(own[-1] if own else preset, [*(setting or []), *others])

    products = read_manifest(manifest, lambda pairs: config_of(*pairs))
    if stress and any(product.photos.suffix == ".txt" for product in products):
        raise NfadError("--stress needs folders of photos, not lists; leave it out or name folders")
    wish = Wish(out_dir.absolute(), stress, export, device)
    outcomes: list[Outcome | None] = [None] * len(products)
    with cluster_at(ray, workers, cpus, memory, device) as cluster, _screen(not as_json, len(products)) as screen:
        told = None if as_json else lambda index, *words: screen.told(products[index].name, *words)
        for index, outcome in fit_fleet(products, wish, cluster, told):
            outcomes[index] = outcome
            screen.done(outcome.name, outcome.error)
    found = [outcome for outcome in outcomes if outcome is not None]
    if as_json:
        print(strict_json([outcome.as_dict() for outcome in found]))
    else:
        out.print(_table(found))
        failed = [outcome for outcome in found if outcome.error]
        out.print(f"{len(found) - len(failed)} of {len(found)} products have a model in {escape(str(out_dir))}.")
    if any(outcome.error for outcome in found):
        raise typer.Exit(2 if all(outcome.error for outcome in found) else SOME_FAILED)


class _Screen:
    """A bar for the fleet, and one for each product being fitted."""

    def __init__(self, bars: Progress, count: int) -> None:
        self._bars, self._own = bars, dict[str, Any]()
        self._all = bars.add_task("products", total=count)

    def told(self, name: str, stage: str, done: int, total: int) -> None:
        if name not in self._own:
            self._own[name] = self._bars.add_task(escape(name), total=total)
        self._bars.update(self._own[name], completed=done, total=total, description=escape(f"{name}: {stage}"))

    def done(self, name: str, error: str) -> None:
        if name in self._own:
            self._bars.remove_task(self._own.pop(name))
        self._bars.advance(self._all)
        if error:
            err.print("[red]failed:[/] ", escape(f"{name}: {error}"), sep="", soft_wrap=True, highlight=False)


@contextmanager
def _screen(visible: bool, count: int) -> Iterator[_Screen]:
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, disable=not visible, transient=True) as bars:
        yield _Screen(bars, count)


def _table(outcomes: list[Outcome]) -> Table:
    """A line a product, with both errors of its threshold."""
    told = "Flagged: normals in random lights; found: synthetic defects in the light of the fit; at the model's rate"
    table = Table(title=told, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    extra = [name for name in ("stress", "export") if any(getattr(each, name) for each in outcomes)]
    for name in ("product", "photos", "rate", "flagged", "found", "seconds", *extra, "state"):
        table.add_column(name, justify="right" if name in ("photos", "rate", "flagged", "found", "seconds") else "left")
    for each in outcomes:
        rates = (each.false_alarm_rate, each.flagged, each.found)
        state = f"[red]failed[/]: {escape(each.error)}" if each.error else "kept" if each.kept else "fitted"
        unread = f" ({each.skipped} not readable)" if each.skipped else ""
        table.add_row(
            escape(each.name), f"{each.photos}{unread}", *("–" if rate is None else f"{rate:.1%}" for rate in rates),
            f"{each.seconds:.0f}", *(escape(getattr(each, name)) for name in extra), state,
        )  # fmt: skip
    return table
