"""Score other programs by what they wrote: our metrics, intervals and domains, and both errors at a threshold that
their own scores of normals set."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
class ForeignArm:
    """One program's threshold, and what was not as it should be."""

    name: str
    normals: int  # training photos it scored
    threshold: float  # NaN without normals: nothing is judged
    promise: str
    scores: tuple[float, ...]  # of the test, NaN where there is none
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
    limits = {program.name: _threshold(root, dataset, program, rate) for program in programs}
    tally = Tally(dataset.test, list(limits), size, protocol, seed)
    scores: dict[str, list[float]] = {name: [] for name in limits}
    for done, sample in enumerate(dataset.test, start=1):
        said = {}
        for program in programs:
            score, found = program.read(photo_of(root, sample), size)
            scores[program.name].append(score)
            limit = limits[program.name][1]
            said[program.name] = Judged(score, score > limit, found, not math.isnan(limit))
        tally.add(sample, None, said)
        if progress:
            progress(f"reading maps of {dataset.category}", done, len(dataset.test))
    rows, _ = tally.rows()
    arms = tuple(_arm(root, dataset, p.name, *limits[p.name], scores[p.name]) for p in programs)
    notes = [*extra, *(words for arm in arms for words in arm.notes)]
    said_of = {
        "{} test photos have no map of every program: left out of the pixel metrics": tally.without_map,
        "{} bad photos have no mask: left out of the pixel metrics": tally.without_mask,
        "{} bad photos have a mask that marks nothing: all their pixels count as normal": tally.empty_masks,
    }
    notes += [words.format(count) for words, count in said_of.items() if count]
    return ForeignFinding(
        dataset, _corruption(root), tuple(rows), arms, rate, size, protocol, tally.pixel_error, tuple(notes)
    )


def _threshold(root: Path, dataset: Dataset, program: Foreign, rate: float) -> tuple[int, float, str]:
    """How many normals set it, the threshold, and what it promises."""
    own = [program.read(photo_of(root, sample), SIZE)[0] for sample in dataset.train]
    own = [score for score in own if math.isfinite(score)]
    if not own:
        return 0, math.nan, "no threshold, so nothing is judged"
    held = Threshold(tuple(own), tuple(own))
    return len(own), held.at(rate)[0], held.told(rate)


def _arm(
    root: Path, dataset: Dataset, name: str, normals: int, threshold: float, promise: str, scores: Sequence[float]
) -> ForeignArm:
    notes = []
    unscored = [photo_of(root, s) for s, score in zip(dataset.test, scores, strict=True) if not math.isfinite(score)]
    if unscored:
        notes.append(_told(f"{name}: {{}} test photos have no score and are not judged", unscored))
    if not normals:
        notes.append(
            f"{name}: no training photo of {dataset.category} has a score, so there is no threshold and nothing is "
            "judged; write maps of good photos that it was not fitted on, under their paths in the training folder"
        )
    return ForeignArm(name, normals, threshold, promise, tuple(scores), tuple(notes))


def _told(words: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return f"{words.format(len(names))} ({shown})"


def _corruption(root: Path) -> str:
    """What `nfad corrupt` did to the set, where it did."""
    try:
        return str(json.loads((root / SETTINGS).read_text(encoding="utf-8"))["corruption"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
