"""A table's cells: one measurement each, kept on disk as soon as it is made, found again by what it measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nfad.analysis.entanglement import entanglement
from nfad.analysis.mechanism import mechanism
from nfad.config import Config
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.evaluate import Evaluation, evaluate
from nfad.evaluation.tally import EvaluationRow, Resamples, Tally
from nfad.nuisance import check_ranks
from nfad.records import Dataset
from nfad.tokens import Progress
from nfad.vision.corruptions import Corruption
from nfad.vision.remembering import Remembering
from nfad.vision.teacher import Teacher, load_teacher
from nfad.writing import finite, replacing, strict_json

FORMAT = 1  # raise it when a cell's contents change: older cells are then measured again
LATER = ("false_alarm_rate", "batch")  # settings that no measurement here depends on


@dataclass(frozen=True)
class Cell:
    """A fit on one category, and what is measured of it."""

    dataset: Dataset
    config: Config
    measure: str = "metrics"  # or entanglement, mechanism
    corruption: str = ""  # e.g. "contrast:3"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """All that decides the result."""
        config = {key: value for key, value in self.config.as_dict().items() if key not in LATER}
        return {
            "format": FORMAT,
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "images": fingerprint(self.dataset),
            "config": json.loads(json.dumps(config)),
            "measure": self.measure,
            "corruption": self.corruption,
        }

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Store:
    """Finished cells in a folder, a JSON file each."""

    folder: Path

    def get(self, cell: Cell) -> dict[str, Any] | None:
        path = self._path(cell)
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise NfadError(f"{path} is not a finished cell (it is not JSON); delete it and run again") from None
        return kept["result"] if kept.get("facts") == cell.facts else None

    def put(self, cell: Cell, result: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._path(cell)) as file:
            file.write(strict_json({"facts": cell.facts, "result": result}).encode())

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.json"


def run(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress | None = None,
    on_cell: Callable[[int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Every cell's result by its key; those on disk are not measured again.

    Cells that share images and teacher follow one another, so that the teacher looks at each view once; cells that
    share a fit are measured from the same detector.
    """
    results = {cell.key: store.get(cell) for cell in cells}
    todo = {cell.key: cell for cell in cells if results[cell.key] is None}
    done = len(results) - len(todo)
    if on_cell:
        on_cell(done, len(results))
    for group in _together(todo.values(), _sight):
        teacher: Teacher | None = None
        for fit in _together(group, lambda cell: json.dumps(cell.facts["config"], sort_keys=True)):
            config = fit[0].config
            if teacher is None:
                loaded = load_teacher(config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)
                teacher = Remembering(loaded)
                for cell in group:  # a rank that cannot be is told of before the first fit, not after an hour
                    check_ranks(cell.config, teacher.channels)
            images = [sample.path for sample in fit[0].dataset.train]
            workdir = store.folder / f"{fit[0].key}.work" if config.reference == "student" else None
            if workdir:
                workdir.mkdir(parents=True, exist_ok=True)
            detector = Detector.fit(images, config, progress=progress, teacher=teacher, workdir=workdir)
            for cell in fit:
                result = measure(detector, cell, progress)
                store.put(cell, result)
                results[cell.key] = result
                done += 1
                if on_cell:
                    on_cell(done, len(results))
            if workdir:
                for file in workdir.iterdir():
                    file.unlink()
                workdir.rmdir()
    return results


def measure(detector: Detector, cell: Cell, progress: Progress | None = None) -> dict[str, Any]:
    """The cell's numbers, ready for JSON (NaN as null)."""
    samples = cell.dataset.test
    if cell.measure == "entanglement":
        overlaps = entanglement(detector, samples, progress)
        return finite({"rows": [{"domain": row.domain, **asdict(row.mean), **asdict(row.count)} for row in overlaps]})
    if cell.measure == "mechanism":
        rows = mechanism(detector, samples, progress)
        return finite({"rows": [_mechanism_row(row) for row in rows]})
    seen = 0

    def report(*_: object) -> None:
        nonlocal seen
        seen += 1
        if progress:
            progress("judging", seen, len(samples))

    corruption = Corruption.parse(cell.corruption) if cell.corruption else None
    found = evaluate(detector, samples, corruption=corruption, on_result=report)
    return ready_for_json(found.rows, found.resamples, found)


def ready_for_json(rows: Sequence[EvaluationRow], resamples: Resamples, found: Evaluation | Tally) -> dict[str, Any]:
    """What a table needs of an evaluation."""
    drawn = {
        domain: {
            arm: {metric: values.round(5).tolist() for metric, values in by_metric.items()}
            for arm, by_metric in arms.items()
        }
        for domain, arms in resamples.items()
    }
    return finite({
        "rows": [row.as_dict() for row in rows],
        "resamples": drawn,
        "pixel_error": found.pixel_error,
        "without_mask": found.without_mask,
    })  # fmt: skip


def _mechanism_row(row: Any) -> dict[str, Any]:
    found = row.magnitudes
    return {
        "domain": row.domain,
        "rms_before": found.control_normal,
        "rms_after": found.normal,
        "energy_removed": found.energy_removed,
        "contrast_before": found.control_contrast,
        "contrast_after": found.contrast,
        "spearman": row.spearman,
        **asdict(row.count),
    }


def _sight(cell: Cell) -> tuple:
    """What the teacher looks at, and which."""
    config = cell.config
    return (cell.facts["images"], config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)


def _together(cells: Iterable[Cell], by: Callable[[Cell], Any]) -> list[list[Cell]]:
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(by(cell), []).append(cell)
    return list(groups.values())


def fingerprint(dataset: Dataset) -> str:
    """Images by name and size, wherever they lie."""
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.test):
        for sample in split:
            size = sample.path.stat().st_size if sample.path.exists() else -1  # a set that is only planned for
            digest.update(f"{sample.path.name}|{size}|{sample.kind}|{sample.domain}|{sample.mask is None}\n".encode())
        digest.update(b"--\n")
    return digest.hexdigest()[:24]
