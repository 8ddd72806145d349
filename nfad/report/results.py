"""What an evaluation leaves in a folder: results.csv, scores.csv and a report for every finding."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from nfad.evaluation.evaluate import corrupted
from nfad.evaluation.foreign import ForeignFinding, photo_of
from nfad.evaluation.scores import Scores, worth_showing
from nfad.evaluation.session import Finding
from nfad.evaluation.tally import METRICS, VERDICTS, Arm, EvaluationRow, mask_of
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, Prediction
from nfad.report.evaluation import Picture, Report, report_of, write_report
from nfad.report.page import about
from nfad.report.pictures import full_at
from nfad.stats.conformal import smallest_rate
from nfad.stats.intervals import Interval
from nfad.system.files import inert, replacing
from nfad.system.progress import Progress
from nfad.vision.images import load_part, pixels_of, to_view

AnyFinding = TypeVar("AnyFinding", Finding, ForeignFinding)
RATES = ("false_alarms", "detections", "verdict_error", "good_not_judged", "bad_not_judged")  # the last two are counts
BOUNDED = ("i_auroc", "p_auroc", "aupro", *VERDICTS)  # what results.csv has intervals of


def write_results(findings: Sequence[Finding], folder: Path, progress: Progress | None = None) -> list[Path]:
    """results.csv (a line a domain and arm), scores.csv (a line an image), and a report for every finding."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [_write_csv(folder / "results.csv", _result_lines(findings))]
    written.append(_write_csv(folder / "scores.csv", _score_lines(findings)))
    return written + _write_reports(findings, _write_report, folder, progress)


def _write_reports(
    findings: Sequence[AnyFinding], write: Callable[[AnyFinding, Path], Path], folder: Path, progress: Progress | None
) -> list[Path]:
    written = []
    for done, finding in enumerate(findings, start=1):
        name = "report.html" if len(findings) == 1 else f"report-{_file_name(finding)}.html"
        written.append(write(finding, folder / name))
        if progress:
            progress("writing reports", done, len(findings))
    return written


def _write_report(finding: Finding, path: Path) -> Path:
    detector, dataset = finding.detector, finding.dataset
    metadata = {"data set": dataset.name, "category": dataset.category}
    metadata |= {"corruption": str(finding.corruption)} if finding.corruption else {}
    metadata |= about(detector)
    promise = detector.held_out.told(detector.config.false_alarm_rate)
    told = report_of(
        finding.evaluation,
        finding.title,
        metadata | {"Threshold": f"{detector.threshold:.3f}: {promise}"},
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
        assert prediction.geometry is not None  # as of every image that came from a file
        return Picture(sample, prediction, mask_of(sample, prediction.geometry, size))
    view, geometry = to_view(load_part(sample.path), size, detector.config.resize)
    view = corrupted(view, corruption, index)
    [prediction] = detector.predict_views(view[None])
    mask = mask_of(sample, geometry, size)
    return Picture(sample, dataclasses.replace(prediction, source=str(sample.path)), mask, pixels_of(view))


def write_foreign(findings: Sequence[ForeignFinding], folder: Path, progress: Progress | None = None) -> list[Path]:
    """results.csv, scores.csv and a report for every finding, of other programs' maps."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[list[object]] = [_result_names()]
    scores: list[list[object]] = [["dataset", "category", "corruption", "image", "kind", "domain", "anomalous"]]
    scores[0] += ["program", "score", "threshold", "verdict"]
    for finding in findings:
        names = [finding.dataset.name, finding.dataset.category, finding.corruption]
        for row in finding.rows:
            for name, arm in row.arms.items():
                gain = row.gains["i_auroc"] if list(row.arms).index(name) else Interval(0.0, 0.0, 0.0)
                gains = [gain.value, gain.low, gain.high]
                lines.append(_result_line(names, row, name, arm, gains))
        for arm in finding.arms:
            for sample, score in zip(finding.dataset.test, arm.scores, strict=True):
                judged = math.isfinite(score) and math.isfinite(arm.threshold)
                verdict = (ANOMALOUS if score > arm.threshold else NORMAL) if judged else NOT_JUDGED
                told = [str(sample.path), sample.kind, sample.domain, int(sample.anomalous), arm.name]
                scores.append([*names, *told, f"{score:.6g}", f"{arm.threshold:.6g}", verdict])
    written = [_write_csv(folder / "results.csv", lines), _write_csv(folder / "scores.csv", scores)]
    return written + _write_reports(findings, _write_foreign_report, folder, progress)


def _write_foreign_report(finding: ForeignFinding, path: Path) -> Path:
    """Scores and maps are z-scored for the page; the second program stands in the filtered arm's place."""
    dataset, arms = finding.dataset, finding.arms
    first, last = arms[0], arms[-1]
    values = {arm.name: arm.scale(np.array(arm.scores)) for arm in arms}
    limits = {arm.name: arm.scale(arm.threshold) for arm in arms}
    known = np.all([np.isfinite(values[arm.name]) & np.isfinite(arm.threshold) for arm in arms], axis=0)
    metadata = {"data set": dataset.name, "category": dataset.category}
    metadata |= {"corruption": finding.corruption} if finding.corruption else {}
    metadata |= {f"Threshold of {arm.name}": f"{arm.threshold:.6g}: {arm.promise}" for arm in arms}
    told = Report(
        title=finding.title,
        metadata=metadata,
        rows=finding.rows,
        scores=Scores(
            score=values[last.name],
            unfiltered_score=values[first.name],
            label=np.array([sample.anomalous for sample in dataset.test]),
            domain=np.array([sample.domain for sample in dataset.test]),
            threshold=limits[last.name],
            unfiltered_threshold=limits[first.name],
            judged=known,
            names=[str(sample.path) for sample in dataset.test],
            arms=tuple(values),
        ),
        notes=[*dataset.notes, *finding.notes],
        protocol=finding.protocol,
        rate=max(max(finding.rate, smallest_rate(arm.normals)) for arm in arms) if known.any() else None,
        pro=finding.pro_curves,
        high=full_at(max((limit for limit in limits.values() if math.isfinite(limit)), default=0.0)),
        arms=tuple(values),
    )
    chosen = worth_showing(told.scores)
    pictures = {
        group: [p for i in indices if (p := _foreign_picture(finding, told, i))] for group, indices in chosen.items()
    }
    return write_report(dataclasses.replace(told, pictures=pictures if any(pictures.values()) else {}), path)


def _foreign_picture(finding: ForeignFinding, told: Report, index: int) -> Picture | None:
    """Its maps are read once more; None where a program has none of it."""
    sample, scores = finding.dataset.test[index], told.scores
    read = [program.read(photo_of(finding.root, sample), finding.size)[1] for program in finding.programs]
    maps = [arm.map_scale(found) for arm, found in zip(finding.arms, read, strict=True) if found is not None]
    if len(maps) < len(read):
        return None
    judged = bool(scores.is_judged[index])
    prediction = Prediction(
        score=float(scores.score[index]),
        is_anomalous=judged and bool(scores.score[index] > scores.threshold),
        threshold=scores.threshold,
        map=maps[-1],
        unfiltered_map=maps[0],
        participation=math.nan,
        nuisance_fraction=math.nan,
        unfiltered_score=float(scores.unfiltered_score[index]),
        unfiltered_threshold=scores.unfiltered_threshold,
        source=str(sample.path),
        why_not_judged="" if judged else "it has no score, or its program no threshold",
    )
    return Picture(sample, prediction, mask_of(sample, None, finding.size))


def _result_names() -> list[object]:
    bounds = [f"{metric}_{side}" for metric in BOUNDED for side in ("low", "high")]
    names = ["dataset", "category", "corruption", "domain", "arm", "good", "bad", *METRICS, *RATES, *bounds]
    return [*names, "i_auroc_gain", "i_auroc_gain_low", "i_auroc_gain_high"]


def _result_line(names: Sequence[str], row: EvaluationRow, name: str, arm: Arm, gain: Sequence[float]) -> list[object]:
    values = [getattr(arm, metric) for metric in (*METRICS, *RATES)]
    values += [bound for metric in BOUNDED for bound in arm.intervals[metric]]
    return [*names, row.domain, name, row.good, row.bad, *(f"{value:.6g}" for value in (*values, *gain))]


def _result_lines(findings: Sequence[Finding]) -> list[list[object]]:
    lines: list[list[object]] = [_result_names()]
    for finding in findings:
        names = [finding.dataset.name, finding.dataset.category, str(finding.corruption or "")]
        for row in finding.evaluation.rows:
            for name in ("unfiltered", "filtered"):
                gain = row.gains["i_auroc"]
                gains = [gain.value, gain.low, gain.high] if name == "filtered" else [0.0, 0.0, 0.0]
                lines.append(_result_line(names, row, name, row.arms[name], gains))
    return lines


def _score_lines(findings: Sequence[Finding]) -> list[list[object]]:
    names = ("dataset", "category", "corruption", "image", "kind", "domain", "anomalous", "score", "threshold")
    names = (*names, "unfiltered_score", "unfiltered_threshold", "gate", "nuisance_fraction", "verdict")
    lines: list[list[object]] = [[*names, "unfiltered_verdict", "strangeness", "why_not_judged"]]
    for finding in findings:
        found = finding.evaluation
        names = [finding.dataset.name, finding.dataset.category, str(finding.corruption or "")]
        for image in found.images:
            sample = image.sample
            numbers = [image.score, found.threshold, image.unfiltered_score, found.unfiltered_threshold]
            numbers += [math.nan if image.gate is None else image.gate, image.nuisance_fraction]
            told = [str(sample.path), sample.kind, sample.domain, int(sample.anomalous)]
            verdict = ANOMALOUS if image.score > found.threshold else NORMAL
            verdict = NOT_JUDGED if image.why_not_judged else verdict
            unfiltered = ANOMALOUS if image.unfiltered_score > found.unfiltered_threshold else NORMAL
            unfiltered = unfiltered if math.isfinite(image.unfiltered_score) else NOT_JUDGED
            said = [verdict, unfiltered, f"{image.strangeness:.6g}", image.why_not_judged]
            lines.append([*names, *told, *(f"{number:.6g}" for number in numbers), *said])
    return lines


def _write_csv(path: Path, lines: list[list[object]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([inert(cell) for cell in line] for line in lines)
    with replacing(path) as file:
        file.write(text.getvalue().encode(errors="surrogateescape"))  # a name that is no UTF-8 stays as it was
    return path


def _file_name(finding: Finding | ForeignFinding) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{finding.dataset.category}-{finding.corruption or 'clean'}").strip("-")
