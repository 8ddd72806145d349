"""Cells of a table and photos of a large test set over many workers; the numbers are those of a serial run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.evaluate import predictions_of
from nfad.fleet.cluster import Cluster, placed
from nfad.fleet.memory import cell_memory, host_memory, judge_memory, pixels_of
from nfad.model import Model, load_model
from nfad.paper.cells import Cell, run, sights
from nfad.paper.plugins import HostCell, run_hosts
from nfad.paper.verdict import METHODS, SHIFTS, VerdictCell, by_part, run_verdicts
from nfad.records import Prediction, Sample
from nfad.system.progress import Progress
from nfad.system.results import ResultCache
from nfad.vision.corruptions import Corruption

AnyCell = Cell | HostCell | VerdictCell
SHARD = 8  # batches of photos a task: short enough to wait for in order, long enough to be worth sending


def measure_cells(
    cells: Sequence[AnyCell],
    cache: ResultCache,
    cluster: Cluster,
    on_cell: Callable[[int, int], None] | None = None,
    device: str = "auto",
) -> None:
    """Measures what is not in the cache yet, and leaves it there: a task for all cells that a teacher sees alike, one
    for each host."""
    wanted = {cell.key: cell for cell in cells}
    todo = [cell for cell in wanted.values() if cache.get(cell.settings) is None]
    groups: list[Sequence[AnyCell]] = []
    groups += sights([cell for cell in todo if isinstance(cell, Cell)])
    groups += [[cell] for cell in todo if isinstance(cell, HostCell)]
    groups += by_part([cell for cell in todo if isinstance(cell, VerdictCell)])
    done = len(wanted) - len(todo)
    folder = cache.folder.absolute()
    items, memory = [(group, folder, device) for group in groups], [max(map(_memory, group)) for group in groups]
    for index, failed in cluster.run(_measure, items, memory=memory):
        if isinstance(failed, Exception):
            raise failed
        done += len(groups[index])
        if on_cell:
            on_cell(done, len(wanted))


def _memory(cell: AnyCell) -> int:
    photos = [sample.path for sample in cell.dataset.train]
    fitted, tested, pixels = len(photos), len(cell.dataset.test), pixels_of(photos)
    if isinstance(cell, HostCell):
        return host_memory(cell.config, fitted, pixels)
    if isinstance(cell, VerdictCell):
        fitted, shifts = min(fitted, cell.normals), len(SHIFTS) + 2
        own = cell_memory(cell.config, fitted, min(tested, 2 * cell.photos), pixels, shifts)
        return own if cell.method in METHODS else max(own, host_memory(cell.config, fitted, pixels))
    return cell_memory(cell.config, fitted, tested, pixels)


def _measure(cells: Sequence[AnyCell], folder: Path, device: str, progress: Progress | None) -> None:
    """All of one kind, in their order, as a serial run has them."""
    cache = ResultCache(folder)
    run([cell for cell in cells if isinstance(cell, Cell)], cache, progress, device=device)
    run_hosts([cell for cell in cells if isinstance(cell, HostCell)], cache, progress, device=device)
    run_verdicts([cell for cell in cells if isinstance(cell, VerdictCell)], cache, progress, device=device)


def judging(cluster: Cluster, device: str = "auto") -> Callable[..., Iterator[Prediction]]:
    """What `evaluate` may judge with: shards of the photos over the workers, predictions in the photos' order.

    In order, because a bootstrap draws as images come: the metrics are then a serial run's to the last digit.
    """

    def judge(
        model: Model, samples: Sequence[Sample], corruption: Corruption | None, seed: int
    ) -> Iterator[Prediction]:
        if not isinstance(model, Detector):
            raise NfadError("an export judges on the machine it is for; leave out --ray, or give the fitted model")
        size = SHARD * model.config.batch  # whole batches, as a serial run has them
        with tempfile.TemporaryDirectory(prefix="nfad-") as folder:
            file = cluster.place(model.save(Path(folder) / "model.nfad"))
        shards = [(samples[start : start + size], start) for start in range(0, len(samples), size)]
        items = [(file, shard, corruption, seed + start, model.config.weights, device) for shard, start in shards]
        waiting: dict[int, list[Prediction]] = {}
        wanted = 0
        pixels = pixels_of([sample.path for sample in samples])
        memory = [judge_memory(model.config, len(shard), pixels) for shard, _ in shards]
        for index, found in cluster.run(_judge, items, memory=memory):
            if isinstance(found, Exception):
                raise found
            waiting[index] = found
            while wanted in waiting:
                yield from waiting.pop(wanted)
                wanted += 1

    return judge


def _judge(
    file: Any, samples: list[Sample], corruption: Corruption | None, seed: int, weights: str | None, device: str,
    _: Progress | None,
) -> list[Prediction]:  # fmt: skip
    path = placed(file)
    assert path is not None
    return list(predictions_of(_model(path, weights, device), samples, corruption, seed))


@lru_cache(maxsize=1)
def _model(path: Path, weights: str | None, device: str) -> Model:
    return load_model(path, weights, device=device)
