"""The demo: render a set, fit on its good parts, compare control with filter in every domain, write the page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from nfad.config import Config
from nfad.data.demo import DOMAINS, read_demo, write_demo
from nfad.detector import Detector
from nfad.evaluation.evaluate import EVERYWHERE, evaluate
from nfad.inspection import model_facts, photo_of, picture_scale
from nfad.page import Page, Strong
from nfad.records import Prediction, Sample
from nfad.tokens import Progress

SHOWN = 3  # pictures per domain and verdict


def demonstrate(folder: Path, preset: str = "embedded", progress: Progress | None = None) -> tuple[list[dict], Path]:
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

    rows = [dataclasses.asdict(row) for row in evaluate(detector, test, keep)]
    page = folder / "index.html"
    _write_page(page, detector, rows, judged)
    return rows, page


def _write_page(
    path: Path, detector: Detector, rows: list[dict[str, Any]], judged: list[tuple[Sample, Prediction]]
) -> None:
    with Page(path, "NFAD demo", facts=model_facts(detector), high=picture_scale(detector)) as page:
        page.add_table(
            "Control → filtered, by acquisition domain. Bold: the paired 95 % interval of the gain excludes zero.",
            ["domain", "good / bad", "image AUROC", "false alarms", "pixel AUROC", "AUPRO"],
            [_cells(row) for row in rows],
        )
        for domain in dict.fromkeys(row["domain"] for row in rows if row["domain"] != EVERYWHERE):
            page.add_section(f"Domain: {domain}")
            here = [(sample, prediction) for sample, prediction in judged if sample.domain == domain]
            for anomalous in (False, True):
                for sample, prediction in [pair for pair in here if pair[0].anomalous is anomalous][:SHOWN]:
                    name = f"{sample.kind} · {sample.path.name}"
                    page.add(photo_of(sample.path), dataclasses.replace(prediction, source=name))


def _cells(row: dict[str, Any]) -> list[Any]:
    auroc = f"{row['control_auroc']:.3f} → {row['auroc']:.3f}"
    certain = row["gain"]["low"] > 0 or row["gain"]["high"] < 0
    return [
        row["domain"],
        f"{row['good']} / {row['bad']}",
        Strong(auroc) if certain else auroc,
        f"{row['control_false_alarms']:.0%} → {row['false_alarms']:.0%}",
        f"{row['control_pixel_auroc']:.3f} → {row['pixel_auroc']:.3f}",
        f"{row['control_aupro']:.3f} → {row['aupro']:.3f}",
    ]
