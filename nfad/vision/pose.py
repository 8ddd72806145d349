"""Parts that lie anyhow: found before a plain background, and turned so that all of them lie alike.

A part is what differs from a smooth background, which its photo's frame tells. Its centre, its long axis and the end
that is heavier follow from moments, in closed form, so that exported graphs do the same. The scale is the fit's: a part
that is too short stays too short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

SIDE = 128  # of the view that a part is looked for in, at the least
FRAME = 4  # its pixels along the sides that tell the background
BEYOND = (6.0, 9.0)  # squared distances from the centre, in spreads: from where to where a pixel counts less and less
LONGEST = 3.0  # a part is stretched in width so often at most
MARGIN = 1.1  # around what the fit's parts fill
DRAWN, STEPS = 48, 10  # side of the drawing of a part, and its pixels by which a part is moved at most to match it
AROUND = 9  # of these pixels, the surroundings of one
SHARP = 0.02  # of the match: steps that are worse by more count little
ROUNDS = 3  # of drawing and finding
TURNS = tuple(math.radians(angle) for angle in (0, -4, 4, -8, 8))
TINY = 1e-6
ONE = torch.tensor(1.0)


class Lying(NamedTuple):
    """Where a part lies, and how. Lengths are in halves of the photo's height, from its middle."""

    centre: Float[Tensor, "image 2"]
    axis: Float[Tensor, "image 2"]  # unit: along the part, its heavier end behind


@dataclass(frozen=True)
class Pose:
    """What a model keeps of its parts' pose. The turned view shows, of every photo, the same box about the part."""

    ratio: Float[Tensor, ""]  # of the photos' width to their height: views are square
    offset: Float[Tensor, "2"]  # of the box's middle from the part's centre, along its axis and across
    half: Float[Tensor, "2"]  # sides of the box
    drawing: Float[Tensor, "side side"]  # the part in the box, whatever the light

    def turned(
        self, views: Float[Tensor, "image 3 size size"]
    ) -> tuple[Float[Tensor, "image 3 size size"], Float[Tensor, "image 2 3"]]:
        """The views with their parts lying alike, and where each point of them was."""
        where = self.found(views)
        return _sampled(views, where, int(views.shape[-1])), where

    def found(self, views: Float[Tensor, "image 3 size size"]) -> Float[Tensor, "image 2 3"]:
        """Where the box lies. Moments say it but for the ends, which a lamp may swap, and for a small turn and step:
        those count by which the part is most like the drawing."""
        lying = lying_of(views, self.ratio)
        grey = _small(views).mean(dim=1, keepdim=True)
        where = self._best(grey, [self._box(lying.centre, way * lying.axis) for way in (1, -1)])
        return self._best(grey, [self._turn(where, angle) for angle in TURNS])

    def _best(self, grey: Tensor, boxes: Sequence[Tensor]) -> Float[Tensor, "image 2 3"]:
        """Of these boxes the one most like the drawing, moved to where it is most like it."""
        where, match = boxes[0], self._match(grey, boxes[0])
        for box in boxes[1:]:
            other = self._match(grey, box)
            better = (other.amax(dim=1) > match.amax(dim=1))[:, None]
            where, match = torch.where(better[:, :, None], box, where), torch.where(better, other, match)
        steps = match.div(SHARP).softmax(dim=1) @ torch.stack(_places(2 * STEPS + 1, ONE), dim=-1).flatten(0, 1)
        steps = steps * (2 * STEPS + 1) / DRAWN  # places lie within ±1 as pixels do; a step is one of the drawing's
        moved = where[:, :, 2] + (where[:, :, :2] * steps[:, None]).sum(dim=2)
        return torch.cat([where[:, :, :2], moved[:, :, None]], dim=2)

    def back(
        self, maps: Float[Tensor, "image size size"], where: Float[Tensor, "image 2 3"]
    ) -> Float[Tensor, "image size size"]:
        """Maps of turned views as maps of the views; 0 where the box does not reach."""
        a, b, c, d = where[:, 0, 0], where[:, 0, 1], where[:, 1, 0], where[:, 1, 1]
        inverse = torch.stack([d, -b, -c, a], dim=1).unflatten(1, (2, 2)) / (a * d - b * c)[:, None, None]
        there = torch.cat([inverse, -(inverse * where[:, None, :, 2]).sum(dim=2, keepdim=True)], dim=2)
        return _sampled(maps[:, None], there, int(maps.shape[-1]), beyond="zeros")[:, 0]

    @classmethod
    def of(cls, views: Float[Tensor, "image 3 size size"], ratio: float) -> Pose:
        """The box that nearly all parts of these views fit into, and what is seen in it."""
        width = torch.tensor(ratio)
        part, lying = part_of(_small(views)), lying_of(views, width)
        spots = torch.stack(_places(part.shape[-1], width), dim=-1).flatten(0, 1)[None] - lying.centre[:, None]
        ends = []
        for direction in (lying.axis, _across(lying.axis)):
            line = (spots * direction[:, None]).sum(dim=2)
            inside = [each[weight > 0.5] for each, weight in zip(line, part.flatten(1), strict=True)]
            ends.append(torch.stack([each.quantile(torch.tensor([0.005, 0.995])) for each in inside if len(each)]))
        low, high = (torch.stack([each[:, end] for each in ends], dim=1) for end in (0, 1))
        low, high = low.quantile(0.05, dim=0), high.quantile(0.95, dim=0)
        half = MARGIN * (high - low) / 2
        half = torch.stack([half[0], half[1].clamp(min=float(half[0]) / LONGEST)])
        pose = cls(width, (high + low) / 2, half, torch.zeros(DRAWN, DRAWN))
        where, grey = pose._box(lying.centre, lying.axis), _small(views).mean(dim=1, keepdim=True)
        for _ in range(ROUNDS):
            pose = replace(pose, drawing=any_light(_sampled(grey, where, DRAWN)).mean(dim=(0, 1)))
            where = pose.found(views)
        return pose

    def _box(self, centre: Tensor, axis: Tensor) -> Float[Tensor, "image 2 3"]:
        across = _across(axis)
        middle = centre + self.offset[0] * axis + self.offset[1] * across
        where = torch.stack([self.half[0] * axis, self.half[1] * across, middle], dim=2)
        return where / torch.stack([self.ratio, torch.ones_like(self.ratio)])[None, :, None]

    def _turn(self, where: Tensor, angle: float) -> Float[Tensor, "image 2 3"]:
        """The same box, turned about its middle."""
        (x, y), (sine, cosine) = where[:, :, :2].unbind(dim=1), (math.sin(angle), math.cos(angle))
        sides = torch.stack([cosine * x - sine * y / self.ratio, sine * x * self.ratio + cosine * y], dim=1)
        return torch.cat([sides, where[:, :, 2:]], dim=2)

    def _match(self, grey: Float[Tensor, "image 1 side side"], where: Tensor) -> Float[Tensor, "image step"]:
        """How much the box is like the drawing, moved by every step."""
        wide = 1 + 2 * STEPS / DRAWN
        wider = torch.cat([where[:, :, :2] * wide, where[:, :, 2:]], dim=2)
        seen = any_light(_sampled(grey, wider, DRAWN + 2 * STEPS))
        return F.conv2d(seen, self.drawing[None, None]).flatten(1) / DRAWN**2


def any_light(grey: Float[Tensor, "image 1 side side"]) -> Float[Tensor, "image 1 side side"]:
    """What is brighter or darker than its surroundings, in units of their spread: the same in all lights that vary
    slowly over a photo."""
    off = grey - _around(grey)
    least = 0.5 * off.square().mean(dim=(2, 3), keepdim=True).sqrt() + TINY
    return off / (_around(off.square()).sqrt() + least)


def _around(grey: Float[Tensor, "image 1 side side"]) -> Float[Tensor, "image 1 side side"]:
    near = AROUND // 2
    return F.avg_pool2d(F.pad(grey, (near, near, near, near), mode="replicate"), AROUND, stride=1)


def _small(views: Float[Tensor, "image channel size size"]) -> Float[Tensor, "image channel side side"]:
    return F.avg_pool2d(views, max(int(views.shape[-1]) // SIDE, 1))


def part_of(views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image side side"]:
    """How much each pixel is the part's: 0 to 1."""
    smooth = F.avg_pool2d(F.pad(views, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    off = (smooth - background_of(smooth)).abs().amax(dim=1)
    limit = off.mean(dim=(1, 2), keepdim=True)
    for _ in range(6):  # Ridler and Calvard's: midway between the means of both sides
        above = (off > limit).to(off.dtype)
        high = (off * above).sum(dim=(1, 2), keepdim=True) / (above.sum(dim=(1, 2), keepdim=True) + TINY)
        low = (off * (1 - above)).sum(dim=(1, 2), keepdim=True) / ((1 - above).sum(dim=(1, 2), keepdim=True) + TINY)
        limit = (high + low) / 2
    return ((off - 0.4 * limit) / (0.6 * limit + TINY)).clamp(0, 1)


def background_of(views: Float[Tensor, "image 3 side side"]) -> Float[Tensor, "image 3 side side"]:
    """The smooth one that a view's frame tells; what stands out there, as a part that reaches it, counts little."""
    side = int(views.shape[-1])
    terms, inverse, frame = _smooth(side)
    seen = views.flatten(2)[..., frame]
    told = seen
    for _ in range(4):
        fitted = (told @ inverse.mT) @ terms[frame].mT
        off = seen - fitted
        width = 1.5 * off.abs().mean(dim=2, keepdim=True)
        told = fitted + off.clamp(-width, width)
    return ((told @ inverse.mT) @ terms.mT).unflatten(2, (side, side))


@lru_cache(maxsize=8)
def _smooth(side: int) -> tuple[Float[Tensor, "pixel 6"], Float[Tensor, "6 framed"], Tensor]:
    """Plane and curvature at every pixel; what finds them from the frame's pixels; which those are."""
    x, y = _places(side, ONE)
    terms = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], dim=-1).flatten(0, 1)
    inner = torch.zeros(side, side, dtype=torch.bool)
    inner[FRAME:-FRAME, FRAME:-FRAME] = True
    frame = (~inner).flatten().nonzero()[:, 0]
    return terms, torch.linalg.pinv(terms[frame].double()).float(), frame


def lying_of(views: Float[Tensor, "image 3 size size"], ratio: Float[Tensor, ""]) -> Lying:
    """By the moments of what is the part's; what lies far off it, as dirt on the belt, counts for nothing."""
    part = part_of(_small(views))
    spots = torch.stack(_places(int(part.shape[-1]), ratio), dim=-1).flatten(0, 1)
    part = part.flatten(1)
    weight = part
    for step in range(3):
        total = weight.sum(dim=1, keepdim=True) + TINY
        centre = (weight @ spots) / total
        off = spots[None] - centre[:, None]
        dx, dy = off[..., 0], off[..., 1]
        xx, xy, yy = ((weight * each).sum(dim=1) / total[:, 0] for each in (dx * dx, dx * dy, dy * dy))
        xx, yy = xx + TINY, yy + TINY
        if step < 2:
            distance = (yy[:, None] * dx * dx - 2 * xy[:, None] * dx * dy + xx[:, None] * dy * dy) / (
                xx * yy - xy * xy + TINY * TINY
            )[:, None]
            near, far = BEYOND
            weight = part * ((far - distance) / (far - near)).clamp(0, 1)
    # the long axis by half angles: what atan2 would say, in operators that every runtime has
    gap, both = xx - yy, (xx - yy).square() + 4 * xy.square()
    length = (both + TINY * TINY).sqrt()
    double = gap / length
    axis = torch.stack([((1 + double) / 2).clamp(min=0).sqrt(), ((1 - double) / 2).clamp(min=0).sqrt()], dim=1)
    axis = axis * torch.stack([torch.ones_like(xy), torch.where(xy < 0, -1.0, 1.0)], dim=1)
    line = (off * axis[:, None]).sum(dim=2)
    heavier = (weight * line.pow(3)).sum(dim=1)
    axis = axis * torch.where(heavier < 0, -1.0, 1.0)[:, None]
    return Lying(centre, axis)


def _places(side: int, ratio: Tensor) -> tuple[Float[Tensor, "side side"], Float[Tensor, "side side"]]:
    """x and y of every pixel."""
    steps = (torch.arange(side) * 2 + 1) / side - 1
    return (steps * ratio)[None, :].expand(side, side), steps[:, None].expand(side, side)


def _sampled(images: Tensor, where: Float[Tensor, "image 2 3"], side: int, beyond: str = "border") -> Tensor:
    """Squares of this side cut out of images; the grid is made by hand, for older ONNX has none."""
    spots = torch.stack([*_places(side, ONE), torch.ones(side, side)], dim=-1).flatten(0, 1)
    grid = (spots @ where.mT).unflatten(1, (side, side))
    return F.grid_sample(images, grid, padding_mode=beyond, align_corners=False)


def _across(axis: Float[Tensor, "image 2"]) -> Float[Tensor, "image 2"]:
    return torch.stack([-axis[:, 1], axis[:, 0]], dim=1)
