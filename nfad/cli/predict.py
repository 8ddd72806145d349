"""`nfad predict`: verdicts on images, with the reason and, if wanted, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nfad.cli.options import Device, Json, Key, Model, Rate, Weights, at_rate
from nfad.cli.terminal import exit_code, out, reporter, show, told
from nfad.errors import NfadError
from nfad.records import InspectionRecord
from nfad.system.files import strict_json


def predict(
    model: Model,
    images: Annotated[list[Path], typer.Argument(help="Images or folders of images.")],
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Write results.csv, results.jsonl, overlays/ and index.html into this folder."
        ),
    ] = None,
    false_alarm_rate: Rate = None,
    weights: Weights = None,
    device: Device = "auto",
    key: Key = None,
    overlays: Annotated[bool, typer.Option(help="Write an overlay PNG for every image.")] = True,
    as_json: Json = False,
) -> None:
    """Judge images: a verdict each, with the reason, and pictures with --out.

    Folders of any size stream. An unreadable image is reported and skipped. A photo outside of what the model was
    fitted for is not judged: neither good nor bad. Exit code 0: all judged; 1: some images could not be read;
    2: nothing could be done; 3: all could be read, some are not judged.
    """
    from nfad.model import load_model
    from nfad.report.inspection import expand, inspect

    loaded = at_rate(load_model(model, weights, key=key, device=device), false_alarm_rate)

    def tell(record: InspectionRecord) -> None:
        if as_json:
            print(strict_json(record.as_dict()), flush=True)
        elif record.is_readable:  # or else `skip` has told of it
            show(record)

    places = ", ".join(map(str, images))
    if not any(True for _ in expand(images)):
        raise NfadError(f"there are no images in {places}; give PNG, JPEG, TIFF, BMP or WebP files")
    summary = inspect(loaded, model.stem, images, out_dir, overlays=overlays, on_record=tell, skip=reporter([]))
    if summary.judged + summary.not_judged == 0:
        raise NfadError(f"no image could be judged among {places}")
    if not as_json:
        changed = summary.verdict_changed
        out.print(
            f"{told(summary.verdicts)}; {changed} verdict{'' if changed == 1 else 's'} changed by the filter."
            + (f" See {out_dir / 'index.html'}" if out_dir else " Add --out DIR for pictures.")
        )
    if code := exit_code(summary.verdicts):
        raise typer.Exit(code)
