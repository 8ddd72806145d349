"""`nfad fit`: a model from a folder of good parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nfad.cli.options import (
    NUDGES,
    Foreground,
    Json,
    Nudged,
    Preset,
    Reference,
    Setting,
    Size,
    Teacher,
    Weights,
    config_from,
    images_in,
)
from nfad.cli.terminal import note, out, progress_bars, reporter
from nfad.errors import NfadError
from nfad.system.files import ready_folder


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
        told = {
            "model": str(model),
            "fitted_on": detector.fitted_on,
            "held_out": detector.held_out.count,
            "false_alarm_rate": detector.false_alarm_rate,
            "threshold": detector.threshold,
            "smallest_false_alarm_rate": detector.held_out.smallest_rate,
            "skipped": len(failed),
        }
        print(json.dumps(told))
    else:
        out.print(
            f"[green]{model}[/]: fitted on {config.normals_told(detector.fitted_on, detector.held_out.count)}; "
            f"threshold {detector.threshold:.2f} at a false-alarm rate of {detector.false_alarm_rate:.2%}."
        )
        if detector.false_alarm_rate > false_alarm_rate:
            count = detector.held_out.count
            note(
                f"{count} held-out normals support a false-alarm rate of {detector.false_alarm_rate:.2%} at the least; "
                f"{false_alarm_rate:.2%} needs {round(1 / false_alarm_rate) - 1}."
            )
        out.print(f"Next: [bold]nfad predict {model} IMAGES --out results[/]")
    if failed:
        raise typer.Exit(1)
