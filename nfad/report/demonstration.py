"""The demo: render a set, fit on its good parts, compare unfiltered with filtered in every domain, write the page.

One more photo shows no part of the set at all: what a model says of such a stranger belongs to what it is worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfad.config import Config
from nfad.data.demo import DOMAINS, read_demo, write_demo, write_stranger
from nfad.detector import Detector
from nfad.evaluation.evaluate import evaluate
from nfad.evaluation.tally import EVERYWHERE, EvaluationRow
from nfad.presets import DEFAULT
from nfad.records import ARMS, Prediction, Sample
from nfad.report.card import changed
from nfad.report.page import Page, Strong, about
from nfad.report.pictures import full_at
from nfad.report.tables import alarm_rate, detection_rate, number_told, rate_told, refusals
from nfad.system.progress import Progress
from nfad.vision.pixels import photo_of

SHOWN = 3  # pictures per domain and verdict
FIRST = "Three good parts and three bad ones; those whose verdict the filter changed, for better or worse, come first."
STRANGER = (
    "A photo of the empty bench: no blade. There is nothing to judge in it: a model that calls it normal "
    "would pass whatever lies on the belt."
)


@dataclass(frozen=True)
class Demonstration:
    """What the demo found."""

    rows: tuple[EvaluationRow, ...]
    stranger: Prediction
    promise: str  # what the thresholds are set for
    page: Path


def demonstrate(
    folder: Path,
    preset: str = DEFAULT,
    progress: Progress | None = None,
    *,
    config: Config | None = None,
    counts: Mapping[str, int] | None = None,
) -> Demonstration:
    """Everything in `folder`: set/ (images and masks), stranger.png, demo.nfad, index.html.

    `config` instead of the preset's, and `counts` of `write_demo`, make another demo of it.
    """
    report = progress or (lambda stage, done, total: None)
    root = write_demo(
        folder / "set", **(counts or {}), progress=lambda done, total: report("rendering parts", done, total)
    )
    train, test = read_demo(root)
    test = sorted(test, key=lambda sample: DOMAINS.index(sample.domain))
    # The parts lie before backgrounds that change, which is what `foreground` is for.
    config = config or Config.preset(preset, false_alarm_rate=0.05, foreground=True)
    detector = Detector.fit([sample.path for sample in train], config, progress=progress)
    detector.save(folder / "demo.nfad")
    judged: list[tuple[Sample, Prediction]] = []

    def keep(sample: Sample, prediction: Prediction) -> None:
        judged.append((sample, prediction))
        report("judging parts", len(judged), len(test))

    rows = evaluate(detector, test, on_result=keep).rows
    stranger = detector.predict(write_stranger(folder / "stranger.png"))
    promise = detector.held_out.told(config.false_alarm_rate)
    page = folder / "index.html"
    _write_page(page, detector, rows, judged, stranger, promise)
    return Demonstration(rows, stranger, promise, page)


def _write_page(
    path: Path,
    detector: Detector,
    rows: Sequence[EvaluationRow],
    judged: list[tuple[Sample, Prediction]],
    stranger: Prediction,
    promise: str,
) -> None:
    metadata = list((about(detector) | {"False-alarm rate": promise}).items())
    with Page(path, "NFAD demo", metadata=metadata, high=full_at(detector.threshold)) as page:
        page.add_table(
            f"Both errors by acquisition domain ({rows[0].good} good and {rows[0].bad} bad parts in each), with 95 % "
            "intervals. Verdict error: (good flagged + bad passed) / 2; a "
            "part that is not judged is neither. Bold: the paired 95 % interval of the gain excludes zero.",
            ["domain", "score", "good flagged", "bad found", "verdict error", "good not judged", "bad not judged",
             "image AUROC", "AUPRO"],
            [_cells(row, arm) for row in rows for arm in ARMS],
        )  # fmt: skip
        page.add_section("A stranger", STRANGER)
        page.add(photo_of(Path(stranger.source)), dataclasses.replace(stranger, source="no blade · stranger.png"))
        for domain in dict.fromkeys(row.domain for row in rows if row.domain != EVERYWHERE):
            page.add_section(f"Domain: {domain}", FIRST)
            for sample, prediction in shown(judged, domain):
                name = f"{sample.kind} · {sample.path.name}"
                page.add(photo_of(sample.path), dataclasses.replace(prediction, source=name))


def shown(judged: Sequence[tuple[Sample, Prediction]], domain: str) -> list[tuple[Sample, Prediction]]:
    """A few good and a few bad parts of a domain: first those that show what the filter does."""
    here = [pair for pair in judged if pair[0].domain == domain]
    here.sort(key=lambda pair: not changed(pair[1]))
    return [pair for bad in (False, True) for pair in [each for each in here if each[0].anomalous is bad][:SHOWN]]


def _cells(row: EvaluationRow, arm: str) -> list[object]:
    found = row.arms[arm]

    def ranked(metric: str) -> str | Strong:
        told = number_told(getattr(found, metric))
        return Strong(told) if arm == "filtered" and row.gains[metric].excludes_zero else told

    return [
        row.domain, arm, rate_told(alarm_rate(row, arm)),
        rate_told(detection_rate(row, arm)), number_told(found.verdict_error), refusals(row, arm, "good"),
        refusals(row, arm, "bad"), ranked("i_auroc"), ranked("aupro"),
    ]  # fmt: skip
