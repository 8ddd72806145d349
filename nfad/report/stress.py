"""The stress report: one HTML file that needs nothing else, for whoever decides whether a model goes to the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from nfad.model import Model
from nfad.records import Prediction
from nfad.report.card import Card, card_of, jpeg
from nfad.report.charts import rate_chart
from nfad.report.page import about
from nfad.report.pictures import bounded, full_at
from nfad.report.rendering import Figure, write_page
from nfad.stress.axes import Axis, photographed
from nfad.stress.findings import Curve, Findings, as_dict, as_rows, range_told, sentence
from nfad.stress.measure import Parts
from nfad.stress.session import RESULTS, Stress
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
    whole: bool  # it holds wherever it was tried
    breaks_at_once: bool


class Range(NamedTuple):
    """A condition's row on the first screen."""

    axis: str
    title: str
    two_sided: bool
    arms: list[Reach]
    found: str  # defects found as far out as it holds


class Shot(NamedTuple):
    """One part at one strength, and whether each arm flags it."""

    told: str
    as_it_is: bool
    photo: str
    flagged: dict[str, bool]


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
    write_stress_page(page, title, model, found.parts, found.findings, found.notes)
    return [page, table, numbers]


def write_stress_page(
    path: Path, title: str, model: Model, parts: Parts, findings: Findings, notes: Sequence[str]
) -> Path:
    """Write the page; it appears whole or not at all."""
    high = full_at(model.threshold)
    return write_page(
        path,
        "stress.html",
        title=title,
        metadata=[
            *about(model).items(),
            ("Normals", f"{len(findings.images)} images, each with and without a synthetic defect"),
            ("Limit", f"{findings.limit:.0%} false alarms"),
        ],
        high=high,
        gated=model.config.localization == "global",
        limit=f"{findings.limit:.0%}",
        notes=notes,
        figures=figures_of(findings),
        ranges=ranges_of(findings),
        links=[(curve.axis.name, curve.axis.title) for curve in findings.curves],
        conditions=(_condition(model, parts, findings, curve, high) for curve in findings.curves),
        numbers=strict_json(as_dict(findings)).replace("}, {", "},\n{"),
    )


def figures_of(findings: Findings) -> list[Figure]:
    """What to know of all conditions together."""
    whole = {
        arm: sum(all(side.breaks is None for side in findings.both(curve.axis, arm)) for curve in findings.curves)
        for arm in ARMS
    }
    normal, nearest = findings.normal, findings.sides()[0]
    first = Figure("none", "of the conditions tried breaks it")
    if nearest.breaks == 0:
        first = Figure("as they are", "too many good parts are rejected already", "no change is needed to break it")
    elif nearest.breaks is not None:
        words = f"is where {nearest.axis.title.lower()} breaks it, before all else"
        first = Figure(nearest.told(), words, nearest.axis.direction(nearest.side))
    rates = [
        Figure(f"{found['filtered'].value:.0%}", words, f"{found['unfiltered'].value:.0%} unfiltered")
        for found, words in (
            (normal.alarms, "good parts rejected as they are"),
            (normal.found, "synthetic defects found"),
        )
    ]
    held = f"{whole['filtered']} of {len(findings.curves)}"
    return [Figure(held, "conditions hold to the end", f"{whole['unfiltered']} unfiltered"), first, *rates]


def ranges_of(findings: Findings) -> list[Range]:
    """How far each condition may go, the first to break at the top."""

    def nearest(curve: Curve) -> list[float]:
        return [min(side.reach for side in findings.both(curve.axis, arm)) for arm in ARMS]

    return [_range(findings, curve) for curve in sorted(findings.curves, key=nearest)]


def _range(findings: Findings, curve: Curve) -> Range:
    axis = curve.axis
    arms = [_reach(findings, curve, arm) for arm in ARMS]
    seen = min(findings.both(axis, "filtered"), key=lambda side: side.found).seen()
    return Range(axis.name, axis.title, bool(axis.less), arms, seen)


def _reach(findings: Findings, curve: Curve, arm: str) -> Reach:
    sides = findings.both(curve.axis, arm)
    shares = {side.side: abs(side.holds) / abs(side.axis.of_side(side.side)[-1]) for side in sides}
    left, right = (50 - 50 * shares[-1], 50 - 50 * shares[1]) if -1 in shares else (0.0, 100 - 100 * shares[1])
    return Reach(
        name=arm,
        left=f"{left:.4g}",
        right=f"{right:.4g}",
        told=range_told(findings, curve, arm),
        whole=all(side.breaks is None for side in sides),
        breaks_at_once=not any(side.holds for side in sides),
    )


def shown_image(findings: Findings, curve: Curve) -> tuple[int, float | None]:
    """Which part to show of an axis, and at which strength its maps: a middling one of those flagged where the model
    breaks, filtered or else unfiltered; where nothing breaks, a middling part and no maps."""
    for arm in ARMS:
        broken = [side for side in findings.both(curve.axis, arm) if side.breaks]
        if broken and (strength := min(broken, key=lambda side: side.reach).breaks):
            scores = np.array(findings.steps[curve.axis.name, strength].normal[arm])
            flagged = np.flatnonzero(scores > findings.thresholds[arm])
            return int(flagged[np.argsort(scores[flagged])[len(flagged) // 2]]), strength
    scores = np.array(findings.steps["", 0.0].normal["filtered"])
    return int(np.argsort(scores)[len(scores) // 2]), None


def _condition(model: Model, parts: Parts, findings: Findings, curve: Curve, high: float) -> Condition:
    axis, strengths = curve.axis, [point.strength for point in curve.points]
    index, broken = shown_image(findings, curve)
    # In the order of a legend that is read from left to right, as everywhere else: unfiltered, filtered.
    arms = tuple(reversed(ARMS))
    marks = {arm: [side.breaks for side in findings.both(axis, arm)] for arm in arms}
    alarms = {arm: [point.alarms[arm] for point in curve.points] for arm in arms}
    found = {arm: [point.found[arm] for point in curve.points] for arm in arms}
    charts = [
        rate_chart("False alarms", "good parts flagged", axis, strengths, alarms, findings.limit, marks),
        rate_chart("Synthetic defects found", "defects flagged", axis, strengths, found),
    ]
    card = None
    if broken is not None:
        prediction = prediction_at(model, parts, findings, axis, broken, index)
        photo = pixels_of(_shown(parts, axis, broken, index))
        tag = f"{axis.title}: {axis.told(broken)}"
        card = card_of(photo, prediction, high, parts.paths[index].name, tags=(tag,))
    strip = [_shot(parts, findings, curve, point.strength, index) for point in curve.points]
    return Condition(axis.name, axis.title, sentence(findings, curve), charts, strip, card)


def _shot(parts: Parts, findings: Findings, curve: Curve, strength: float, index: int) -> Shot:
    step = findings.steps[curve.axis.name, strength] if strength else findings.steps["", 0.0]
    return Shot(
        told=curve.axis.told(strength) if strength else "as it is",
        as_it_is=not strength,
        photo=jpeg(bounded(pixels_of(_shown(parts, curve.axis, strength, index)), THUMBNAIL), quality=80),
        flagged={arm: step.normal[arm][index] > findings.thresholds[arm] for arm in reversed(ARMS)},
    )


def prediction_at(
    model: Model, parts: Parts, findings: Findings, axis: Axis, strength: float, index: int
) -> Prediction:
    """The verdict as it was counted: on the view as changed, without what was made up to fill it."""
    view = parts.under(axis, strength, index)
    [prediction] = model.predict_views(view[None])
    prediction = replace(prediction, source=str(parts.paths[index]))
    if not axis.moves:
        return prediction
    made_up = ~photographed(axis, strength, view.shape[-1]).numpy()
    normal = findings.steps[axis.name, strength].normal
    score, unfiltered_score = (normal[arm][index] for arm in ("filtered", "unfiltered"))
    return replace(
        prediction,
        score=score,
        is_anomalous=score > prediction.threshold,
        unfiltered_score=unfiltered_score,
        p_value=float("nan"),  # it is known for whole views
        map=np.where(made_up, np.nan, prediction.map),
        unfiltered_map=np.where(made_up, np.nan, prediction.unfiltered_map),
    )


def _shown(parts: Parts, axis: Axis, strength: float, index: int) -> Tensor:
    """The view as changed; what is not judged of it is pale."""
    view = parts.under(axis, strength, index)
    return torch.where(photographed(axis, strength, view.shape[-1]), view, 0.65 + 0.35 * view)
