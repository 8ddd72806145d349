"""The evaluation report: one HTML file that needs nothing else, for whoever must believe or doubt the numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.curves import Points, roc_curve, thinned
from nfad.evaluation.evaluate import Evaluation
from nfad.evaluation.scores import Scores, grouped
from nfad.records import Prediction, Sample
from nfad.report.card import judged_card
from nfad.report.charts import Line, bins_for, histogram, pro_chart, roc_chart, score_axis, tallest_share
from nfad.report.drawing import STYLE
from nfad.report.look import REPORT
from nfad.report.page import CLOSING, encoded, map_controls, opening
from nfad.report.pictures import HIGH
from nfad.report.tables import ARMS, Row, headline, image_table, pixel_table, remarks
from nfad.system.files import replacing
from nfad.vision.pixels import photo_of

PROTOCOLS = {
    "mvtec": "exact over all images together",
    "dinomaly": "200 thresholds, over all images, as Dinomaly's code",
    "ader": "200 thresholds, over all images, as ADer's code",
    "mmr": "200 thresholds, image by image and averaged, as MMR's code",
}

GROUPS = {
    "false_alarms": ("False alarms", "good parts that the filtered detector flags, highest score first"),
    "misses": ("Missed defects", "bad parts that neither detector flags, lowest score first"),
    "lost": ("Lost to the filter", "bad parts that only the control flags, its highest score first"),
    "silenced": ("Silenced by the filter", "good parts that only the control flags, its highest score first"),
    "found": ("Found by the filter", "bad parts that only the filtered detector flags, highest score first"),
}

GUIDE = """
<details><summary>How to read this report</summary>
<p>Every image is judged twice: by the control, a detector that knows nothing of acquisition, and by the same detector
after the changes that light, background or camera cause have been filtered out. Nothing was chosen on these images:
the thresholds come from normal images held out of the fit.</p>
<p>Small numbers are 95% intervals: bootstrap over images for areas, Clopper and Pearson’s for rates. A gain is taken
over the same images, and it is bold only if its interval excludes zero. In a table, flagged and found are shares of the
good and of the bad images at the threshold in use.</p>
<p>In the pictures, colours share one scale of z-scores; a cyan line surrounds what exceeds the threshold, a dashed
black and white line is the ground truth. Point at a map to see the photo below it.</p>
</details>
"""

CONTENTS = """<nav aria-label="Contents"><a href="#domains">By domain</a> <a href="#scores">Scores</a>
<a href="#curves">Curves</a> <a href="#pictures">Pictures</a> <a href="#numbers">Numbers</a></nav>
"""


@dataclass(frozen=True)
class Picture:
    """An image worth showing; `mask` lies on the model's view, `photo` only if what was judged is not the file."""

    sample: Sample
    prediction: Prediction
    mask: np.ndarray | None = None
    photo: np.ndarray | None = None


@dataclass(frozen=True)
class Report:
    """What there is to tell. `rows` are tables.Row: domain, good, bad, the metrics under "unfiltered" and "filtered"
    (with metric_low and metric_high where there is an interval), and gain, gain_low, gain_high of image AUROC."""

    title: str
    facts: Mapping[str, str]
    rows: Sequence[Row]
    scores: Scores
    notes: Sequence[str] = ()
    protocol: str = "mvtec"
    rate: float | None = None  # the false-alarm rate that the thresholds were set for
    pro: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)  # domain → arm → curve
    pictures: Mapping[str, Iterable[Picture]] = field(default_factory=dict)  # by group, as worth_showing says
    high: float = HIGH  # z-score of full colour

    def __post_init__(self) -> None:
        if not any(self.scores.of(row["domain"]).any() for row in self.rows):
            raise NfadError("a report needs a row with images of its domain; evaluate a set that is not empty")


def report_of(evaluation: Evaluation, title: str, facts: Mapping[str, str], **more: Any) -> Report:
    """The report of what `evaluate` returned; `more` are further fields, e.g. notes, rate, pictures."""
    images = evaluation.images
    scores = Scores(
        score=[image.score for image in images],
        unfiltered_score=[image.unfiltered_score for image in images],
        label=[image.sample.anomalous for image in images],
        domain=[image.sample.domain for image in images],
        threshold=evaluation.threshold,
        unfiltered_threshold=evaluation.unfiltered_threshold,
        names=[str(image.sample.path) for image in images],
    )
    rows = [_flat(row.as_dict()) for row in evaluation.rows]
    notes = list(more.pop("notes", ()))
    if evaluation.without_mask:
        notes.append(f"{evaluation.without_mask} bad images have no mask and are left out of the pixel metrics.")
    if evaluation.pixel_error:
        notes.append(f"The maps were not all held in memory: pixel metrics may be off by {evaluation.pixel_error:.1g}.")
    return Report(
        title, facts, rows, scores, notes=notes, protocol=evaluation.protocol, pro=evaluation.pro_curves, **more
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: row[name] for name in ("domain", "good", "bad")}
    for arm, values in row["arms"].items():
        flat[arm] = {name: value for name, value in values.items() if name != "intervals"}
        for metric, (low, high) in values["intervals"].items():
            flat[arm] |= {f"{metric}_low": low, f"{metric}_high": high}
    for metric, gain in row["gains"].items():
        key = "gain" if metric == "i_auroc" else f"{metric}_gain"
        flat |= {key: gain["value"], f"{key}_low": gain["low"], f"{key}_high": gain["high"]}
    return flat


def write_report(report: Report, path: str | Path) -> Path:
    """Write the page; it appears whole or not at all."""
    facts = {**report.facts, "AUPRO by protocol": f"{report.protocol}, {PROTOCOLS[report.protocol]}"}
    head = opening(
        report.title,
        facts.items(),
        brand="Evaluation report",
        summary=headline(report.rows),
        after=_notes(report.notes) + GUIDE + CONTENTS,
        style=STYLE + REPORT,
    )
    parts = chain([head], _body(report), [CLOSING])
    with replacing(path) as file:
        file.writelines(map(encoded, parts))
    return Path(path)


def _body(report: Report) -> Iterator[str]:
    yield _domains(report)
    yield _histograms(report)
    yield _curves(report)
    yield from _pictures(report)
    yield _numbers(report)


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return f'<ul class="notes" aria-label="Notes">\n{items}</ul>\n' if notes else ""


def _domains(report: Report) -> str:
    said = "".join(f"<li>{escape(words)}</li>\n" for words in remarks(report.rows, report.rate))
    return (
        '<h2 id="domains">By domain</h2>\n'
        + image_table(report.rows)
        + pixel_table(report.rows, report.protocol)
        + (f'<ul class="remarks">\n{said}</ul>\n' if said else "")
    )


def _histograms(report: Report) -> str:
    """A row a domain, all on one axis: down the control's column one sees the good parts move, or stay."""
    scores, places = report.scores, _places(report)
    fewest = min(int(here.sum()) for here in places.values())
    axis = score_axis(
        np.concatenate([scores.score, scores.unfiltered_score]),
        (scores.threshold, scores.unfiltered_threshold),
        bins_for(fewest),
    )
    split = {
        (place, arm): [scores.by_arm(arm)[0][here & (scores.label == bad)] for bad in (False, True)]
        for place, here in places.items()
        for arm in ARMS
    }
    top = max(tallest_share(parts, axis, scores.by_arm(arm)[1]) for (_, arm), parts in split.items())
    shown = [
        _plots("spread", place, [
            histogram(place, name, *split[place, arm], scores.by_arm(arm)[1], axis, top) for arm, name in ARMS.items()
        ])
        for place in places
    ]  # fmt: skip
    return (
        '<h2 id="scores">Scores</h2>\n<p class="lead">Good parts rise above the line and bad parts hang below it, as '
        "shares of their number; what lies right of the threshold, on the grey ground, is flagged. All panels share "
        f"their axes.</p>\n{''.join(shown)}"
    )


def _curves(report: Report) -> str:
    shown = []
    for place, here in _places(report).items():
        row = next(row for row in report.rows if row["domain"] == place)
        roc, pro = [], []
        for arm, name in ARMS.items():
            values, area = report.scores.by_arm(arm)[0][here], row[arm]
            mark = area["false_alarms"], area["detections"]
            points = roc_curve(values, report.scores.label[here])
            roc.append(Line(name, arm, points, area["i_auroc"], mark))
            if place in report.pro:
                pro.append(Line(name, arm, thinned(*report.pro[place][arm]), area["aupro"]))
        drawn = [roc_chart(place, roc)] + ([pro_chart(place, pro)] if pro else [])
        shown.append(_plots("place", place, drawn))
    return (
        '<h2 id="curves">Curves</h2>\n<p class="lead">ROC over images, with a mark where the threshold in use lies; '
        f'PRO, the overlap with defects, over pixels.</p>\n<div class="places">\n{"".join(shown)}</div>\n'
    )


def _plots(kind: str, place: str, drawn: Sequence[str]) -> str:
    panels = "".join(f"<div>{svg}</div>\n" for svg in drawn)
    return (
        f'<section class="{kind}"><h3><bdi>{escape(place)}</bdi></h3>\n<div class="plots">\n{panels}</div></section>\n'
    )


def _places(report: Report) -> dict[str, np.ndarray]:
    """The rows that are about images, and which; a mean over domains has none of its own."""
    chosen = {row["domain"]: report.scores.of(row["domain"]) for row in report.rows}
    return {place: here for place, here in chosen.items() if here.any()}


def _pictures(report: Report) -> Iterator[str]:
    members = grouped(report.scores)
    yield '<section id="pictures">\n'
    if report.pictures:
        yield f'<div class="bar">{map_controls(report.high)}</div>\n'
    for group, (title, words) in GROUPS.items():
        cards = [_card(picture, report.high) for picture in report.pictures.get(group, ())]
        count = len(members[group])
        told = f"{count} {words}." if count else f"No {words.partition(',')[0]}."
        if len(cards) < count:
            told += f" {len(cards)} are shown, from each domain in turn." if cards else " Not shown here."
        yield f'<h2>{title}</h2>\n<p class="lead">{told}</p>\n'
        if cards:
            yield f'<div class="items">\n{"".join(cards)}</div>\n'
    yield "</section>\n"


def _card(picture: Picture, high: float) -> str:
    sample = picture.sample
    photo = photo_of(sample.path) if picture.photo is None else picture.photo
    tags = (f"Truth: {sample.kind}", f"Domain: {sample.domain}")
    return judged_card(photo, picture.prediction, high, str(sample.path), picture.mask, tags)


def _numbers(report: Report) -> str:
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in as_numbers(report).items()]
    text = escape("{\n" + ",\n".join(lines) + "\n}", quote=False)
    return (
        '<h2 id="numbers">Numbers</h2>\n<details><summary>Everything above as JSON</summary>\n'
        f'<pre id="json" tabindex="0">{text}</pre>\n</details>\n'
    )


def as_numbers(report: Report) -> dict[str, Any]:
    """All of the report that is not a picture, as JSON bears it: what is undefined is null."""
    scores = report.scores
    return _plain(
        {
            "title": report.title,
            "facts": report.facts,
            "notes": report.notes,
            "protocol": report.protocol,
            "false_alarm_rate": report.rate,
            "rows": report.rows,
            "threshold": scores.threshold,
            "unfiltered_threshold": scores.unfiltered_threshold,
            "images": {
                "name": scores.names,
                "domain": scores.domain,
                "bad": scores.label,
                "score": scores.score,
                "unfiltered_score": scores.unfiltered_score,
            },
            "pro_curves": {
                place: {arm: thinned(*points) for arm, points in arms.items()} for place, arms in report.pro.items()
            },
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
