"""The demo: render a set, fit on its good parts, compare unfiltered with filtered in every domain, write the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from nfad.config import Config
from nfad.data.demo import DOMAINS, read_demo, write_demo
from nfad.detector import Detector
from nfad.evaluation.evaluate import evaluate
from nfad.evaluation.tally import EVERYWHERE, EvaluationRow
from nfad.records import Prediction, Sample
from nfad.report.page import Page, Strong, about
from nfad.report.pictures import full_at
from nfad.system.progress import Progress
from nfad.vision.pixels import photo_of

SHOWN = 3  # pictures per domain and verdict


def demonstrate(
    folder: Path, preset: str = "embedded", progress: Progress | None = None
) -> tuple[tuple[EvaluationRow, ...], Path]:
    """Everything in `folder`: set/ (images and masks), demo.nfad, index.html. Returns the table's rows and the page."""
    report = progress or (lambda stage, done, total: None)
    root = write_demo(folder / "set", progress=lambda done, total: report("rendering parts", done, total))
    train, test = read_demo(root)
    test = sorted(test, key=lambda sample: DOMAINS.index(sample.domain))
    # The parts lie before backgrounds that change, which is what `foreground` is for.
    config = Config.preset(preset, false_alarm_rate=0.05, foreground=True)
    detector = Detector.fit([sample.path for sample in train], config, progress=progress)
    detector.save(folder / "demo.nfad")
    judged: list[tuple[Sample, Prediction]] = []

    def keep(sample: Sample, prediction: Prediction) -> None:
        judged.append((sample, prediction))
        report("judging parts", len(judged), len(test))

    rows = evaluate(detector, test, on_result=keep).rows
    page = folder / "index.html"
    _write_page(page, detector, rows, judged)
    return rows, page


def _write_page(
    path: Path, detector: Detector, rows: Sequence[EvaluationRow], judged: list[tuple[Sample, Prediction]]
) -> None:
    with Page(path, "NFAD demo", metadata=list(about(detector).items()), high=full_at(detector.threshold)) as page:
        page.add_table(
            "Unfiltered → filtered, by acquisition domain. Bold: the paired 95 % interval of the gain excludes zero.",
            ["domain", "good / bad", "image AUROC", "false alarms", "defects found", "pixel AUROC", "AUPRO"],
            [_cells(row) for row in rows],
        )
        for domain in dict.fromkeys(row.domain for row in rows if row.domain != EVERYWHERE):
            page.add_section(f"Domain: {domain}")
            here = [(sample, prediction) for sample, prediction in judged if sample.domain == domain]
            for anomalous in (False, True):
                for sample, prediction in [pair for pair in here if pair[0].anomalous is anomalous][:SHOWN]:
                    name = f"{sample.kind} · {sample.path.name}"
                    page.add(photo_of(sample.path), dataclasses.replace(prediction, source=name))


def _cells(row: EvaluationRow) -> list[object]:
    before, after = row.arms["unfiltered"], row.arms["filtered"]

    def change(metric: str) -> str | Strong:
        text = f"{getattr(before, metric):.3f} → {getattr(after, metric):.3f}"
        return Strong(text) if row.gains[metric].excludes_zero else text

    return [
        row.domain,
        f"{row.good} / {row.bad}",
        change("i_auroc"),
        f"{before.false_alarms:.0%} → {after.false_alarms:.0%}",
        f"{before.detections:.0%} → {after.detections:.0%}",
        change("p_auroc"),
        change("aupro"),
    ]
