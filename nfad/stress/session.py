"""The whole of it: choose normals, measure every strength, judge, and leave a page, a table and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nfad.errors import NfadError
from nfad.evaluation.exported import Exported, Model, check_takes_views
from nfad.fitting import Skip
from nfad.stress.axes import Axis, chosen_axes
from nfad.stress.judgement import Findings, as_dict, as_rows, checked_limit, judge, least_hits, require
from nfad.stress.measure import Kept, Parts, measure, read_parts, tells_part
from nfad.stress.page import write_page
from nfad.tokens import Progress
from nfad.vision.images import find_images
from nfad.writing import ready_folder, replacing, strict_json

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

    def as_dict(self) -> dict:
        return as_dict(self.findings) | {"notes": list(self.notes), "unmet": list(self.unmet)}


def stress(
    detector: Model,
    normals: Path,
    axes: Iterable[str] | None = None,
    *,
    images: int = IMAGES,
    seed: int = 0,
    limit: float | None = None,
    required: Mapping[str, float] | None = None,
    kept: Kept | None = None,
    skip: Skip | None = None,
    progress: Progress | None = None,
) -> Stress:
    """Normals of the line, changed axis by axis: false alarms and synthetic defects found at every strength.

    `required` strengths are measured as well, and what does not hold within them is in `unmet`.
    """
    names, required = None if axes is None else tuple(axes), required or {}
    if images < 2:
        raise NfadError(f"a rate needs at least 2 images; got {images}")
    if seed < 0:
        raise NfadError(f"the seed must be 0 or more; got {seed}")
    check_takes_views(detector)
    if isinstance(detector, Exported) and "background" in {*(names or ()), *required}:
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
    if kept:
        ready_results(kept.folder.parent)
    steps = measure(detector, parts, wanted, kept, progress)
    filtered, control = detector.held_out.at(detector.config.false_alarm_rate)
    findings = judge(
        steps, wanted, [path.name for path in parts.paths], {"control": control, "nfad": filtered},
        detector.false_alarm_rate, limit,
    )  # fmt: skip
    notes = _notes(findings, wanted, detector, named=names is not None)
    return Stress(findings, parts, notes, tuple(require(findings, required)))


def kept_in(folder: Path, model: str) -> Kept:
    """Where finished strengths of the model with this SHA-256 (a Judge's) are kept below an output folder."""
    return Kept(folder / STRENGTHS, model)


def ready_results(folder: Path) -> Path:
    """The folder for results, made if need be; another's report of the same name is never written over."""
    ready_folder(folder)
    taken = [name for name in RESULTS if (folder / name).exists()]
    if taken and not (folder / STRENGTHS).is_dir():
        raise NfadError(
            f"{folder} holds a {taken[0]} that no earlier run of nfad stress left there; name another folder with --out"
        )
    return ready_folder(folder / STRENGTHS).parent


def write_results(found: Stress, detector: Model, title: str, folder: Path) -> list[Path]:
    """report.html, results.csv and results.json."""
    ready_folder(folder)
    page, table, numbers = (folder / name for name in RESULTS)
    rows, text = as_rows(found.findings), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    with replacing(table) as file:
        file.write(text.getvalue().encode())
    with replacing(numbers) as file:
        file.write(strict_json(found.as_dict()).encode("utf-8", "replace"))
    write_page(page, title, detector, found.parts, found.findings, found.notes)
    return [page, table, numbers]


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
        f"A break is shown from {hits} of {count} flagged on ({hits / count:.0%}): less may be luck. More images "
        "show smaller rates.",
    ]
    if isinstance(detector, Exported):
        said.append(
            "The exported graph itself was measured. It takes photos of 8 bits, so every view was rounded to them."
        )
    if findings.rate > config.false_alarm_rate:
        said.append(
            f"The model's rate is {config.false_alarm_rate:.2%}, but its held-out normals support {findings.rate:.2%} "
            "at the least: it is judged at that."
        )
    if any(side.axis.moves and side.breaks for side in findings.sides()) and not config.nudges:
        said.append("Moved parts are rejected, and this model has seen none: a fit with --nudged shows it some.")
    if normal.alarms["nfad"].low > findings.limit:
        said.append(
            f"As they are, {normal.alarms['nfad'].value:.0%} of these images are flagged: they differ from what the "
            "model was fitted on, and no strength can be told apart. Fit on images like these first."
        )
    if normal.found["nfad"].value < 0.3:
        said.append(
            f"Of the synthetic defects {normal.found['nfad'].value:.0%} are found as they are: too few for the curves "
            "of defects found to say much."
        )
    if "background" in axes:
        said.append(
            "What is background is what the teacher's prior takes for it. Look at the pictures of that axis: where the "
            "fill cuts into the part, the part itself was changed, and its curve says less than the others."
        )
    elif isinstance(detector, Exported) and config.foreground:
        said.append(
            "An exported model cannot be asked what it takes for the part: the background was left alone, and "
            "synthetic defects may lie on it, where this model does not look."
        )
    elif isinstance(detector, Exported) and not named:
        said.append("The background was left alone: an exported model cannot be asked what it takes for the part.")
    elif not named:
        said.append(
            "The background was left alone: the model was not fitted to tell it from the part (nfad fit --foreground); "
            "naming it as an axis measures it all the same."
        )
    return tuple(said)
