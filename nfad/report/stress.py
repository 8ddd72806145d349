"""The stress report: one HTML file that needs nothing else, for whoever decides whether a model goes to the line."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from nfad.model import Model
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, Prediction
from nfad.report.card import Card, card_of, jpeg
from nfad.report.charts import rate_chart
from nfad.report.page import about
from nfad.report.pictures import bounded, full_at
from nfad.report.rendering import Figure, write_page
from nfad.stress.axes import Axis, photographed
from nfad.stress.findings import Curve, Findings, least_stopped
from nfad.stress.measure import Parts
from nfad.stress.session import RESULTS, Stress
from nfad.stress.words import as_dict, as_rows, range_told, sentence, shares_told
from nfad.system.files import ready_folder, replacing, strict_json
from nfad.vision.images import pixels_of

THUMBNAIL = 144
ARMS = ("filtered", "unfiltered")  # what is deployed first


class Reach(NamedTuple):
    """How far a condition may go by one arm, as a bar on a lane as long as what was tried, and in words."""

    name: str
    left: str  # in percent of the lane, from either end
    right: str
    told: str
    there: list[str]  # what was counted as far out as it holds, a side each
    then: list[str]  # what ends it, a side each; nothing where it holds wherever it was tried
    ends_at_once: bool


class Range(NamedTuple):
    """A condition's row on the first screen."""

    axis: str
    title: str
    two_sided: bool
    arms: list[Reach]


class Shot(NamedTuple):
    """One part at one strength, and each arm's verdict."""

    told: str
    as_it_is: bool
    photo: str
    verdicts: dict[str, str]


class Condition(NamedTuple):
    """A condition's section."""

    axis: str
    title: str
    told: str
    charts: list[Markup]
    strip: list[Shot]
    card: Card | None


def write_results(found: Stress, model: Model, title: str, folder: Path) -> list[Path]:
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
    write_stress_page(page, title, model, found)
    return [page, table, numbers]


def write_stress_page(path: Path, title: str, model: Model, found: Stress) -> Path:
    """Write the page; it appears whole or not at all."""
    parts, findings = found.parts, found.findings
    high = full_at(model.threshold)
    return write_page(
        path,
        "stress.html",
        title=title,
        metadata=[
            *(about(model) | {"False-alarm rate": found.promise}).items(),
            ("Normals", f"{len(findings.images)} images, each with and without a synthetic defect"),
            ("Limit", f"{findings.limit:.0%} of good parts flagged, or not judged"),
        ],
        high=high,
        gated=model.config.localization == "global",
        limit=f"{findings.limit:.0%}",
        notes=found.notes,
        figures=figures_of(findings),
        ranges=ranges_of(findings),
        links=[(curve.axis.name, curve.axis.title) for curve in findings.curves],
        conditions=(_condition(model, parts, findings, curve, high) for curve in findings.curves),
        numbers=strict_json(as_dict(findings)).replace("}, {", "},\n{"),
    )


def figures_of(findings: Findings) -> list[Figure]:
    """What to know of all conditions together."""
    whole = {
        arm: sum(all(side.ends is None for side in findings.both(curve.axis, arm)) for curve in findings.curves)
        for arm in ARMS
    }
    normal, nearest = findings.normal, findings.sides()[0]
    first = Figure("none", "of the conditions tried ends it")
    if nearest.ends == 0:
        first = Figure("as they are", f"{nearest.why} already", "no change is needed")
    elif nearest.ends is not None:
        words = f"is where {nearest.axis.title.lower()} ends it, before all else: {nearest.why}"
        first = Figure(nearest.told(), words, nearest.axis.direction(nearest.side))
    rates = [
        Figure(f"{found['filtered'].value:.0%}", words, f"{found['unfiltered'].value:.0%} unfiltered")
        for found, words in (
            (normal.alarms, "good parts flagged as they are"),
            (normal.found, "synthetic defects found"),
        )
    ]
    rates.append(Figure(f"{normal.not_judged['filtered'].value:.0%}", "good parts not judged", "unfiltered judges all"))
    held = f"{whole['filtered']} of {len(findings.curves)}"
    words = "conditions hold to the end: few good parts flagged or not judged, and defects still found"
    return [Figure(held, words, f"{whole['unfiltered']} unfiltered"), first, *rates]


def ranges_of(findings: Findings) -> list[Range]:
    """How far each condition may go, the first to end at the top."""

    def nearest(curve: Curve) -> list[float]:
        return [min(side.reach for side in findings.both(curve.axis, arm)) for arm in ARMS]

    return [_range(findings, curve) for curve in sorted(findings.curves, key=nearest)]


def _range(findings: Findings, curve: Curve) -> Range:
    axis = curve.axis
    return Range(axis.name, axis.title, bool(axis.less), [_reach(findings, curve, arm) for arm in ARMS])


def _reach(findings: Findings, curve: Curve, arm: str) -> Reach:
    axis, sides = curve.axis, findings.both(curve.axis, arm)
    shares = {side.side: abs(side.holds) / abs(axis.of_side(side.side)[-1]) for side in sides}
    left, right = (50 - 50 * shares[-1], 50 - 50 * shares[1]) if -1 in shares else (0.0, 100 - 100 * shares[1])
    held = {side.holds: side.there for side in sides}
    return Reach(
        name=arm,
        left=f"{left:.4g}",
        right=f"{right:.4g}",
        told=range_told(findings, curve, arm),
        there=[f"{axis.told(each) if each else 'as it is'}: {shares_told(held[each], arm)}" for each in held],
        then=list(dict.fromkeys(f"{side.told()}: {side.why}" for side in sides if side.ends is not None)),
        ends_at_once=not any(side.holds for side in sides),
    )


class Example(NamedTuple):
    """Which part to show of an axis, and at which strength its maps; none where nothing ends."""

    place: int
    strength: float | None = None
    damaged: bool = False  # whether the part with its synthetic defect


def shown_image(findings: Findings, curve: Curve) -> Example:
    """A middling one of what ends it, filtered or else unfiltered: a good part that is flagged or not judged, or a
    defect that is passed. Where nothing ends, a middling part."""
    for arm in ARMS:
        ended = [side for side in findings.both(curve.axis, arm) if side.ends]
        if ended and (strength := (nearest := min(ended, key=lambda side: side.reach)).ends):
            missed = strength == nearest.blind and strength not in (nearest.breaks, nearest.refuses)
            step = findings.steps[curve.axis.name, strength]
            scores = np.array((step.damaged if missed else step.normal)[arm])
            above = scores > findings.thresholds[arm]
            wanted = ~above & ~np.isnan(scores) if missed else above if strength == nearest.breaks else np.isnan(scores)
            chosen = np.flatnonzero(wanted)
            return Example(int(chosen[np.argsort(scores[chosen])[len(chosen) // 2]]), strength, missed)
    scores = np.array(findings.steps["", 0.0].normal["filtered"])
    return Example(int(np.argsort(scores)[len(scores) // 2]))


def _condition(model: Model, parts: Parts, findings: Findings, curve: Curve, high: float) -> Condition:
    axis, strengths = curve.axis, [point.strength for point in curve.points]
    index, ended, damaged = shown_image(findings, curve)
    # In the order of a legend that is read from left to right, as everywhere else: unfiltered, filtered.
    arms = tuple(reversed(ARMS))
    marks = {
        name: {arm: [getattr(side, name) for side in findings.both(axis, arm)] for arm in arms}
        for name in ("breaks", "blind", "refuses")
    }
    alarms = {arm: [point.alarms[arm] for point in curve.points] for arm in arms}
    found = {arm: [point.found[arm] for point in curve.points] for arm in arms}
    refused = {"filtered": [point.not_judged["filtered"] for point in curve.points]}  # the other judges all
    least, limit = least_stopped(findings.normal.stopped("filtered")), findings.limit
    charts = [
        rate_chart("False alarms", "good parts flagged", axis, strengths, alarms, limit, marks["breaks"]),
        rate_chart("Synthetic defects found", "defects flagged", axis, strengths, found, least, marks["blind"]),
        rate_chart("Not judged", "good parts not judged", axis, strengths, refused, limit, marks["refuses"]),
    ]
    card = None
    if ended is not None:
        prediction = prediction_at(model, parts, findings, axis, ended, index, damaged)
        photo = pixels_of(_shown(parts, axis, ended, index, damaged))
        tag = f"{axis.title}: {axis.told(ended)}{', with a synthetic defect' if damaged else ''}"
        card = card_of(photo, prediction, high, parts.paths[index].name, tags=(tag,))
    strip = [_shot(parts, findings, curve, point.strength, index) for point in curve.points]
    return Condition(axis.name, axis.title, sentence(findings, curve), charts, strip, card)


def _shot(parts: Parts, findings: Findings, curve: Curve, strength: float, index: int) -> Shot:
    step = findings.steps[curve.axis.name, strength] if strength else findings.steps["", 0.0]
    return Shot(
        told=curve.axis.told(strength) if strength else "as it is",
        as_it_is=not strength,
        photo=jpeg(bounded(pixels_of(_shown(parts, curve.axis, strength, index)), THUMBNAIL), quality=80),
        verdicts={arm: _verdict(step.normal[arm][index], findings.thresholds[arm]) for arm in reversed(ARMS)},
    )


def _verdict(score: float, threshold: float) -> str:
    if math.isnan(score):
        return NOT_JUDGED
    return ANOMALOUS if score > threshold else NORMAL


def prediction_at(
    model: Model, parts: Parts, findings: Findings, axis: Axis, strength: float, index: int, damaged: bool = False
) -> Prediction:
    """The verdict as it was counted: on the view as changed, without what was made up to fill it."""
    view = parts.under(axis, strength, index, damaged)
    [prediction] = model.predict_views(view[None])
    prediction = replace(prediction, source=str(parts.paths[index]))
    if not axis.moves:
        return prediction
    made_up = ~photographed(axis, strength, view.shape[-1]).numpy()
    step = findings.steps[axis.name, strength]
    counted = step.damaged if damaged else step.normal
    score, unfiltered_score = (counted[arm][index] for arm in ("filtered", "unfiltered"))
    return replace(
        prediction,
        score=score if prediction.is_judged else prediction.score,
        is_anomalous=prediction.is_judged and score > prediction.threshold,
        unfiltered_score=unfiltered_score,
        p_value=float("nan"),  # it is known for whole views
        map=np.where(made_up, np.nan, prediction.map),
        unfiltered_map=np.where(made_up, np.nan, prediction.unfiltered_map),
    )


def _shown(parts: Parts, axis: Axis, strength: float, index: int, damaged: bool = False) -> Tensor:
    """The view as changed; what is not judged of it is pale."""
    view = parts.under(axis, strength, index, damaged)
    return torch.where(photographed(axis, strength, view.shape[-1]), view, 0.65 + 0.35 * view)
