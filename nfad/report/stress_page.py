"""The stress report: one HTML file that needs nothing else, for whoever decides whether a model goes to the line."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from io import BytesIO
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nfad.model import Model
from nfad.records import Prediction
from nfad.report.card import judged_card
from nfad.report.drawing import STYLE
from nfad.report.look import REPORT
from nfad.report.page import CLOSING, about, encoded, map_controls, opening
from nfad.report.pictures import bounded, full_at
from nfad.report.stress_chart import STYLE as CHART
from nfad.report.stress_chart import rate_chart
from nfad.report.stress_overview import LOOK as OVERVIEW
from nfad.report.stress_overview import overview
from nfad.stress.axes import Axis, photographed
from nfad.stress.findings import ARMS, Curve, Findings, as_dict, as_rows, sentence
from nfad.stress.measure import Parts
from nfad.stress.session import RESULTS, Stress
from nfad.system.files import ready_folder, replacing, strict_json
from nfad.vision.images import pixels_of

THUMBNAIL = 144
LOOK = """
.condition h2 { margin-bottom: 6px; }
.holds { max-width: 80ch; font-size: 16px; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(92px, 1fr)); gap: 12px 8px;
  margin: 16px 0 20px; }
.strip img { display: block; width: 100%; border-radius: 4px; }
.strip figcaption { line-height: 1.35; }
.strip .asis img { outline: 2px solid var(--accent); outline-offset: 1px; }
.strip b { display: block; font-weight: 600; color: var(--ink); }
.strip span { display: block; color: var(--good); }
.strip .bad { color: var(--bad); font-weight: 600; }
"""
GUIDE = """
<details><summary>How to read this report</summary>
<p>Normal parts were changed on purpose, one condition at a time, ever more strongly: as if the lamp, the camera or the
holder had changed. None of them has a defect, so each one flagged is a false alarm. A condition breaks the model at the
weakest strength where the false alarms exceed the limit beyond doubt: the lower end of their 95% interval (Clopper and
Pearson’s) lies above it. Before that strength it holds, which with few images means no more than that no break could be
shown.</p>
<p>A model that flags nothing would hold everywhere. So the same parts were also given a synthetic defect each (a patch
from elsewhere, a narrow scar, a stain) before they were changed, and the second curves show how many of these are
found. They are easier or harder than your own defects: read how the curve falls, not how high it is. Where it certainly
falls below half of what is found as it is, the model goes blind. Beyond a break everything is flagged, defect or
not.</p>
<p>Solid: with the filter; dashed: the same detector without it; bands: 95% intervals; large marks: where it breaks.
Strengths are of the model’s own view: a pixel is one of its pixels. What is pale at the border of a moved part was
never photographed, or lies beside what was not: it is not judged.</p>
</details>
"""


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


def write_page(path: Path, title: str, detector: Model, parts: Parts, findings: Findings, notes: Sequence[str]) -> Path:
    """Write the page; it appears whole or not at all."""
    links = [f'<a href="#{curve.axis.name}">{escape(curve.axis.title)}</a>' for curve in findings.curves]
    contents = f'<nav aria-label="Contents"><a href="#ranges">What may change</a> {" ".join(links)}</nav>\n'
    told = "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    head = opening(
        title,
        [
            *about(detector).items(),
            ("Normals", f"{len(findings.images)} images, each with and without a synthetic defect"),
            ("Limit", f"{findings.limit:.0%} false alarms"),
        ],
        brand="Stress report",
        summary=overview(findings),
        after=f'<ul class="notes" aria-label="Notes">\n{told}</ul>\n{GUIDE}{contents}',
        style=STYLE + REPORT + CHART + OVERVIEW + LOOK,
    )
    with replacing(path) as file:
        file.writelines(map(encoded, chain([head], _body(detector, parts, findings), [CLOSING])))
    return path


def shown_image(findings: Findings, curve: Curve) -> tuple[int, float | None]:
    """Which part to show of an axis, and at which strength its maps: a middling one of those flagged where the model
    breaks, with the filter or else without; where nothing breaks, a middling part and no maps."""
    for arm in ("filtered", "unfiltered"):
        broken = [side for side in findings.both(curve.axis, arm) if side.breaks]
        if broken:
            strength = min(broken, key=lambda side: side.reach).breaks
            scores = np.array(findings.steps[curve.axis.name, strength].normal[arm])
            flagged = np.flatnonzero(scores > findings.thresholds[arm])
            return int(flagged[np.argsort(scores[flagged])[len(flagged) // 2]]), strength
    scores = np.array(findings.steps["", 0.0].normal["filtered"])
    return int(np.argsort(scores)[len(scores) // 2]), None


def _body(detector: Model, parts: Parts, findings: Findings) -> Iterator[str]:
    high = full_at(detector.threshold)
    yield f'<div class="bar">{map_controls(high)}</div>\n'
    for curve in findings.curves:
        yield _section(detector, parts, findings, curve, high)
    text = escape(strict_json(as_dict(findings)), quote=False).replace("}, {", "},\n{")
    yield (
        '<h2 id="numbers">Numbers</h2>\n<details><summary>Everything above as JSON</summary>\n'
        f'<pre id="json" tabindex="0">{text}</pre>\n</details>\n'
    )


def _section(detector: Model, parts: Parts, findings: Findings, curve: Curve, high: float) -> str:
    axis, strengths = curve.axis, [point.strength for point in curve.points]
    marks = {arm: [side.breaks for side in findings.both(axis, arm)] for arm in ARMS}
    alarms = {arm: [point.alarms[arm] for point in curve.points] for arm in ARMS}
    found = {arm: [point.found[arm] for point in curve.points] for arm in ARMS}
    charts = (
        rate_chart("False alarms", "good parts flagged", axis, strengths, alarms, findings.limit, marks),
        rate_chart("Synthetic defects found", "defects flagged", axis, strengths, found),
    )
    panels = "".join(f"<div>{svg}</div>\n" for svg in charts)
    index, broken = shown_image(findings, curve)
    card = ""
    if broken is not None:
        prediction = prediction_at(detector, parts, findings, axis, broken, index)
        view = _shown(parts, axis, broken, index)
        name, tag = parts.paths[index].name, f"{axis.title}: {axis.told(broken)}"
        card = f'<div class="items">\n{judged_card(pixels_of(view), prediction, high, name, tags=(tag,))}</div>\n'
    return (
        f'<section class="condition"><h2 id="{axis.name}">{escape(axis.title)}</h2>\n'
        f'<p class="holds">{escape(sentence(findings, curve))}</p>\n'
        f'<div class="spread"><div class="plots">\n{panels}</div></div>\n'
        f"{_strip(parts, findings, curve, index)}{card}</section>\n"
    )


def _strip(parts: Parts, findings: Findings, curve: Curve, index: int) -> str:
    """One part at every strength, with both verdicts: a sign and a word, never colour alone."""
    shown = []
    for point in curve.points:
        strength = point.strength
        step = findings.steps[curve.axis.name, strength] if strength else findings.steps["", 0.0]
        verdicts = "".join(
            _verdict(step.normal[arm][index] > findings.thresholds[arm], words)
            for arm, words in (("unfiltered", "without"), ("filtered", "with filter"))
        )
        told = escape(curve.axis.told(strength)) if strength else "as it is"
        shown.append(
            f'<figure class="{"changed" if strength else "asis"}">'
            f'<img alt="{escape(curve.axis.title)}: {told}" src="{_jpeg(_shown(parts, curve.axis, strength, index))}">'
            f"<figcaption><b>{told}</b>{verdicts}</figcaption></figure>\n"
        )
    return f'<div class="strip">\n{"".join(shown)}</div>\n'


def _verdict(flagged: bool, words: str) -> str:
    return f'<span class="bad">▲ {words}</span>' if flagged else f"<span>● {words}</span>"


def prediction_at(
    detector: Model, parts: Parts, findings: Findings, axis: Axis, strength: float, index: int
) -> Prediction:
    """The verdict as it was counted: on the view as changed, without what was made up to fill it."""
    view = parts.under(axis, strength, index)
    [prediction] = detector.predict_views(view[None])
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


def _jpeg(view: Tensor) -> str:
    file = BytesIO()
    Image.fromarray(bounded(pixels_of(view), THUMBNAIL)).save(file, "JPEG", quality=80, optimize=True)
    return f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"
