"""One data set from its samples to a report: fit or load, judge as it is and under corruptions, write it down."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfad.config import Config
from nfad.detector import Detector
from nfad.evaluation.evaluate import Evaluation, corrupted, evaluate
from nfad.evaluation.exported import Model, check_takes_views, facts_of, model_of, pixels_of
from nfad.evaluation.report import Picture, report_of, write_report
from nfad.evaluation.scores import worth_showing
from nfad.evaluation.tally import METRICS, mask_of
from nfad.judge import load_judge
from nfad.pictures import full_at
from nfad.records import Dataset, Sample
from nfad.tokens import Progress
from nfad.vision.corruptions import Corruption
from nfad.vision.images import load_part, to_view
from nfad.writing import replacing

RATES = ("false_alarms", "detections")
BOUNDED = ("i_auroc", "p_auroc", "aupro", "false_alarms")  # what results.csv has intervals of


@dataclass(frozen=True)
class Finding:
    """A category's evaluation, as it is or under one corruption."""

    dataset: Dataset
    corruption: Corruption | None
    detector: Model
    evaluation: Evaluation

    @property
    def title(self) -> str:
        parts = [self.dataset.name, self.dataset.category, str(self.corruption or "")]
        return " · ".join(part for part in parts if part)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know."""
        empty = self.evaluation.empty_masks
        told = f"{empty} bad images have a mask that marks nothing: all their pixels count as normal"
        return (*self.dataset.notes, told) if empty else self.dataset.notes

    def as_dict(self) -> dict[str, Any]:
        found = self.evaluation
        return {
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "corruption": str(self.corruption or ""),
            "notes": list(self.notes),
            "config": self.detector.config.as_dict(),
            "threshold": found.threshold,
            "control_threshold": found.control_threshold,
            "false_alarm_rate": self.detector.false_alarm_rate,
            "protocol": found.protocol,
            "pixel_error": found.pixel_error,
            "without_mask": found.without_mask,
            "empty_masks": found.empty_masks,
            "rows": [row.as_dict() for row in found.rows],
        }


def evaluate_dataset(
    dataset: Dataset,
    config: Config,
    corruptions: Sequence[str] = (),
    *,
    model: Path | None = None,
    weights: str | None = None,
    rate: float | None = None,
    readout: str = "localization",
    protocol: str = "mvtec",
    progress: Progress | None = None,
) -> list[Finding]:
    """The test images as they are, then under each corruption.

    Without a `model` (a file of `nfad fit`, a folder of `nfad export`) one is fitted on the normals; with one, `rate`
    replaces its own false-alarm rate if given.
    """
    suite = [None, *map(Corruption.parse, dict.fromkeys(corruptions))]
    if model is None:
        _check_readable(dataset.test, progress)
        detector: Model = Detector.fit([sample.path for sample in dataset.train], config, progress=progress)
    else:
        judge = load_judge(model, weights)  # first: a wrong file is told of sooner than all images are read
        detector = model_of(judge if rate is None else judge.at_rate(rate))
        if corruptions:
            check_takes_views(detector)
        _check_readable(dataset.test, progress)
    findings = []
    for corruption in suite:
        seen = 0

        def report(*_: object, under: str = str(corruption or "")) -> None:
            nonlocal seen
            seen += 1
            if progress:
                progress("judging" + (f" under {under}" if under else ""), seen, len(dataset.test))

        found = evaluate(
            detector, dataset.test, corruption=corruption, readout=readout, protocol=protocol, on_result=report
        )
        findings.append(Finding(dataset, corruption, detector, found))
    return findings


def write_results(findings: Sequence[Finding], folder: Path, progress: Progress | None = None) -> list[Path]:
    """results.csv (a line a domain and arm), scores.csv (a line an image), and a report for every finding."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [_write_csv(folder / "results.csv", _result_lines(findings))]
    written.append(_write_csv(folder / "scores.csv", _score_lines(findings)))
    for done, finding in enumerate(findings, start=1):
        name = "report.html" if len(findings) == 1 else f"report-{_file_name(finding)}.html"
        written.append(_write_report(finding, folder / name))
        if progress:
            progress("writing reports", done, len(findings))
    return written


def _check_readable(samples: Sequence[Sample], progress: Progress | None) -> None:
    """A damaged test image is told of before the fit, not after it."""
    for done, sample in enumerate(samples, start=1):
        load_part(sample.path)
        if progress:
            progress("checking test images", done, len(samples))


def _write_report(finding: Finding, path: Path) -> Path:
    detector, dataset = finding.detector, finding.dataset
    facts = {"data set": dataset.name, "category": dataset.category}
    facts |= {"corruption": str(finding.corruption)} if finding.corruption else {}
    facts |= facts_of(detector)
    told = report_of(
        finding.evaluation,
        finding.title,
        facts | {"threshold": f"{detector.threshold:.3f} at a false-alarm rate of {detector.false_alarm_rate:.2%}"},
        notes=finding.notes,
        rate=detector.false_alarm_rate,
        high=full_at(detector.threshold),
    )
    pictures = {
        group: [picture_of(finding, index) for index in indices]
        for group, indices in worth_showing(told.scores).items()
    }  # fmt: skip
    return write_report(dataclasses.replace(told, pictures=pictures), path)


def picture_of(finding: Finding, index: int) -> Picture:
    """The few images worth showing are judged once more, so that no map need be kept."""
    sample, detector, corruption = finding.dataset.test[index], finding.detector, finding.corruption
    size = detector.config.size
    if corruption is None:
        prediction = detector.predict(sample.path)
        return Picture(sample, prediction, mask_of(sample, prediction.geometry, size))
    view, geometry = to_view(load_part(sample.path), size, detector.config.resize)
    view = corrupted(view, corruption, index)
    [prediction] = detector.predict_stream([sample.path], edit=lambda _view, _index: view)
    mask = mask_of(sample, geometry, size)
    return Picture(sample, dataclasses.replace(prediction, geometry=None), mask, pixels_of(view))


def _result_lines(findings: Sequence[Finding]) -> list[list[Any]]:
    bounds = [f"{metric}_{side}" for metric in BOUNDED for side in ("low", "high")]
    names = ["dataset", "category", "corruption", "domain", "arm", "good", "bad", *METRICS, *RATES, *bounds]
    lines: list[list[Any]] = [[*names, "i_auroc_gain", "i_auroc_gain_low", "i_auroc_gain_high"]]
    for finding in findings:
        names = [finding.dataset.name, finding.dataset.category, str(finding.corruption or "")]
        for row in finding.evaluation.rows:
            for name in ("control", "nfad"):
                arm, gain = row.arms[name], row.gains["i_auroc"]
                values = [getattr(arm, metric) for metric in (*METRICS, *RATES)]
                values += [bound for metric in BOUNDED for bound in arm.intervals[metric]]
                values += [gain.value, gain.low, gain.high] if name == "nfad" else [0.0, 0.0, 0.0]
                lines.append([*names, row.domain, name, row.good, row.bad, *(f"{value:.6g}" for value in values)])
    return lines


def _score_lines(findings: Sequence[Finding]) -> list[list[Any]]:
    names = ("dataset", "category", "corruption", "image", "kind", "domain", "anomalous", "score", "threshold")
    lines: list[list[Any]] = [[*names, "control_score", "control_threshold", "gate", "nuisance_fraction"]]
    for finding in findings:
        found = finding.evaluation
        names = [finding.dataset.name, finding.dataset.category, str(finding.corruption or "")]
        for image in found.images:
            sample = image.sample
            numbers = [image.score, found.threshold, image.control_score, found.control_threshold]
            numbers += [image.gate, image.nuisance_fraction]
            told = [str(sample.path), sample.kind, sample.domain, int(sample.anomalous)]
            lines.append([*names, *told, *(f"{number:.6g}" for number in numbers)])
    return lines


def _write_csv(path: Path, lines: list[list[Any]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    with replacing(path) as file:
        file.write(text.getvalue().encode(errors="surrogateescape"))  # a name that is no UTF-8 stays as it was
    return path


def _file_name(finding: Finding) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{finding.dataset.category}-{finding.corruption or 'clean'}").strip("-")
