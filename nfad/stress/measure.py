"""Scores of the same normals, bare and with a synthetic defect each, at every strength of every axis.

Nothing here knows a threshold: scores are kept on disk, and any false-alarm rate can be judged from them. Whether a
photo is judged at all depends on no threshold: the score of one that is not is NaN.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import Prediction
from nfad.stress.axes import Axis, edited, photographed
from nfad.system.files import sha256_of
from nfad.system.progress import Progress, Skip
from nfad.system.results import ResultCache
from nfad.vision.defects import KINDS, with_defect
from nfad.vision.images import load_part, to_view
from nfad.vision.maps import image_score

FORMAT = 3  # raise it when an edit or a defect changes: what was measured before is then measured again
DRAWS = 30  # of a defect, before the last one is taken as it is
VISIBLE = 0.05  # mean change of a pixel under a defect: less than that, most people overlook too


@dataclass(frozen=True)
class Parts:
    """The normals as the model sees them, which of their pixels are part, and the same parts with a defect each."""

    paths: tuple[Path, ...]
    views: Tensor  # image 3 size size
    part: Tensor  # image 1 size size, boolean
    damaged: Tensor  # image 3 size size
    seed: int

    @property
    def digest(self) -> str:
        """Of the files' contents, in order."""
        whole = hashlib.sha256()
        for path in self.paths:
            whole.update(bytes.fromhex(sha256_of(path)))
        return whole.hexdigest()

    def under(self, axis: Axis, strength: float, index: int, damaged: bool = False) -> Tensor:
        """One part's view under a condition; its defect is there before anything befalls the part."""
        view = (self.damaged if damaged else self.views)[index]
        return edited(axis, strength, view, self.part[index], self.seed * 100_003 + index)


@dataclass(frozen=True)
class Step:
    """The image scores at one strength, by arm: of the normals and of the same parts with a defect; NaN: not judged."""

    normal: Mapping[str, tuple[float, ...]]  # "unfiltered" and "filtered"
    damaged: Mapping[str, tuple[float, ...]]


Steps = dict[tuple[str, float], Step]  # axis and strength; ("", 0) is the parts as they are


def read_parts(
    detector: Model,
    paths: Sequence[Path],
    images: int,
    seed: int = 0,
    *,
    separate: bool | None = None,
    skip: Skip | None = None,
    progress: Progress | None = None,
) -> Parts:
    """A seeded choice of at most so many of the images; what cannot be read is told to `skip` and replaced.

    `separate` says whether part and background are told apart, as they are anyway where `tells_part`.
    """
    config, read, views = detector.config, [], []
    for place in np.random.default_rng(seed).permutation(len(paths)):
        if len(read) == images:
            break
        try:
            views.append(to_view(load_part(paths[place]), config.size, config.resize)[0])
        except NfadError as error:
            if skip is None:
                raise
            skip(paths[place], str(error))
            continue
        read.append(int(place))
        if progress:
            progress("reading images", len(read), min(images, len(paths)))
    if not read:
        raise NfadError("none of the normals can be read; give a folder of intact images")
    order = np.argsort(read)  # as in the folder, however they were drawn
    stacked = torch.stack([views[place] for place in order])
    part = torch.ones(len(stacked), 1, config.size, config.size, dtype=torch.bool)
    if isinstance(detector, Detector) and detector.teacher.region is not None:
        part &= detector.teacher.region.seen
    if tells_part(detector) if separate is None else separate:
        if not isinstance(detector, Detector):
            raise NfadError("what is background only the teacher's prior can say, which an exported model lacks")
        part = part & torch.cat([_part(detector, batch) for batch in stacked.split(config.at_once)])
    pairs = enumerate(zip(stacked, part[:, 0], strict=True))
    damaged = torch.stack([damage(view, mask, seed, index, config.tile) for index, (view, mask) in pairs])
    return Parts(tuple(paths[read[place]] for place in order), stacked, part, damaged, seed)


def tells_part(detector: Model) -> bool:
    """Whether the model itself knows part from background, and can be asked: an export holds no prior to look at."""
    return detector.config.foreground and not detector.exported


def damage(view: Tensor, part: Tensor, seed: int, index: int, tile: int | None = None) -> Tensor:
    """A synthetic defect that lies on the part and can be seen: one drawn at random may do neither."""
    draw = np.random.default_rng([seed, index])
    kind = KINDS[index % len(KINDS)]
    changed, mask = with_defect(view, kind, draw, tile)
    for _ in range(DRAWS - 1):
        inside = torch.from_numpy(mask)
        if part[inside].float().mean() > 0.9 and (changed - view).abs().mean(dim=0)[inside].mean() > VISIBLE:
            break
        changed, mask = with_defect(view, kind, draw, tile)
    return changed


def measure(
    detector: Model,
    parts: Parts,
    axes: Mapping[str, Axis],
    cache: ResultCache | None = None,
    progress: Progress | None = None,
) -> Steps:
    """Every strength's scores; those in the cache are not measured again."""
    wanted = [("", 0.0)] + [(name, strength) for name, axis in axes.items() for strength in axis.strengths]
    if cache and not detector.sha256:
        raise NfadError(
            "results are kept by the checksum of the model's file, and this model has none; save it and load it again"
        )
    images = parts.digest if cache else ""

    def settings(name: str, strength: float) -> dict[str, str | float]:
        return {
            "format": FORMAT, "model": detector.sha256, "images": images, "seed": parts.seed, "axis": name,
            "strength": float(strength),
        }  # fmt: skip

    steps: Steps = {}
    for place in wanted:
        if cache and (found := cache.get(settings(*place))) is not None:
            steps[place] = Step(_scores_of(found["normal"]), _scores_of(found["damaged"]))
    missing = [place for place in wanted if place not in steps]  # only these take time, so only these are counted
    passes = 2 * len(parts.paths)
    for done, (name, strength) in enumerate(missing):

        def judged(count: int, before: int = done * passes) -> None:
            if progress:
                progress("judging changed parts", before + count, len(missing) * passes)

        step = at_strength(detector, parts, axes.get(name), strength, judged)
        if cache:
            cache.put(settings(name, strength), asdict(step))
        steps[name, strength] = step
    return {place: steps[place] for place in wanted}


def at_strength(
    detector: Model, parts: Parts, axis: Axis | None, strength: float, judged: Callable[[int], None] | None = None
) -> Step:
    """The parts as they are (no axis), or under one condition; `judged` is told how many views are done."""
    batch, done = detector.config.at_once, 0
    scores: list[dict[str, list[float]]] = []
    for damaged in (False, True):
        found: dict[str, list[float]] = {"unfiltered": [], "filtered": []}
        views = parts.damaged if damaged else parts.views
        for indices in torch.arange(len(views)).split(batch):
            if axis is None:
                seen = views[indices]
            else:
                seen = torch.stack([parts.under(axis, strength, int(index), damaged) for index in indices])
            for arm, values in image_scores(detector, seen, axis, strength).items():
                found[arm] += values.tolist()
            done += len(indices)
            if judged:
                judged(done)
        scores.append(found)
    normal, defects = ({arm: tuple(values) for arm, values in found.items()} for found in scores)
    return Step(normal, defects)


def image_scores(detector: Model, views: Tensor, axis: Axis | None, strength: float) -> dict[str, Tensor]:
    """The model's scores by arm, NaN where it gives no verdict; what fills a moved view is not counted."""
    judged = detector.predict_views(views)
    scores = _counted_scores(detector, judged, axis, strength, views.shape[-1])
    refused = {"unfiltered": torch.zeros(len(judged), dtype=torch.bool)}  # knows no third verdict
    refused["filtered"] = torch.tensor([not each.is_judged for each in judged])
    return {arm: each.masked_fill(refused[arm] | ~each.isfinite(), torch.nan) for arm, each in scores.items()}


def _counted_scores(
    detector: Model, judged: Sequence[Prediction], axis: Axis | None, strength: float, size: int
) -> dict[str, Tensor]:
    if axis is None or not axis.moves or detector.config.pose == "turned":  # of these only a box about the part counts
        scores = ("unfiltered", "unfiltered_score"), ("filtered", "score")
        return {arm: torch.tensor([getattr(each, name) for each in judged]) for arm, name in scores}
    made_up = ~photographed(axis, strength, size)
    scored = {
        "unfiltered": [each.unfiltered_map for each in judged],
        "filtered": [each.map if each.detection_map is None else each.detection_map for each in judged],
    }
    maps = {arm: torch.from_numpy(np.stack(each)).masked_fill(made_up, -torch.inf) for arm, each in scored.items()}
    return {arm: image_score(each, detector.config.scored_fraction) for arm, each in maps.items()}


def _scores_of(kept: Mapping[str, Sequence[float | None]]) -> dict[str, tuple[float, ...]]:
    """As JSON kept them: it has no NaN."""
    return {arm: tuple(math.nan if each is None else each for each in values) for arm, values in kept.items()}


def _part(detector: Detector, views: Tensor) -> Tensor:
    """Which pixels the model takes for the part rather than for background, token by token."""
    tokens = detector.scorer.part(detector.seeing.tokens_and_prior(views)[1])
    grid = detector.teacher.grid
    return F.interpolate(tokens.float().reshape(-1, 1, grid, grid), views.shape[2:], mode="nearest") > 0.5
