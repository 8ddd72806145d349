"""The command line: each command calls one library function and says what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from nfad.cli_benchmark import benchmark
from nfad.cli_evaluate import evaluate, evaluation_table
from nfad.cli_export import export
from nfad.cli_options import (
    NUDGES,
    Foreground,
    Json,
    Model,
    Nudged,
    Preset,
    Rate,
    Reference,
    Setting,
    Size,
    Teacher,
    Weights,
    at_rate,
    config_from,
    images_in,
)
from nfad.cli_serve import serve
from nfad.cli_stress import stress
from nfad.cli_watch import watch
from nfad.errors import NfadError
from nfad.machine import keep_freed_memory
from nfad.terminal import err, note, out, progress_bars, reporter
from nfad.writing import ready_folder, strict_json

app = typer.Typer(
    help="Fit on a folder of good parts, judge the next one, and survive a new lamp.",
    epilog="Start with: nfad demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.command()
def fit(
    folder: Annotated[Path, typer.Argument(help="Folder of images of good parts; subfolders are read too.")],
    model: Annotated[Path, typer.Option("-o", "--out", help="Model file to write, e.g. bottle.nfad.")],
    preset: Preset = "embedded",
    teacher: Teacher = None,
    weights: Weights = None,
    reference: Reference = None,
    size: Size = None,
    foreground: Foreground = False,
    nudged: Nudged = False,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Share of normal images you accept being flagged; can be changed later.")
    ] = 0.01,
    holdout: Annotated[
        float | None, typer.Option(help="Share of the images kept out of the fit to set the threshold.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same images: same model.")] = None,
    setting: Setting = None,
    force: Annotated[bool, typer.Option(help="Replace an existing model file.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a detector on good parts only.

    No defect images, no labels, no images from the shifted line are needed. The default
    preset makes about three teacher passes an image: minutes on two cores.

    An interrupted student training resumes when the same command is run again.
    """
    if model.is_dir():
        raise NfadError(f"{model} is a folder; name the model file to write, e.g. {model / 'part.nfad'}")
    if model.exists() and not force:
        raise NfadError(f"{model} exists; choose another name or pass --force to replace it")
    from nfad.detector import Detector

    config = config_from(
        preset, setting, teacher=teacher, weights=weights, reference=reference, size=size, holdout=holdout, seed=seed,
        foreground=foreground or None, nudges=NUDGES if nudged else None, false_alarm_rate=false_alarm_rate,
    )  # fmt: skip
    images = images_in(folder)
    ready_folder(model.parent)  # a place that cannot be written to is told of now, not after the fit
    failed: list[str] = []
    workdir = model.with_name(model.name + ".work") if config.reference == "student" else None
    if workdir:
        workdir.mkdir(parents=True, exist_ok=True)
    with progress_bars(not as_json) as progress:
        detector = Detector.fit(images, config, progress=progress, skip=reporter(failed), workdir=workdir)
    detector.save(model)
    if workdir:
        for file in workdir.iterdir():
            file.unlink()
        workdir.rmdir()
    if as_json:
        print(json.dumps(_facts(model, detector) | {"skipped": len(failed)}))
    else:
        _print_facts(model, detector)
        if detector.false_alarm_rate > false_alarm_rate:
            count = len(detector.held_out.detection)
            note(
                f"{count} held-out images support a false-alarm rate of {detector.false_alarm_rate:.2%} at the least; "
                f"{false_alarm_rate:.2%} needs {round(1 / false_alarm_rate) - 1}."
            )
        out.print(f"Next: [bold]nfad predict {model} IMAGES --out results[/]")
    if failed:
        raise typer.Exit(1)


@app.command()
def predict(
    model: Model,
    images: Annotated[list[Path], typer.Argument(help="Images or folders of images.")],
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Write results.csv, results.jsonl, overlays/ and index.html into this folder."),
    ] = None,
    false_alarm_rate: Rate = None,
    weights: Weights = None,
    overlays: Annotated[bool, typer.Option(help="Write an overlay PNG for every image.")] = True,
    as_json: Json = False,
) -> None:
    """Judge images: a verdict each, with the reason, and pictures with --out.

    Folders of any size stream. An unreadable image is reported and skipped. Exit code 0: all judged; 1: some images
    could not be read; 2: nothing could be done.
    """
    from nfad.inspection import as_row, expand, inspect
    from nfad.judge import load_judge

    judge = at_rate(load_judge(model, weights), false_alarm_rate)

    def show(prediction: Any) -> None:
        row = as_row(prediction)
        if as_json:
            print(json.dumps(row, ensure_ascii=False), flush=True)
        else:
            colour = "red" if prediction.is_anomalous else "green"
            out.print(
                f"[{colour}]{row['verdict']:>9}[/]  {prediction.score:7.2f} / {prediction.threshold:.2f}  ",
                escape(row["image"].replace("\n", "\\n")), f" [dim]{row['explanation']}[/]",
                sep="", soft_wrap=True, highlight=False,
            )  # fmt: skip

    failed: list[str] = []
    skip = reporter(failed)
    if not any(True for _ in expand(images)):
        places = ", ".join(map(str, images))
        raise NfadError(f"there are no images in {places}; give PNG, JPEG, TIFF, BMP or WebP files")
    summary = inspect(judge, images, out_dir, overlays=overlays, on_result=show, on_failure=skip)
    if summary.judged == 0:
        raise NfadError(f"no image could be judged among {', '.join(map(str, images))}")
    if not as_json:
        out.print(
            f"{summary.judged} judged, {summary.anomalous} anomalous, {summary.verdict_changed} verdicts changed by "
            f"the filter, {len(failed)} unreadable."
            + (f" See {out_dir / 'index.html'}" if out_dir else " Add --out DIR for pictures.")
        )
    if failed:
        raise typer.Exit(1)


@app.command()
def info(
    model: Model,
    as_json: Json = False,
) -> None:
    """Say what a model is: teacher and weights, settings, normals, threshold and the rates it supports."""
    from nfad.threshold import Threshold

    if model.is_dir():
        from nfad.deploy.folder import read_facts

        header = read_facts(model)
        size = sum(file.stat().st_size for file in model.iterdir())
        own = {key: header[key] for key in ("backend", "precision", "input", "parity")}
        own["exported_from"] = header["model"]
    else:
        from nfad.artifact import read_header

        header, tensors = read_header(model)
        size = model.stat().st_size
        columns = [tensors[key].shape[1] for key in sorted(tensors) if key.endswith(".basis")]
        own = {"format": header["format"], "nuisance_columns": columns}
    held = Threshold(**{name: tuple(scores) for name, scores in header["held_out"].items()})
    rate = held.supported(header["config"]["false_alarm_rate"])
    rates = {f"{r:g}": held.at(r)[0] for r in (0.001, 0.01, 0.02, 0.05, 0.1) if r >= held.smallest_rate}
    facts = {
        "model": str(model),
        "bytes": size,
        "teacher": header["teacher"],
        "config": header["config"],
        "fitted_on": header["fitted_on"],
        "held_out": len(held.detection),
        "false_alarm_rate": rate,
        "threshold": held.at(rate)[0],
        "smallest_false_alarm_rate": held.smallest_rate,
        "threshold_by_rate": rates,
    } | own
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(title=str(model), show_header=False)
    table.add_row("teacher", f"{header['teacher']['name']} ({header['teacher']['architecture']})")
    table.add_row("weights", f"{header['teacher']['weights']}, SHA-256 {header['teacher']['sha256'][:16]}…")
    config = header["config"]
    table.add_row("reference", f"{config['reference']}, {config['order']}")
    ranks = ", ".join(f"{family} {value:g}" for family, value in config["rank"].items())
    table.add_row("interventions", f"{config['interventions']}; rank (below 1: share of channels) {ranks}")
    if "nuisance_columns" in own:
        *others, last = map(str, own["nuisance_columns"])
        told = f"{', '.join(others)} and {last}, one number for each of the teacher's blocks" if others else last
        table.add_row("nuisance directions removed", told)
    if config.get("nudges"):  # models fitted before there were any do not say
        table.add_row("nudged", f"the reference has seen {config['nudges']} moved copies of each image too")
    table.add_row(
        "view", f"{config['size']}²" + (f" after resize {config['resize']}" if config["resize"] else ", whole image")
    )
    table.add_row("normals", f"{header['fitted_on']} fitted, {len(held.detection)} held out")
    table.add_row("in use", f"threshold {facts['threshold']:.3f} at a false-alarm rate of {rate:.2%}")
    table.add_row("smallest false-alarm rate", f"{held.smallest_rate:.2%}")
    for other, threshold in rates.items():
        table.add_row(f"threshold at {float(other):.1%}", f"{threshold:.3f}")
    if "parity" in own:
        found = own["parity"]
        table.add_row("exported", f"{own['backend']}, {own['precision']}, from {own['exported_from']['name']}")
        flips = f"{found['flips']} of {found['verdicts']} verdicts flipped"
        table.add_row("beside torch", f"{flips}, scores within {found['score_drift']:.2g}, on {found['source']}")
    told = "everything included" if "parity" in own else "teacher weights not included"
    table.add_row("size", f"{size / 1000:.0f} kB ({told})")
    out.print(table)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the rendered set, the model and the page go.")] = Path(
        "demo"
    ),
    preset: Annotated[str, typer.Option(help="embedded or embedded-fast.")] = "embedded",
    as_json: Json = False,
) -> None:
    """Render a small inspection set, fit on its good parts, and compare control with filter under each shift.

    Everything runs offline; about three minutes on two cores.
    """
    from nfad.demonstration import demonstrate

    with progress_bars(not as_json) as progress:
        rows, page = demonstrate(folder, preset, progress)
    if as_json:
        print(strict_json({"page": str(page), "rows": [row.as_dict() for row in rows]}))
        return
    out.print(evaluation_table("The demo set", rows))
    out.print(f"Look at [bold]{page}[/]")


app.command()(evaluate)
app.command()(stress)
app.command()(export)
app.command()(watch)
app.command()(serve)
app.command()(benchmark)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from nfad import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """The entry point: bad input is one sentence and exit code 2; Ctrl-C is 130."""
    keep_freed_memory()
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
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)


def _facts(model: Path, detector: Any) -> dict[str, Any]:
    return {
        "model": str(model),
        "fitted_on": detector.fitted_on,
        "held_out": len(detector.held_out.detection),
        "false_alarm_rate": detector.false_alarm_rate,
        "threshold": detector.threshold,
        "smallest_false_alarm_rate": detector.held_out.smallest_rate,
    }


def _print_facts(model: Path, detector: Any) -> None:
    out.print(
        f"[green]{model}[/]: fitted on {detector.fitted_on} images, {len(detector.held_out.detection)} held out; "
        f"threshold {detector.threshold:.2f} at a false-alarm rate of {detector.false_alarm_rate:.2%}."
    )
