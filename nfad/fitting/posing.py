"""How the fit's parts lie: found before a plain background by their moments, drawn, and turned if that makes their
photos far more alike; or, where they lie alike, drawn whole and steadied, if that undoes what a nudged camera does."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nfad.config import FEWEST, SEEN, Config
from nfad.errors import NfadError
from nfad.fitting.views import ViewCache
from nfad.vision.nudging import nudged
from nfad.vision.pose import (
    DRAWN,
    Boxes,
    Points,
    Pose,
    Views,
    coarse_edges,
    cut_out,
    edges,
    perpendicular,
    places,
    small,
)

POSED, THUMB = 64, 48  # photos by which a pose is told, and the side at which they are compared
ALIKE = 0.1  # unlikeness of photos below which parts lie alike already
TURNED = 1 / 3  # of the unlikeness that may be left, for parts to be turned
MOVED = 0.02  # unlikeness of photos by a nudged camera, below which there is nothing to steady
STEADIED = 1 / 2  # of the unlikeness of photos by a nudged camera that may be left, for them to be steadied
BEYOND = 1.15  # of the view, where most boxes may end at most
FRAME = 4  # pixels along a view's sides that tell the background
LONGEST = 3.0  # a part is stretched in width so often at most
MARGIN = 1.1  # around what the parts fill
INSIDE = (0.005, 0.995)  # of a part's pixels, along it and across, between which it lies
NEARLY = (0.05, 0.95)  # of the parts, whose ends the box goes by
ROUNDS = 3  # of drawing and finding
TINY = 1e-6


def pose_of(config: Config, views: ViewCache, chosen: Int[Tensor, " image"]) -> Pose | None:
    """By which the parts of these photos are turned to lie alike, or photos steadied; None where they are left as
    taken."""
    if config.pose == "as taken" or not config.turnable or (config.pose == "auto" and not config.acquisitions):
        return None
    ratio = float(np.median([views.ratios[int(index)] for index in chosen]))
    told = _telling(chosen).split(1)
    some = torch.cat([F.adaptive_avg_pool2d(views.as_taken(each), min(views.size, SEEN)) for each in told])
    pose = None if config.pose == "steadied" else _turning(config, some, ratio)
    return pose if pose is not None or config.pose == "turned" else _steadying(config, some, ratio)


def _telling(chosen: Int[Tensor, " image"]) -> Int[Tensor, " some"]:
    """Of these photos those by which a pose is told."""
    return chosen[torch.linspace(0, len(chosen) - 1, min(len(chosen), POSED)).round().long()]


def lying_off(
    pose: Pose, views: ViewCache, chosen: Int[Tensor, " image"], images: Int[Tensor, " some"]
) -> tuple[float, ...]:
    """How far each of some photos, of all that were chosen, lies off what the others have in common."""
    told, found = set(_telling(chosen).tolist()), []
    for index in images.tolist():
        view, others = views.as_taken(torch.tensor([index])), pose
        if index in told:
            own = cut_out(coarse_edges(small(view.mean(dim=1, keepdim=True))), pose.found(view), DRAWN)[0, 0]
            others = replace(pose, drawing=(len(told) * pose.drawing - own) / (len(told) - 1))
        found.append(others.moved(others.found(view)))
    return tuple(torch.cat(found).tolist())


def _turning(config: Config, views: Views, ratio: float) -> Pose | None:
    some = views[(part_of(small(views)) > 0.5).flatten(1).any(dim=1)]
    pose = drawn(some, ratio) if len(some) >= FEWEST else None
    if config.pose == "turned" and (pose is None or _reach(pose.found(some)) > BEYOND):
        why = "no part stands out from its background" if pose is None else "a box about the part does not fit in"
        raise NfadError(f"{why} in these photos, so it cannot be turned; leave --turned (pose='turned') out")
    if config.pose == "auto" and pose is not None:
        as_taken, turned = unlikeness(some), unlikeness(pose.turned(some)[0])
        if as_taken < ALIKE or turned > TURNED * as_taken:
            return None
    return pose


def _steadying(config: Config, views: Views, ratio: float) -> Pose | None:
    """Tried on the same photos as a nudged camera would take them."""
    pose = drawn_whole(views, ratio)
    moved = nudged(views, torch.Generator().manual_seed(config.seed))
    before, after = unlikeness(moved), unlikeness(pose.turned(moved)[0])
    left = after / before if before >= MOVED else 1.0
    if left <= STEADIED:
        return pose
    if config.pose == "steadied":
        raise NfadError(
            f"{left:.0%} of what a nudged camera does to these photos would be left after steadying them, more than "
            f"{STEADIED:.0%}: they show too little that is always in the same place; leave pose='steadied' out"
        )
    return None


def drawn_whole(views: Views, ratio: float) -> Pose:
    """What these views have in common, as they lie on the mean."""
    seen = coarse_edges(small(views.mean(dim=1, keepdim=True)))
    boxes = torch.eye(2, 3).expand(len(views), -1, -1)
    pose = Pose.steady(ratio, torch.zeros(DRAWN, DRAWN))
    for _ in range(ROUNDS):
        pose = replace(pose, drawing=cut_out(seen, boxes, DRAWN).mean(dim=(0, 1)))
        boxes = pose.found(views)
    return pose


def _reach(boxes: Boxes) -> float:
    """How far a box's corners lie from the view's middle, 1 at its edge: that of most."""
    (a, b, x), (c, d, y) = (row.unbind(dim=1) for row in boxes.unbind(dim=1))
    return float(torch.stack([a.abs() + b.abs() + x.abs(), c.abs() + d.abs() + y.abs()]).amax(dim=0).median())


def unlikeness(views: Views) -> float:
    """Of views among each other, whatever their brightness and contrast: the variance of a place, 1 at most or so."""
    thumbs = F.adaptive_avg_pool2d(views.mean(dim=1), THUMB).flatten(1)
    thumbs = (thumbs - thumbs.mean(dim=1, keepdim=True)) / (thumbs.std(dim=1, keepdim=True) + 1e-3)
    return float(thumbs.var(dim=0).mean())


def drawn(views: Views, ratio: float) -> Pose:
    """The box that nearly all parts of these views fit into, and what is seen in it; each must show one."""
    parts = part_of(small(views))
    centre, axis = lying_of(parts, ratio)
    spots = _spots(parts.shape[-1], ratio)[None] - centre[:, None]
    ends = []
    for direction in (axis, perpendicular(axis)):
        line = (spots * direction[:, None]).sum(dim=2)
        inside = [each[weight > 0.5] for each, weight in zip(line, parts.flatten(1), strict=True)]
        ends.append(torch.stack([each.quantile(torch.tensor(INSIDE)) for each in inside]))
    low, high = (torch.stack([each[:, end].quantile(NEARLY[end]) for each in ends]) for end in (0, 1))
    along, across = (MARGIN * (high - low) / 2).tolist()
    nothing = torch.zeros(DRAWN, DRAWN)
    pose = Pose(ratio, (along, max(across, along / LONGEST)), nothing, nothing)
    offset = (high + low) / 2
    boxes = pose.box(centre + offset[0] * axis + offset[1] * perpendicular(axis), axis)
    grey = small(views).mean(dim=1, keepdim=True)
    for _ in range(ROUNDS):
        sketch = cut_out(pose.rough(grey), pose.in_rough(boxes), DRAWN).mean(dim=(0, 1))
        pose = replace(pose, drawing=edges(cut_out(grey, boxes, DRAWN)).mean(dim=(0, 1)), sketch=sketch)
        boxes = pose.found(views)
    return pose


def part_of(views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image side side"]:
    """How much each pixel is the part's, 0 to 1: what differs from the background."""
    smooth = F.avg_pool2d(F.pad(views, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    off = (smooth - background_of(smooth)).abs().amax(dim=1)
    limit = off.mean(dim=(1, 2), keepdim=True)
    for _ in range(6):  # Ridler and Calvard's: midway between the means of both sides
        above = (off > limit).to(off.dtype)
        high, low = (
            (off * side).sum(dim=(1, 2), keepdim=True) / (side.sum(dim=(1, 2), keepdim=True) + TINY)
            for side in (above, 1 - above)
        )
        limit = (high + low) / 2
    return ((off - 0.4 * limit) / (0.6 * limit + TINY)).clamp(0, 1)


def background_of(views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image 3 side side"]:
    """The smooth one that a view's frame tells; what stands out there, as a part that reaches it, counts little."""
    side = int(views.shape[-1])
    terms, inverse, frame = _smooth(side)
    seen = told = views.flatten(2)[..., frame]
    for _ in range(4):
        fitted = told @ inverse.mT @ terms[frame].mT
        off = seen - fitted
        width = 1.5 * off.abs().mean(dim=2, keepdim=True)
        told = fitted + off.clamp(-width, width)
    return (told @ inverse.mT @ terms.mT).unflatten(2, (side, side))


@lru_cache(maxsize=8)
def _smooth(side: int) -> tuple[Float[Tensor, "pixel 6"], Float[Tensor, "6 framed"], Int[Tensor, " framed"]]:
    """Plane and curvature at every pixel; what finds them from the frame's pixels; which those are."""
    x, y = places(side).unbind(dim=1)
    terms = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], dim=1)
    inner = torch.zeros(side, side, dtype=torch.bool)
    inner[FRAME:-FRAME, FRAME:-FRAME] = True
    frame = (~inner).flatten().nonzero()[:, 0]
    return terms, torch.linalg.pinv(terms[frame].double()).float(), frame


def lying_of(parts: Float[Tensor, "image side side"], ratio: float) -> tuple[Points, Points]:
    """Centre and long axis by moments, the heavier end behind."""
    weight, spots = parts.flatten(1), _spots(parts.shape[-1], ratio)
    total = weight.sum(dim=1, keepdim=True) + TINY
    centre = weight @ spots / total
    off = spots[None] - centre[:, None]
    spread = torch.einsum("np,npi,npj->nij", weight / total, off, off)
    axis = torch.linalg.eigh(spread).eigenvectors[:, :, 1]
    heavier = (weight * (off * axis[:, None]).sum(dim=2).pow(3)).sum(dim=1)
    return centre, axis * torch.where(heavier < 0, -1.0, 1.0)[:, None]


def _spots(side: int, ratio: float) -> Float[Tensor, "pixel 2"]:
    return places(side) * torch.tensor([ratio, 1.0])
