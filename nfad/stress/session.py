"""The whole of it: choose normals, measure every strength, and say what holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nfad.errors import NfadError
from nfad.model import Model
from nfad.stress.axes import Axis, chosen_axes
from nfad.stress.findings import LEAST_FOUND, Findings, checked_limit, judge, least_hits, require
from nfad.stress.measure import Parts, measure, read_parts, tells_part
from nfad.stress.words import as_dict
from nfad.system.files import ready_folder
from nfad.system.progress import Progress, Skip
from nfad.system.results import ResultCache
from nfad.vision.images import find_images

RESULTS = ("report.html", "results.csv", "results.json")
STRENGTHS = "strengths"  # finished ones, below the results
IMAGES = 24  # a few minutes on two cores with the embedded preset


@dataclass(frozen=True)
class Stress:
    """What was found, what to know of it, and which requirements it does not meet."""

    findings: Findings
    parts: Parts
    notes: tuple[str, ...]
    unmet: tuple[str, ...]
    asked: float  # the false-alarm rate asked for; the findings' is the one supported
    promise: str  # what that rate means, in the words of every command

    def as_dict(self) -> dict:
        told = {"asked_false_alarm_rate": self.asked, "notes": list(self.notes), "unmet": list(self.unmet)}
        return as_dict(self.findings) | told


def stress(
    detector: Model,
    normals: Path,
    axes: Iterable[str] | None = None,
    *,
    images: int = IMAGES,
    seed: int = 0,
    limit: float | None = None,
    required: Mapping[str, float] | None = None,
    cache: ResultCache | None = None,
    skip: Skip | None = None,
    progress: Progress | None = None,
) -> Stress:
    """Normals of the line, changed axis by axis: good parts flagged and not judged, and synthetic defects found.

    `required` strengths are measured as well, and what does not hold within them is in `unmet`.
    """
    names, required = None if axes is None else tuple(axes), required or {}
    if images < 2:
        raise NfadError(f"a rate needs at least 2 images; got {images}")
    if not 0 <= seed < 2**32:
        raise NfadError(f"the seed must lie between 0 and {2**32 - 1}; got {seed}")
    detector.check_takes_views()
    if detector.exported and "background" in {*(names or ()), *required}:
        raise NfadError(
            "what is background only the teacher's prior can say, which an exported model lacks; leave that axis out, "
            "or measure it with the file written by `nfad fit`"
        )
    wanted = _reaching(chosen_axes(names, tells_part(detector)), required)
    found = list(find_images(normals))
    if not found:
        raise NfadError(f"{normals} holds no images; give a folder with PNG, JPEG, TIFF, BMP or WebP files")
    separate = tells_part(detector) or "background" in wanted
    parts = read_parts(detector, found, images, seed, separate=separate, skip=skip, progress=progress)
    limit = checked_limit(detector.false_alarm_rate, limit, len(parts.paths))  # now, not after minutes of measuring
    if cache:
        ready_results(cache.folder.parent)
    steps = measure(detector, parts, wanted, cache, progress)
    filtered, unfiltered = detector.held_out.at(detector.config.false_alarm_rate)
    findings = judge(
        steps, wanted, [path.name for path in parts.paths], {"unfiltered": unfiltered, "filtered": filtered},
        detector.false_alarm_rate, limit,
    )  # fmt: skip
    notes = _notes(findings, wanted, detector, named=names is not None)
    asked = detector.config.false_alarm_rate
    unmet = tuple(require(findings, required))
    return Stress(findings, parts, notes, unmet, asked, detector.held_out.told(asked))


def cache_in(folder: Path) -> ResultCache:
    """Where finished strengths are kept below an output folder."""
    return ResultCache(folder / STRENGTHS)


def ready_results(folder: Path) -> Path:
    """The folder for results, made if need be; another's report of the same name is never written over."""
    ready_folder(folder)
    taken = [name for name in RESULTS if (folder / name).exists()]
    if taken and not (folder / STRENGTHS).is_dir():
        raise NfadError(
            f"{folder} holds a {taken[0]} that no earlier run of nfad stress left there; name another folder with --out"
        )
    return ready_folder(folder / STRENGTHS).parent


def _reaching(axes: Mapping[str, Axis], required: Mapping[str, float]) -> dict[str, Axis]:
    for name in required:
        if name not in axes:
            raise NfadError(f"{name!r} is required but not measured; the axes measured are {', '.join(axes)}")
    return {name: axis.reaching(required[name]) if name in required else axis for name, axis in axes.items()}


def _notes(findings: Findings, axes: Mapping[str, Axis], detector: Model, named: bool) -> tuple[str, ...]:
    count, normal, config = len(findings.images), findings.normal, detector.config
    hits = least_hits(count, findings.limit)
    said = [
        "Only normals the model was not fitted on tell the truth here. A model does not keep which images it saw, so "
        "this could not be checked.",
    ]
    if hits is not None:
        said.append(
            f"Too many flagged, or not judged, is shown from {hits} of {count} on ({hits / count:.0%}): less may be "
            "luck. More images show smaller rates."
        )
    if detector.exported:
        said.append(
            "The exported graph itself was measured. It takes photos of 8 bits, so every view was rounded to them."
        )
    if findings.rate > config.false_alarm_rate:
        said.append(f"The thresholds are set for {detector.held_out.told(config.false_alarm_rate)}.")
    moved = any(side.axis.moves and side.breaks for side in findings.sides())
    if moved and not config.nudges and config.pose != "steadied":
        said.append(
            "Moved parts are rejected, and this model has seen none: a fit with --nudged shows it some"
            + ("." if config.pose == "turned" else "; --turned finds parts that lie well inside of their photos.")
        )
    if normal.alarms["filtered"].low > findings.limit:
        said.append(
            f"As they are, {normal.alarms['filtered'].value:.0%} of these images are flagged: they differ from what "
            "the model was fitted on, and no strength can be told apart. Fit on images like these first."
        )
    if normal.not_judged["filtered"].low > findings.limit:
        said.append(
            f"As they are, {normal.not_judged['filtered'].value:.0%} of these images are not judged: the model was not "
            "fitted for photos like these. Fit on images like these first."
        )
    if normal.stopped("filtered") < LEAST_FOUND:
        said.append(
            f"Of the synthetic defects {normal.found['filtered'].value:.0%} are found as they are: too few to say of "
            "any change that the model bears it."
        )
    if "background" in axes:
        said.append(
            "What is background is what the teacher's prior takes for it. Look at the pictures of that axis: where the "
            "fill cuts into the part, the part itself was changed, and its curve says less than the others."
        )
    elif detector.exported and config.foreground:
        said.append(
            "An exported model cannot be asked what it takes for the part: the background was left alone, and "
            "synthetic defects may lie on it, where this model does not look."
        )
    elif detector.exported and not named:
        said.append("The background was left alone: an exported model cannot be asked what it takes for the part.")
    elif not named:
        said.append(
            "The background was left alone: the model was not fitted to tell it from the part (nfad fit --foreground); "
            "naming it as an axis measures it all the same."
        )
    return tuple(said)
