"""Not of the paper: what a verdict is worth under a shift, at a stated rate. Both errors, and who is let pass.

Every method is fitted on the same few normals; every test photo is judged as taken and under shifts that no fit has
seen (ImageNet-C on the model's view, half the light), or as it was photographed in other light where a set has that.
Strangers are photos without such a part: none may be called normal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfad.config import Config
from nfad.detector import Detector
from nfad.evaluation.evaluate import corrupted
from nfad.paper.cells import fingerprint
from nfad.paper.plugins import fit_host, worn
from nfad.records import Dataset, Prediction, Sample
from nfad.stats.conformal import conformal_threshold, smallest_rate
from nfad.system.files import finite
from nfad.system.progress import Progress
from nfad.system.results import ResultCache, key_of
from nfad.vision.caching import Remembering
from nfad.vision.corruptions import Corruption, suite
from nfad.vision.devices import device_of
from nfad.vision.images import load_part, to_view
from nfad.vision.strangers import COVERS, covered, empty_photos
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import tiled_teacher

FORMAT = 1
SEEDS = (54, 1, 42)
AS_TAKEN = "as taken"
SHIFTS = ("contrast:3", "brightness:3", "gaussian_noise:3", "defocus_blur:3", "half the light")
HELD_BACK = "held back"  # good parts under corruptions of severities 1 to 3, one each: for the stated rates
RATES = (0.01, 0.05, 0.10)
SAME_PART = "magnetic-tile"  # whose categories are lights, not parts
PHOTOS = 4  # of every other part, as strangers
# What a method changes of a preset, and which of the two arms is its own.
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "unfiltered": ({"acquisitions": 0}, "unfiltered"),
    "filter alone": ({"acquisitions": 0}, "filtered"),
    "augmentation": ({"rank": {}, "evidence": "filtered", "developed": False}, "filtered"),
    "developed alone": ({}, "unfiltered"),
    "nfad": ({}, "filtered"),
}
ARMS = {"unfiltered": "both arms", "filter alone": "both arms", "developed alone": "nfad"}  # methods that are one fit
Result = dict[str, Any]


@dataclass(frozen=True)
class VerdictCell:
    """A method (or a host, bare or filtered) fitted on some normals of one part with one seed."""

    dataset: Dataset
    strangers: tuple[tuple[str, Sample], ...]  # photos of other parts
    config: Config
    method: str
    normals: int  # fitted on
    photos: int  # good and bad ones tested, each, in each light

    @cached_property
    def settings(self) -> dict[str, object]:
        """All that decides the result."""
        return {
            "format": FORMAT,
            "measure": "verdict",
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "images": fingerprint(self.dataset),
            "strangers": [f"{name}/{sample.path.name}" for name, sample in self.strangers],
            "config": json.loads(json.dumps(self.config.as_dict())),
            "method": ARMS.get(self.method, self.method),
            "normals": self.normals,
            "photos": self.photos,
        }

    @property
    def key(self) -> str:
        return key_of(self.settings)

    @property
    def part(self) -> str:
        name, category = self.dataset.name, self.dataset.category
        return category if name in ("mvtec-ad", "folder", "demo") else f"{name} {category}"

    @property
    def arm(self) -> str:
        return METHODS[self.method][1] if self.method in METHODS else "filtered"


def cells_of(
    datasets: Sequence[Dataset], config: Config, methods: Sequence[str], seeds: Sequence[int], normals: int, photos: int
) -> list[VerdictCell]:
    """Every part, method and seed; hosts are named as they are, or with " filtered" behind."""
    found = []
    for dataset in datasets:
        others = tuple(
            (other.category, sample)
            for other in datasets
            if other.category != dataset.category and not other.name == dataset.name == SAME_PART
            for sample in _chosen([s for s in other.test if not s.anomalous], PHOTOS, 0)
        )
        for seed in seeds:
            for method in methods:
                changes = METHODS[method][0] if method in METHODS else {"acquisitions": 0}
                found.append(
                    VerdictCell(dataset, others, config.changed(seed=seed, **changes), method, normals, photos)
                )
    return found


def run_verdicts(
    cells: Sequence[VerdictCell],
    cache: ResultCache,
    progress: Progress | None = None,
    on_cell: Callable[[int, int], None] | None = None,
    device: str = "auto",
) -> list[Result]:
    """Every cell's result; those on disk are not measured again. The teacher looks at each view of a part once."""
    results: dict[str, Result] = {}
    done = 0
    for group in by_part(cells):
        teachers: list[Teacher] = []
        for cell in group:
            if on_cell:
                on_cell(done, len(cells))
            found = cache.get(cell.settings)
            if found is None:
                if not teachers:
                    teachers = [
                        Remembering(tiled_teacher(*look.sight, device_of(device))) for look in cell.config.looks
                    ]
                found = measure(cell, teachers, progress)
                cache.put(cell.settings, found)
            results[cell.key] = found
            done += 1
    if on_cell:
        on_cell(len(cells), len(cells))
    return [results[cell.key] for cell in cells]


def by_part(cells: Sequence[VerdictCell]) -> list[list[VerdictCell]]:
    """Cells by what the teacher looks at, in their order: each group shares one teacher's memory."""
    groups: dict[object, list[VerdictCell]] = {}
    for cell in cells:
        config, dataset = cell.config, cell.dataset
        groups.setdefault((dataset.name, dataset.category, config.sight, config.beside), []).append(cell)
    return list(groups.values())


def measure(cell: VerdictCell, teachers: Sequence[Teacher], progress: Progress | None = None) -> Result:
    """Thresholds at the usual rates, every photo's scores and strangeness, and the share of synthetic defects that the
    fit found, ready for JSON. There is a teacher for each look that the config asks for."""
    config = cell.config
    normals = [sample.path for sample in _chosen(cell.dataset.train, cell.normals, config.seed)]
    synthetic = None
    if cell.method in METHODS:
        detector = Detector.fit(normals, config, teacher=teachers, progress=progress)
        held, choice = detector.held_out, detector.choice
        synthetic = choice and choice.found_by_evidence
        limits = {str(rate): held.at(held.supported(rate)) for rate in RATES}
        judge = lambda views: [_numbers(each) for each in detector.predict_views(views)]  # noqa: E731
    else:
        views = torch.stack([_view(path, config) for path in normals])
        judge, limits = _host(cell, views.to(teachers[0].device), progress)
    tested = _tested(cell)
    rows: list[list[Any]] = []
    for place, sample in enumerate(tested):
        shifts, views = zip(*_shifted(cell, tested, place), strict=True)
        judged = judge(torch.stack(views))
        rows += [[shift, int(sample.anomalous), *numbers] for shift, numbers in zip(shifts, judged, strict=True)]
        if progress:
            progress("judging", place + 1, len(tested))
    strangers = [[name, *judge(view[None])[0]] for name, view in _strangers(cell, tested)]
    return finite(
        {"limits": limits, "rows": rows, "strangers": strangers, "fitted": len(normals), "synthetic": synthetic}
    )


def _numbers(prediction: Prediction) -> tuple[float, float, bool]:
    return prediction.score, prediction.unfiltered_score, prediction.is_judged


def _host(
    cell: VerdictCell, normals: Tensor, progress: Progress | None
) -> tuple[Callable[[Tensor], list[tuple[float, float, bool]]], dict[str, tuple[float, float]]]:
    """A host's scores, and its thresholds from a third of the normals, held out."""
    name, _, worn_by = cell.method.partition(" ")
    held = max(len(normals) * 3 // 10, 1)
    host = fit_host(name, normals[held:], cell.config, None, progress)
    if worn_by:
        host = worn(host, 64, normals[held:], cell.config, progress)

    def scores(views: Tensor) -> list[float]:
        some = views.to(normals.device).split(cell.config.batch)
        return torch.cat([host.score(part).image for part in some]).tolist()

    own = scores(normals[:held])
    least = smallest_rate(held)
    limits = {}
    for rate in RATES:
        limit = conformal_threshold(own, max(rate, least))
        limits[str(rate)] = (limit, limit)
    return lambda views: [(score, score, True) for score in scores(views)], limits


def _chosen(samples: Sequence[Sample], count: int, seed: int) -> list[Sample]:
    order = np.random.default_rng(seed).permutation(len(samples))[:count]
    return [samples[index] for index in sorted(order)]


def _tested(cell: VerdictCell) -> list[Sample]:
    """So many good and bad photos of every light there is, the same for all seeds."""
    found = []
    for domain in dict.fromkeys(sample.domain for sample in cell.dataset.test):
        for bad in (False, True):
            here = [s for s in cell.dataset.test if s.domain == domain and s.anomalous == bad]
            found += _chosen(here, cell.photos, 0)
    return found


def _shifted(cell: VerdictCell, tested: Sequence[Sample], place: int) -> Iterator[tuple[str, Tensor]]:
    """A photo as taken and under every shift; a set with several real lights is judged in those alone."""
    sample = tested[place]
    view = _view(sample.path, cell.config)
    several = len({each.domain for each in tested}) > 1
    yield (sample.domain if several else AS_TAKEN), view
    if not sample.anomalous:
        mild = suite(severities=(1, 2, 3))
        yield HELD_BACK, corrupted(view, mild[place * 5 % len(mild)], place)
    if not several:
        for shift in SHIFTS:
            yield shift, _under(shift, view, place)


def _under(shift: str, view: Tensor, seed: int) -> Tensor:
    if shift == "half the light":
        return (view * 127.5).round() / 255
    return corrupted(view, Corruption.parse(shift), seed)


def _strangers(cell: VerdictCell, tested: Sequence[Sample]) -> Iterator[tuple[str, Tensor]]:
    yield from empty_photos(cell.config.size).items()
    good = [sample for sample in tested if not sample.anomalous]
    for side, sample in enumerate(good[:PHOTOS]):
        for name in COVERS:
            yield name, covered(_view(sample.path, cell.config), name, side)
    for name, sample in cell.strangers:
        yield name, _view(sample.path, cell.config)


def _view(path: Any, config: Config) -> Tensor:
    return to_view(load_part(path), config.size, config.resize)[0]
