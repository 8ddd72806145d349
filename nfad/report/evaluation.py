"""The evaluation report: one HTML file that needs nothing else, for whoever must believe or doubt the numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from nfad.errors import NfadError
from nfad.evaluation.curves import Points, roc_curve, thinned
from nfad.evaluation.evaluate import Evaluation
from nfad.evaluation.scores import ARMS, Scores, grouped
from nfad.evaluation.tally import EvaluationRow
from nfad.records import Prediction, Sample
from nfad.report.card import Card, card_of
from nfad.report.charts import Line, bins_for, histogram, pro_chart, roc_chart, score_axis, tallest_share
from nfad.report.pictures import HIGH
from nfad.report.rendering import write_page
from nfad.report.tables import headline, image_table, pixel_table, remarks, summary_row, verdict_table
from nfad.vision.pixels import photo_of

PROTOCOLS = {
    "mvtec": "exact over all images together",
    "dinomaly": "200 thresholds, over all images, as Dinomaly's code",
    "ader": "200 thresholds, over all images, as ADer's code",
    "mmr": "200 thresholds, image by image and averaged, as MMR's code",
}

GROUPS = {
    "false_alarms": ("False alarms", "good parts that the filtered score flags, highest first"),
    "misses": ("Missed defects", "bad parts that neither score flags, lowest filtered score first"),
    "lost": ("Lost to the filter", "bad parts that only the unfiltered score flags, highest first"),
    "silenced": ("Silenced by the filter", "good parts that only the unfiltered score flags, highest first"),
    "found": ("Found by the filter", "bad parts that only the filtered score flags, highest first"),
    "not_judged": ("Not judged", "parts without a verdict, good ones first: neither flagged nor passed"),
}
SHORT = 12  # characters of an arm's name that a chart's legend has room for


@dataclass(frozen=True)
class Picture:
    """An image worth showing; `mask` lies on the model's view, `photo` only if what was judged is not the file."""

    sample: Sample
    prediction: Prediction
    mask: np.ndarray | None = None
    photo: np.ndarray | None = None


@dataclass(frozen=True)
class Report:
    """What there is to tell."""

    title: str
    metadata: Mapping[str, str]
    rows: Sequence[EvaluationRow]
    scores: Scores
    notes: Sequence[str] = ()
    protocol: str = "mvtec"
    rate: float | None = None  # the false-alarm rate that the thresholds were set for
    pro: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)  # domain → arm → curve
    pictures: Mapping[str, Iterable[Picture]] = field(default_factory=dict)  # by group, as worth_showing says
    high: float = HIGH  # z-score of full colour
    arms: Sequence[str] = ARMS  # one program, or what is compared and then with what
    gated: bool = False  # whether the model's maps have a gate

    def __post_init__(self) -> None:
        if not any(self.scores.of(row.domain).any() for row in self.rows):
            raise NfadError("a report needs a row with images of its domain; evaluate a set that is not empty")


class Plots(NamedTuple):
    """Charts of one domain."""

    place: str
    charts: list[Markup]


class Group(NamedTuple):
    """Pictures with something in common; `cards` are made as they are taken."""

    title: str
    told: str
    cards: Iterator[Card] | None


def report_of(
    evaluation: Evaluation,
    title: str,
    metadata: Mapping[str, str],
    *,
    notes: Sequence[str] = (),
    rate: float | None = None,
    high: float = HIGH,
) -> Report:
    """The report of what `evaluate` returned, without pictures."""
    images = evaluation.images
    scores = Scores(
        score=np.array([image.score for image in images]),
        unfiltered_score=np.array([image.unfiltered_score for image in images]),
        label=np.array([image.sample.anomalous for image in images]),
        domain=np.array([image.sample.domain for image in images]),
        threshold=evaluation.threshold,
        unfiltered_threshold=evaluation.unfiltered_threshold,
        judged=np.array([not image.why_not_judged for image in images]),
        names=[str(image.sample.path) for image in images],
    )
    notes = list(notes)
    if evaluation.without_mask:
        notes.append(f"{evaluation.without_mask} bad images have no mask and are left out of the pixel metrics.")
    if evaluation.pixel_error:
        notes.append(f"The maps were not all held in memory: pixel metrics may be off by {evaluation.pixel_error:.1g}.")
    return Report(
        title=title,
        metadata=metadata,
        rows=evaluation.rows,
        scores=scores,
        notes=notes,
        protocol=evaluation.protocol,
        rate=rate,
        pro=evaluation.pro_curves,
        high=high,
        gated=any(image.gate is not None for image in images),
    )


def write_report(report: Report, path: str | Path) -> Path:
    """Write the page; it appears whole or not at all."""
    metadata = {**report.metadata, "AUPRO by protocol": f"{report.protocol}, {PROTOCOLS[report.protocol]}"}
    row, arms = summary_row(report.rows), report.arms
    return write_page(
        path,
        "evaluation.html",
        title=report.title,
        metadata=metadata.items(),
        high=report.high,
        gated=report.gated,
        notes=report.notes,
        arms=None if arms == ARMS else arms,
        figures=headline(row, arms),
        good=row.good,
        bad=row.bad,
        tables=[
            verdict_table(report.rows, arms),
            image_table(report.rows, arms),
            pixel_table(report.rows, report.protocol, arms),
        ],
        remarks=remarks(report.rows, report.rate, arms),
        histograms=_histograms(report),
        curves=_curves(report),
        pictured=bool(report.pictures),
        groups=_groups(report),
        numbers=_json_lines(as_numbers(report)),
    )


def _histograms(report: Report) -> Iterator[Plots]:
    """A row a domain, all on one axis: down the unfiltered column one sees the good parts move, or stay."""
    scores, places = report.scores, _places(report)
    fewest = min((int(here.sum()) for here in places.values()), default=1)
    axis = score_axis(
        np.concatenate([scores.score[scores.ranked], scores.unfiltered_score[scores.ranked]]),
        (scores.threshold, scores.unfiltered_threshold),
        bins_for(fewest),
    )
    split: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
    for place, here in places.items():
        for arm in report.arms:
            values = scores.by_arm(arm)[0]
            split[place, arm] = values[here & ~scores.label], values[here & scores.label]
    top = max((tallest_share(parts, axis, scores.by_arm(arm)[1]) for (_, arm), parts in split.items()), default=1.0)
    for place in places:
        charts = [
            histogram(place, _short(arm, 2 * SHORT), *split[place, arm], scores.by_arm(arm)[1], axis, top)
            for arm in report.arms
        ]
        yield Plots(place, charts)


def _curves(report: Report) -> Iterator[Plots]:
    for place, here in _places(report).items():
        row = next(row for row in report.rows if row.domain == place)
        roc, pro = [], []
        for arm, style in zip(report.arms, ARMS[-len(report.arms) :], strict=True):
            values, found = report.scores.by_arm(arm)[0][here], row.arms[arm]
            points = roc_curve(values, report.scores.label[here])
            name = _short(arm, SHORT)
            roc.append(Line(name, style, points, found.i_auroc, (found.false_alarms, found.detections)))
            if place in report.pro:
                pro.append(Line(name, style, thinned(*report.pro[place][arm]), found.aupro))
        yield Plots(place, [roc_chart(place, roc)] + ([pro_chart(place, pro)] if pro else []))


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _places(report: Report) -> dict[str, np.ndarray]:
    """The rows that are about images with a score, and which; a mean over domains has none of its own."""
    chosen = {row.domain: report.scores.of(row.domain) & report.scores.ranked for row in report.rows}
    return {place: here for place, here in chosen.items() if here.any()}


def _groups(report: Report) -> Iterator[Group]:
    members = grouped(report.scores)
    for group, (title, words) in groups_of(report.arms).items():
        pictures, count = list(report.pictures.get(group, ())), len(members[group])
        told = f"{count} {words}." if count else f"No {words.partition(',')[0]}."
        if len(pictures) < count:
            told += f" {len(pictures)} are shown, from each domain in turn." if pictures else " Not shown here."
        yield Group(title, told, (_card(picture, report) for picture in pictures) if pictures else None)


def groups_of(arms: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Title and words of each group of pictures; of a single program there is nothing that only another flags."""
    if arms == ARMS:
        return GROUPS
    last = arms[-1]
    if len(arms) == 1:
        return {
            "false_alarms": ("False alarms", f"good parts that {last} flags, highest first"),
            "misses": ("Missed defects", f"bad parts that {last} does not flag, lowest first"),
            "not_judged": GROUPS["not_judged"],
        }
    first = arms[0]
    return {
        "false_alarms": ("False alarms", f"good parts that {last} flags, highest first"),
        "misses": ("Missed defects", f"bad parts that neither flags, lowest score of {last} first"),
        "lost": (f"Missed by {last} alone", f"bad parts that only {first} flags, highest first"),
        "silenced": (f"False alarms of {first} alone", f"good parts that only {first} flags, highest first"),
        "found": (f"Found by {last} alone", f"bad parts that only {last} flags, highest first"),
        "not_judged": GROUPS["not_judged"],
    }


def _card(picture: Picture, report: Report) -> Card:
    sample = picture.sample
    photo = photo_of(sample.path) if picture.photo is None else picture.photo
    tags = (f"Truth: {sample.kind}", f"Domain: {sample.domain}")
    return card_of(photo, picture.prediction, report.high, str(sample.path), picture.mask, tags, report.arms)


def as_numbers(report: Report) -> dict[str, object]:
    """All of the report that is not a picture, as JSON bears it: what is undefined is null."""
    scores = report.scores
    numbers = {
        "title": report.title,
        "metadata": report.metadata,
        "notes": report.notes,
        "protocol": report.protocol,
        "false_alarm_rate": report.rate,
        "rows": [_flat(row) for row in report.rows],
        "threshold": scores.threshold,
        "unfiltered_threshold": scores.unfiltered_threshold,
        "images": {
            "name": scores.names,
            "domain": scores.domain,
            "bad": scores.label,
            "judged": scores.is_judged,
            "score": scores.score,
            "unfiltered_score": scores.unfiltered_score,
        },
        "pro_curves": {
            place: {arm: thinned(*points) for arm, points in arms.items()} for place, arms in report.pro.items()
        },
    }
    return {name: _plain(value) for name, value in numbers.items()}


def _flat(row: EvaluationRow) -> dict[str, object]:
    """Intervals as metric_low and metric_high beside their metric; gains as metric_gain, image AUROC's as gain."""
    flat: dict[str, object] = {"domain": row.domain, "good": row.good, "bad": row.bad}
    for name, arm in row.arms.items():
        values: dict[str, float] = {key: value for key, value in vars(arm).items() if key != "intervals"}
        for metric, (low, high) in arm.intervals.items():
            values |= {f"{metric}_low": low, f"{metric}_high": high}
        flat[name] = values
    for metric, gain in row.gains.items():
        key = "gain" if metric == "i_auroc" else f"{metric}_gain"
        flat |= {key: gain.value, f"{key}_low": gain.low, f"{key}_high": gain.high}
    return flat


def _json_lines(numbers: Mapping[str, object]) -> str:
    """JSON with a line a key, to be read by people too."""
    return "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in numbers.items()) + "\n}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
