"""Scores of the same normals, bare and with a synthetic defect each, at every strength of every axis.

Nothing here knows a threshold: scores are kept on disk, and any false-alarm rate can be judged from them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.exported import Exported, Model
from nfad.fitting import Skip
from nfad.stress.axes import Axis, edited, photographed
from nfad.tokens import Progress
from nfad.vision.defects import KINDS, with_defect
from nfad.vision.images import load_part, to_view
from nfad.vision.maps import image_score
from nfad.vision.prior import foreground_tokens
from nfad.writing import replacing, strict_json

FORMAT = 2  # raise it when an edit or a defect changes: what was measured before is then measured again
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
            whole.update(hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()

    def under(self, axis: Axis, strength: float, index: int, damaged: bool = False) -> Tensor:
        """One part's view under a condition; its defect is there before anything befalls the part."""
        view = (self.damaged if damaged else self.views)[index]
        return edited(axis, strength, view, self.part[index], self.seed * 100_003 + index)


@dataclass(frozen=True)
class Step:
    """The image scores at one strength, by arm: of the normals and of the same parts with a defect."""

    normal: Mapping[str, tuple[float, ...]]  # "control" and "nfad"
    damaged: Mapping[str, tuple[float, ...]]


Steps = dict[tuple[str, float], Step]  # axis and strength; ("", 0) is the parts as they are


@dataclass(frozen=True)
class Kept:
    """Finished strengths in a folder, a JSON file each, found again by model, images, seed, axis and strength."""

    folder: Path
    model: str  # SHA-256 of the model's file, or of its export's facts

    def facts(self, parts: Parts, images: str, axis: str, strength: float) -> dict[str, Any]:
        return {
            "format": FORMAT, "model": self.model, "images": images, "seed": parts.seed, "axis": axis,
            "strength": float(strength),
        }  # fmt: skip

    def get(self, facts: Mapping[str, Any]) -> Step | None:
        path = self._path(facts)
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            found = (kept["result"][name] for name in ("normal", "damaged"))
            scores = [{arm: tuple(values) for arm, values in each.items()} for each in found]
            return Step(*scores) if kept["facts"] == facts else None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NfadError(f"{path} is not a finished strength; delete it and run again") from None

    def put(self, facts: Mapping[str, Any], step: Step) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._path(facts)) as file:
            file.write(strict_json({"facts": facts, "result": asdict(step)}).encode())

    def _path(self, facts: Mapping[str, Any]) -> Path:
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        return self.folder / f"{key}.json"


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
    if tells_part(detector) if separate is None else separate:
        part = torch.cat([_part(detector, batch) for batch in stacked.split(config.batch)])
    pairs = enumerate(zip(stacked, part[:, 0], strict=True))
    damaged = torch.stack([damage(view, mask, seed, index) for index, (view, mask) in pairs])
    return Parts(tuple(paths[read[place]] for place in order), stacked, part, damaged, seed)


def tells_part(detector: Model) -> bool:
    """Whether the model itself knows part from background, and can be asked: an export holds no prior to look at."""
    return detector.config.foreground and not isinstance(detector, Exported)


def damage(view: Tensor, part: Tensor, seed: int, index: int) -> Tensor:
    """A synthetic defect that lies on the part and can be seen: one drawn at random may do neither."""
    draw = np.random.default_rng([seed, index])
    for _ in range(DRAWS):
        changed, mask = with_defect(view, KINDS[index % len(KINDS)], draw)
        inside = torch.from_numpy(mask)
        if part[inside].float().mean() > 0.9 and (changed - view).abs().mean(dim=0)[inside].mean() > VISIBLE:
            break
    return changed


def measure(
    detector: Model,
    parts: Parts,
    axes: Mapping[str, Axis],
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> Steps:
    """Every strength's scores; those on disk are not measured again."""
    wanted = [("", 0.0)] + [(name, strength) for name, axis in axes.items() for strength in axis.strengths]
    images = parts.digest if kept else ""
    facts = {place: kept.facts(parts, images, *place) for place in wanted} if kept else {}
    steps: Steps = {place: step for place in facts if (step := kept.get(facts[place])) is not None}
    missing = [place for place in wanted if place not in steps]  # only these take time, so only these are counted
    passes = 2 * len(parts.paths)
    for done, (name, strength) in enumerate(missing):

        def judged(count: int, before: int = done * passes) -> None:
            if progress:
                progress("judging changed parts", before + count, len(missing) * passes)

        step = at_strength(detector, parts, axes.get(name), strength, judged)
        if kept:
            kept.put(facts[name, strength], step)
        steps[name, strength] = step
    return {place: steps[place] for place in wanted}


def at_strength(
    detector: Model, parts: Parts, axis: Axis | None, strength: float, judged: Callable[[int], None] | None = None
) -> Step:
    """The parts as they are (no axis), or under one condition; `judged` is told how many views are done."""
    batch, done = detector.config.batch, 0
    scores: list[dict[str, list[float]]] = []
    for damaged in (False, True):
        found: dict[str, list[float]] = {"control": [], "nfad": []}
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
    """The model's scores by arm, with nothing counted that was made up to fill a moved view."""
    judged = detector.predict_tensor(views)
    if axis is None or not axis.moves:
        return {"control": judged.control_score, "nfad": judged.score}
    made_up = ~photographed(axis, strength, views.shape[-1])
    maps = {"control": judged.maps["control"], "nfad": judged.maps["detection"]}
    return {arm: image_score(each.masked_fill(made_up, -torch.inf), detector.config.top) for arm, each in maps.items()}


def _part(detector: Detector, views: Tensor) -> Tensor:
    """Which pixels the model takes for the part, token by token."""
    tokens = foreground_tokens(detector.teacher.tokens_and_prior(views)[1])
    grid = detector.teacher.grid
    return F.interpolate(tokens.float().reshape(-1, 1, grid, grid), views.shape[2:], mode="nearest") > 0.5
