"""A table's cells: one measurement each, kept on disk as soon as it is made, found again by what it measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from nfad.config import Config
from nfad.detector import Detector
from nfad.evaluation.evaluate import Evaluation, evaluate
from nfad.evaluation.tally import EvaluationRow, Resamples, Tally
from nfad.fitting.nuisance import check_ranks
from nfad.paper.entanglement import entanglement
from nfad.paper.estimates import Result
from nfad.paper.mechanism import MechanismRow, mechanism
from nfad.records import Dataset
from nfad.reference.training import LATER
from nfad.system.files import finite
from nfad.system.progress import Progress
from nfad.system.results import ResultCache, key_of
from nfad.vision.caching import Remembering
from nfad.vision.corruptions import Corruption
from nfad.vision.devices import device_of
from nfad.vision.teacher import Teacher, load_teacher

FORMAT = 2  # raise it when a cell's contents change: older cells are then measured again


@dataclass(frozen=True)
class Cell:
    """A fit on one category, and what is measured of it."""

    dataset: Dataset
    config: Config
    measure: str = "metrics"  # or entanglement, mechanism
    corruption: str = ""  # e.g. "contrast:3"

    @cached_property
    def settings(self) -> dict[str, object]:
        """All that decides the result."""
        return {
            "format": FORMAT,
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "images": fingerprint(self.dataset),
            "config": json.loads(json.dumps(self.config.as_dict())),
            "measure": self.measure,
            "corruption": self.corruption,
        }

    @property
    def key(self) -> str:
        return key_of(self.settings)


def run(
    cells: Sequence[Cell],
    cache: ResultCache,
    progress: Progress | None = None,
    on_cell: Callable[[int, int], None] | None = None,
    device: str = "auto",
) -> dict[str, Result]:
    """Every cell's result by its key; those on disk are not measured again.

    Cells that share images and teacher follow one another, so that the teacher looks at each view once; cells that
    share a fit are measured from the same detector.
    """
    wanted = {cell.key: cell for cell in cells}
    results = {key: found for key, cell in wanted.items() if (found := cache.get(cell.settings)) is not None}
    todo = [cell for key, cell in wanted.items() if key not in results]
    if on_cell:
        on_cell(len(results), len(wanted))
    for group in sights(todo):
        teacher: Teacher | None = None
        for fit in _together(group, lambda cell: json.dumps(cell.settings["config"], sort_keys=True)):
            config = fit[0].config
            if teacher is None:
                sight = (config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)
                teacher = Remembering(load_teacher(*sight, device_of(device)))
                for cell in group:  # a rank that cannot be is told of before the first fit, not after an hour
                    check_ranks(cell.config, teacher.channels)
            images = [sample.path for sample in fit[0].dataset.train]
            workdir = cache.folder / f"student-{training_key(fit[0])}" if config.reference == "student" else None
            if workdir:  # kept: a trained student serves every table and variant that changes nothing of its training
                workdir.mkdir(parents=True, exist_ok=True)
            detector = Detector.fit(images, config, progress=progress, teacher=teacher, workdir=workdir)
            for cell in fit:
                result = measure(detector, cell, progress)
                cache.put(cell.settings, result)
                results[cell.key] = result
                if on_cell:
                    on_cell(len(results), len(wanted))
    return results


def measure(detector: Detector, cell: Cell, progress: Progress | None = None) -> Result:
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


def ready_for_json(rows: Sequence[EvaluationRow], resamples: Resamples, found: Evaluation | Tally) -> Result:
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


def _mechanism_row(row: MechanismRow) -> dict[str, str | float]:
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


def sights(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells by what the teacher looks at: each group costs it one pass."""
    return _together(cells, _sight)


def training_key(cell: Cell) -> str:
    """All that decides the student a cell's fit trains."""
    settings = {name: value for name, value in cell.config.as_dict().items() if name not in LATER}
    return key_of({"images": cell.settings["images"], "training": json.loads(json.dumps(settings))})


def _sight(cell: Cell) -> Hashable:
    """What the teacher looks at, and which."""
    config = cell.config
    return (cell.settings["images"], config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)


def _together(cells: Iterable[Cell], by: Callable[[Cell], Hashable]) -> list[list[Cell]]:
    groups: dict[Hashable, list[Cell]] = {}
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
