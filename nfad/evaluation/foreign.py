"""Score other programs by what they wrote: our metrics, intervals and domains, and both errors at a threshold that
their own scores of normals set."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.copies import SETTINGS
from nfad.evaluation.maps import Foreign
from nfad.evaluation.metrics import PROTOCOLS
from nfad.evaluation.tally import EvaluationRow, Judged, Tally
from nfad.records import Dataset, Sample
from nfad.system.progress import Progress
from nfad.verdict.threshold import Threshold

SIZE = 256  # pixels a side on which every program's maps are measured
SHOWN = 3  # names in a note


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of a program's normals (of all that it scored where there are none): its z-scores."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, normals: Sequence[float], tested: Sequence[float]) -> Scale:
        values = np.array([value for value in normals if math.isfinite(value)] or tested, dtype=float)
        values = values[np.isfinite(values)]
        if not len(values):
            return cls(0.0, 1.0)
        deviation = float(values.std())
        return cls(float(values.mean()), deviation if deviation > 0 else 1.0)

    def __call__(self, values: Any) -> Any:
        return (values - self.mean) / self.deviation


@dataclass(frozen=True)
class ForeignArm:
    """One program's threshold, and what was not as it should be."""

    name: str
    normals: int  # training photos it scored
    threshold: float  # NaN without normals: nothing is judged
    promise: str
    scores: tuple[float, ...]  # of the test, NaN where there is none
    scale: Scale  # of its scores
    map_scale: Scale  # of its maps, another one where the scores are not theirs
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ForeignFinding:
    """One category; an arm a program, the second compared with the first."""

    dataset: Dataset
    corruption: str
    rows: tuple[EvaluationRow, ...]
    arms: tuple[ForeignArm, ...]
    rate: float  # asked for
    size: int
    protocol: str
    pixel_error: float
    notes: tuple[str, ...]
    pro_curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # domain → arm → false-positive rate, overlap
    root: Path
    programs: tuple[Foreign, ...]  # where its maps lie

    @property
    def title(self) -> str:
        return " · ".join(part for part in (self.dataset.name, self.dataset.category, self.corruption) if part)

    def as_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "corruption": self.corruption,
            "notes": [*self.dataset.notes, *self.notes],
            "asked_false_alarm_rate": self.rate,
            "size": self.size,
            "protocol": self.protocol,
            "pixel_error": self.pixel_error,
            "programs": [
                {"name": arm.name, "normals": arm.normals, "threshold": arm.threshold, "promise": arm.promise}
                for arm in self.arms
            ],
            "rows": [row.as_dict() for row in self.rows],
        }


def evaluate_maps(
    root: Path,
    datasets: Sequence[Dataset],
    places: Sequence[Path],
    *,
    rate: float = 0.01,
    size: int = SIZE,
    protocol: str = "mvtec",
    seed: int = 0,
    progress: Progress | None = None,
) -> list[ForeignFinding]:
    """Every category of a set by the folder that a program wrote, or by those of two, compared in pairs.

    A map is taken to cover the whole photo. A program's threshold is the conformal one of the training photos that it
    scored; these must not be ones it was fitted on, which cannot be seen from here.
    """
    if protocol not in PROTOCOLS:
        raise NfadError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}")
    if not 16 <= size <= 4096:
        raise NfadError(f"size must lie in 16..4096; got {size}")
    if not 1 <= len(places) <= 2:
        raise NfadError(f"give the folder of one program, or of two to compare; got {len(places)}")
    every = [photo_of(root, s) for each in datasets for s in (*each.train, *each.test)]
    programs = [Foreign.open(place, every) for place in places]
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        raise NfadError(f"the folders are told apart by their names; got {', '.join(names)}: rename one")
    extra = tuple(_told(f"{p.name}: {{}} of no photo of the set", p.extra) for p in programs if p.extra)
    return [
        _category(root, each, programs, rate, size, protocol, seed, extra if each is datasets[0] else (), progress)
        for each in datasets
    ]


def photo_of(root: Path, sample: Sample) -> str:
    """A photo's name in folders that are laid out as the set."""
    return sample.path.relative_to(root).as_posix()


def _category(
    root: Path, dataset: Dataset, programs: Sequence[Foreign], rate: float, size: int, protocol: str, seed: int,
    extra: tuple[str, ...], progress: Progress | None,
) -> ForeignFinding:  # fmt: skip
    normals = {program.name: _normals(root, dataset, program, rate) for program in programs}
    tally = Tally(dataset.test, list(normals), size, protocol, seed)
    scores: dict[str, list[float]] = {name: [] for name in normals}
    largest: dict[str, list[float]] = {name: [] for name in normals}
    for done, sample in enumerate(dataset.test, start=1):
        said = {}
        for program in programs:
            score, found = program.read(photo_of(root, sample), size)
            scores[program.name].append(score)
            largest[program.name].append(math.nan if found is None else float(found.max()))
            limit = normals[program.name].threshold
            said[program.name] = Judged(score, score > limit, found, not math.isnan(limit))
        tally.add(sample, None, said)
        if progress:
            progress(f"reading maps of {dataset.category}", done, len(dataset.test))
    rows, _ = tally.rows()
    arms = tuple(_arm(root, dataset, p, normals[p.name], scores[p.name], largest[p.name]) for p in programs)
    notes = [*extra, *(words for arm in arms for words in arm.notes)]
    said_of = {
        "{} test photos have no map of every program: left out of the pixel metrics": tally.without_map,
        "{} bad photos have no mask: left out of the pixel metrics": tally.without_mask,
        "{} bad photos have a mask that marks nothing: all their pixels count as normal": tally.empty_masks,
    }
    notes += [words.format(count) for words, count in said_of.items() if count]
    curves = {
        place: {name: arm.resamples.pro_curve() for name, arm in by.items()} for place, by in tally.pixels.items()
    }
    return ForeignFinding(
        dataset, _corruption(root), tuple(rows), arms, rate, size, protocol, tally.pixel_error, tuple(notes),
        curves, root, tuple(programs),
    )  # fmt: skip


class Normals(NamedTuple):
    """What a program made of the training photos, and the threshold that this sets."""

    scores: list[float]
    largest: list[float]  # values of its maps
    threshold: float
    promise: str


def _normals(root: Path, dataset: Dataset, program: Foreign, rate: float) -> Normals:
    read = [program.read(photo_of(root, sample), SIZE) for sample in dataset.train]
    own = [score for score, _ in read if math.isfinite(score)]
    largest = [float(found.max()) for _, found in read if found is not None]
    if not own:
        return Normals(own, largest, math.nan, "no threshold, so nothing is judged")
    held = Threshold(tuple(own), tuple(own))
    return Normals(own, largest, held.at(rate)[0], held.told(rate))


def _arm(
    root: Path, dataset: Dataset, program: Foreign, own: Normals, scores: Sequence[float], largest: Sequence[float]
) -> ForeignArm:
    notes, name = [], program.name
    unscored = [photo_of(root, s) for s, score in zip(dataset.test, scores, strict=True) if not math.isfinite(score)]
    if unscored:
        notes.append(_told(f"{name}: {{}} test photos have no score and are not judged", unscored))
    if not own.scores:
        notes.append(
            f"{name}: no training photo of {dataset.category} has a score, so there is no threshold and nothing is "
            "judged; write maps of good photos that it was not fitted on, under their paths in the training folder"
        )
    scale = Scale.of(own.scores, scores)
    return ForeignArm(
        name, len(own.scores), own.threshold, own.promise, tuple(scores), scale,
        Scale.of(own.largest, largest) if program.scores else scale, tuple(notes),
    )  # fmt: skip


def _told(words: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return f"{words.format(len(names))} ({shown})"


def _corruption(root: Path) -> str:
    """What `nfad corrupt` did to the set, where it did."""
    try:
        return str(json.loads((root / SETTINGS).read_text(encoding="utf-8"))["corruption"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
