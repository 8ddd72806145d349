"""`nfad fit`: a model from a folder of good parts."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nfad.cli.options import (
    NUDGES,
    Device,
    FitPreset,
    Foreground,
    Json,
    Nudged,
    Reference,
    Setting,
    Size,
    Teacher,
    Tile,
    Turned,
    Weights,
    changes_from,
    told_if_alone,
)
from nfad.cli.terminal import candidate_table, note, out, progress_bars, reporter
from nfad.data.photos import images_of
from nfad.errors import NfadError
from nfad.presets import DEFAULT, PRESETS
from nfad.system.files import ready_folder

if TYPE_CHECKING:
    from nfad.config import Config

AUTO = "auto"


def fit(
    photos: Annotated[
        list[Path],
        typer.Argument(
            help="Images of good parts: folders (subfolders are read too), files, or lists (.txt, a path a line).",
        ),
    ],
    model: Annotated[Path, typer.Option("-o", "--out", help="Model file to write, e.g. bottle.nfad.")],
    preset: FitPreset = DEFAULT,
    budget: Annotated[
        str | None,
        typer.Option(help="With --preset auto: the longest a photo may take in a network on this machine, e.g. 20ms."),
    ] = None,
    teacher: Teacher = None,
    weights: Weights = None,
    device: Device = "auto",
    reference: Reference = None,
    size: Size = None,
    tile: Tile = None,
    foreground: Foreground = False,
    nudged: Nudged = False,
    turned: Turned = False,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Share of normal images you accept being flagged; can be changed later.")
    ] = 0.01,
    holdout: Annotated[
        float | None,
        typer.Option(help="student, or acquisitions=0: share of the images kept out of the fit for the threshold."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same images: same model.")] = None,
    setting: Setting = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="Image of the photos' shape, white where to look: the rest moves no verdict."),
    ] = None,
    strict: Annotated[
        bool, typer.Option(help="Refuse photos that may not belong: copies, empty ones, other parts, likely defects.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Replace an existing model file.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a detector on good parts only.

    No defect images, no labels, no images from the shifted line are needed: the fit sees the
    photos under hundreds of random lights, learns how a good part's score moves with them, and
    sets the threshold so that the stated rate holds there. Minutes on two cores.

    It also looks at the photos themselves, and names copies, empty photos, other parts and
    likely defects among them. With --strict these end the fit, copies and empty photos before
    the work begins; nothing is written.

    Four embedded networks look at each photo, a ViT and three CNNs, and the mean of all counts. With
    --preset embedded-both one CNN looks beside the ViT, and a little more passes; a slow line PC takes
    one CNN alone (--preset embedded-fast). --set beside=embedded-fast,embedded-lite2 puts CNNs beside
    another teacher.

    --preset auto also fits the ViT with one CNN, that CNN alone and a finer view of it, and keeps the
    default unless one of them finds more of the same synthetic defects than chance explains.

    A defect of 10 px in a photo of 4000×3000 is less than a pixel of the default view. --size 3072
    --tile 512 looks at a view of 3072² in overlapping tiles of 512², so that it is seen at the scale
    the network knows. Time goes with the pixels, a hundred times those of 256² and more; memory
    grows far less. Take --preset embedded-fast, and the size at which the smallest defect is still 6 px.

    An interrupted student training, or auto, resumes when the same command is run again.
    """
    if model.is_dir():
        raise NfadError(f"{model} is a folder; name the model file to write, e.g. {model / 'part.nfad'}")
    if model.exists() and not force:
        raise NfadError(f"{model} exists; choose another name or pass --force to replace it")
    from nfad.config import FEWEST, Config
    from nfad.detector import Detector

    changes = changes_from(
        setting, teacher=teacher, weights=weights, reference=reference, size=size, tile=tile, holdout=holdout,
        seed=seed, foreground=foreground or None, nudges=NUDGES if nudged else None, pose="turned" if turned else None,
        false_alarm_rate=false_alarm_rate,
    )  # fmt: skip
    auto = preset == AUTO
    if not auto and preset not in PRESETS:
        raise NfadError(f"preset must be one of {', '.join((*PRESETS, AUTO))}; got {preset!r}")
    milliseconds = _budget(budget, auto)
    if auto and (
        own := sorted({"teacher", "weights", "size", "tile", "blocks", "prior_blocks", "beside"} & set(changes))
    ):
        what = "look beside it" if own[0] == "beside" else own[0]
        raise NfadError(f"--preset auto chooses the {what} itself; leave that out, or name another preset")
    config = Config.preset(DEFAULT if auto else preset, **changes)
    if config.tile is not None and not config.tiled:
        raise NfadError(
            f"a view of {config.size}² is one tile of {config.tile}²: make the view larger, e.g. --size 3072 for "
            "photos of 4000×3000, or leave the tile out"
        )
    if not auto:
        told_if_alone(preset, config, changes)
    images = images_of(photos)
    ready_folder(model.parent)  # a place that cannot be written to is told of now, not after the fit
    failed: list[str] = []
    doubtful: list[tuple[str, str]] = []

    if not as_json and len(images) >= FEWEST:
        _tell_rates(len(images), config)
    workdir = model.with_name(model.name + ".work") if auto or config.reference == "student" else None
    if workdir:
        workdir.mkdir(parents=True, exist_ok=True)
        for left in filter(Path.is_dir, workdir.iterdir()):  # by a fit that was killed
            shutil.rmtree(left, ignore_errors=True)
    with _going_on(workdir), progress_bars(not as_json) as progress:
        told = {
            "mask": mask,
            "progress": progress,
            "skip": reporter(failed),
            "workdir": workdir,
            "strict": strict,
            "device": device,
        }
        told["doubt"] = lambda image, why: doubtful.append((str(image), why))
        if auto:
            from nfad.auto import fit_auto

            detector = fit_auto(images, budget=milliseconds, **told, **changes)
        else:
            detector = Detector.fit(images, config, **told)
    detector.save(model)
    if workdir:
        shutil.rmtree(workdir, ignore_errors=True)
    if as_json:
        facts = {
            "model": str(model),
            "fitted_on": detector.fitted_on,
            "held_out": detector.held_out.count,
            "false_alarm_rate": detector.false_alarm_rate,
            "threshold": detector.threshold,
            "pose": detector.config.pose,
            "developed": detector.config.developed,
            "smallest_false_alarm_rate": detector.held_out.smallest_rate,
            "skipped": len(failed),
            "doubtful": [{"image": image, "why": why} for image, why in doubtful],
            "choice": detector.choice and detector.choice.as_dict(),
        }
        print(json.dumps(facts))
    else:
        for image, why in doubtful:
            note(f"{image} {why}.")
        out.print(
            f"[green]{model}[/]: fitted on {config.normals_told(detector.fitted_on, detector.held_out.count)}; "
            f"threshold {detector.threshold:.2f}: {detector.held_out.told(false_alarm_rate)}."
        )
        if detector.pose is not None:
            done = {
                "turned": "Each part is found in its photo and turned to lie alike before it is looked at.",
                "steadied": "Each photo is moved a little, to lie as the others do, before it is looked at: a nudged "
                "camera is borne.",
            }
            out.print(
                done[detector.pose.name] + ("" if turned else " --set pose='as taken' leaves them as they lie."),
                highlight=False,
            )
        if detector.development is not None:
            out.print(
                "Noise, exposure and white balance beyond those of these photos are taken out of a photo before it is "
                "looked at. --set developed=false leaves them in.",
                highlight=False,
            )
        if detector.choice:
            out.print(detector.choice.sentence(), highlight=False)
            if detector.choice.candidates:
                out.print(candidate_table(detector.choice))
        out.print(f"Next: [bold]nfad predict {model} IMAGES --out results[/]")
    if failed:
        raise typer.Exit(1)


@contextmanager
def _going_on(workdir: Path | None) -> Iterator[None]:
    """What is left of an interrupted fit is told of; of one that never began there is nothing."""
    try:
        yield
    except BaseException as error:
        if workdir and not any(workdir.iterdir()):
            workdir.rmdir()
        elif workdir and isinstance(error, KeyboardInterrupt):
            note(f"what is done is kept in {workdir}; run the same command again to go on.")
        raise


def _budget(text: str | None, auto: bool) -> float | None:
    """Milliseconds, from what was typed."""
    if text is None:
        return None
    if not auto:
        raise NfadError("--budget goes with --preset auto, which chooses by it")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    if found is None or not float(found[1]):
        raise NfadError(f"--budget must be a time a photo with its unit, e.g. 20ms or 0.1s; got {text!r}")
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def _tell_rates(count: int, config: Config) -> None:
    """Which rate so many photos will support, before the work and not after."""
    held = count if config.cross_fitted else round((config.holdout or 0) * count)
    least = 1 / (held + 1)
    if least > config.false_alarm_rate:
        needed = math.ceil(1 / config.false_alarm_rate - 1e-9) - 1
        of = "photos" if config.cross_fitted else "photos held out"
        note(
            f"a false-alarm rate of {config.false_alarm_rate:.2%} needs {needed} {of}; these {count} will support "
            f"{least:.2%}."
        )
