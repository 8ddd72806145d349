"""`nfad predict`: verdicts on images, with the reason and, if wanted, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.options import Json, Model, Rate, Weights, at_rate
from nfad.cli.terminal import out, reporter
from nfad.errors import NfadError
from nfad.records import ANOMALOUS, InspectionRecord
from nfad.system.files import strict_json


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
    from nfad.model import load_model
    from nfad.report.inspection import expand, inspect

    loaded = at_rate(load_model(model, weights), false_alarm_rate)

    def show(record: InspectionRecord) -> None:
        if as_json:
            print(strict_json(record.as_dict()), flush=True)
            return
        colour = "red" if record.verdict == ANOMALOUS else "green"
        out.print(
            f"[{colour}]{record.verdict:>9}[/]  {record.score:7.2f} / {record.threshold:.2f}  ",
            escape(record.image.replace("\n", "\\n")), f" [dim]{record.explanation}[/]",
            sep="", soft_wrap=True, highlight=False,
        )  # fmt: skip

    places = ", ".join(map(str, images))
    if not any(True for _ in expand(images)):
        raise NfadError(f"there are no images in {places}; give PNG, JPEG, TIFF, BMP or WebP files")
    failed: list[str] = []
    summary = inspect(loaded, model.stem, images, out_dir, overlays=overlays, on_record=show, skip=reporter(failed))
    if summary.judged == 0:
        raise NfadError(f"no image could be judged among {places}")
    if not as_json:
        out.print(
            f"{summary.judged} judged, {summary.anomalous} anomalous, {summary.verdict_changed} verdicts changed by "
            f"the filter, {len(failed)} unreadable."
            + (f" See {out_dir / 'index.html'}" if out_dir else " Add --out DIR for pictures.")
        )
    if failed:
        raise typer.Exit(1)
