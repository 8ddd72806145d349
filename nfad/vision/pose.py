"""Parts that lie anyhow are found and turned, so that all of them lie alike; and a nudged camera's photos are steadied.

A model keeps how its parts look in a box about them, by edges that are the same in every light. In a photo the box is
sought in all directions and places, roughly first and then to a fraction of a pixel, in operators that exported graphs
have, too. Its size is the fit's: a part that is too short stays too short. Where parts lie alike but for a little, the
box is the whole photo, and is sought near its place alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.vision.photo import shrunk

SIDE = 128  # of the view that a part is looked for in, at the least
DRAWN, STEPS = 48, 10  # side of the drawing of a part, and its pixels by which a part is moved at most to match it
FIELD, WAYS = 32, 36  # side of what a part is sought in, and the directions
TURNS = tuple(math.radians(angle) for angle in (0, -2.5, 2.5, -5, 5))  # from the nearest of those directions
NEAR, SHARPER = 5, 0.1  # the latter two of a whole photo, which is steadied; of the match that a perfect one has
NUDGES = tuple(tuple(map(math.radians, turns)) for turns in ((-4, -2, 0, 2, 4), (-1, 0, 1)))  # of it, in two rounds
EVEN = 0.2  # of a steadied photo's pixel is either neighbour's, along and across: noise is then as even moved as not
AROUND = 9  # of these pixels, the surroundings of one
SHARP = 0.02  # of the match: steps that are worse by more count little
TINY = 1e-6

Views = Float[Tensor, "image 3 size size"]
Grey = Float[Tensor, "image 1 side side"]
Points = Float[Tensor, "image 2"]  # x and y from the photo's middle, in halves of its height
Maps = dict[str, Float[Tensor, "image size size"]]
Boxes = Float[Tensor, "image 2 3"]  # from places in a box, ±1, to places in the view, ±1


@dataclass(frozen=True)
class Pose:
    """What a model keeps of how its parts lie. A turned view shows, of every photo, the same box about the part; a
    steadied one all of it, as the camera would have seen it from where it stood."""

    ratio: float  # of the photos' width to their height: views are square
    half: tuple[float, float]  # of the box's sides, along the part and across, in halves of the photo's height
    drawing: Float[Tensor, "side side"]  # of the part in the box, whatever the light
    sketch: Float[Tensor, "side side"] | None  # the same by few pixels; None: the box is sought near its place alone
    even: float = 0.0  # see `evened`
    trimmed: bool = False  # see `shown`

    @classmethod
    def steady(cls, ratio: float, drawing: Float[Tensor, "side side"]) -> Pose:
        """Of whole photos."""
        return cls(ratio, (ratio, 1.0), drawing, None, EVEN, trimmed=True)

    @property
    def name(self) -> str:
        """What is done to photos."""
        return "steadied" if self.sketch is None else "turned"

    def turned(self, views: Views) -> tuple[Views, Boxes]:
        """The views with their parts lying alike, and where each point of them was."""
        boxes = self.found(views)
        return self.sampled(views, boxes), boxes

    def sampled(self, views: Views, boxes: Boxes) -> Views:
        """What these boxes show."""
        smooth = "bicubic" if self.sketch is None else "bilinear"  # steadied photos are to stay as sharp as taken
        return cut_out(evened(views, self.even), boxes, int(views.shape[-1]), mode=smooth).clamp(0, 1)

    def back(self, maps: Maps, boxes: Boxes) -> Maps:
        """Maps of turned views as maps of the views; 0 where the box does not reach."""
        (a, b), (c, d) = (row.unbind(dim=1) for row in boxes[:, :, :2].unbind(dim=1))
        inverse = torch.stack([d, -b, -c, a], dim=1).unflatten(1, (2, 2)) / (a * d - b * c)[:, None, None]
        there = torch.cat([inverse, -(inverse * boxes[:, None, :, 2]).sum(dim=2, keepdim=True)], dim=2)
        together = torch.stack([*maps.values()], dim=1)  # one sampling for all
        painted = cut_out(together, there, int(together.shape[-1]), beyond="zeros").unbind(dim=1)
        return dict(zip(maps, painted, strict=True))

    def moved(self, boxes: Boxes) -> Float[Tensor, " image"] | None:
        """How far whole photos lay off: what their corners were moved by, in shares of the view's side; None where
        parts lie anyhow."""
        if self.sketch is not None:
            return None
        corners = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        there = corners @ boxes[:, :, :2].transpose(1, 2) + boxes[:, None, :, 2]
        return (there - corners).square().sum(dim=2).sqrt().mean(dim=1) / 2

    def shown(self, boxes: Boxes, grid: int) -> Float[Tensor, "image token"] | None:
        """How much each token of a steadied view counts: 1 where the photo shows all of it, 0 where half or less, for
        beyond its edge there is nothing but its last pixels, drawn out. None where all count: of a part that lies
        anyhow, what is not in the photo is missing."""
        if not self.trimmed:
            return None
        spots = torch.cat([places(grid), torch.ones(grid * grid, 1)], dim=1)
        inside = ((1 - (spots @ boxes.transpose(1, 2)).abs()) * (grid / 2) + 0.5).clamp(0, 1)
        return (2 * inside[:, :, 0] * inside[:, :, 1] - 1).clamp(min=0)

    def found(self, views: Views) -> Boxes:
        """Where the box lies: where, and turned as, the part is most like the drawing."""
        grey = small(views.mean(dim=1, keepdim=True))
        if self.sketch is None:
            return self._steadied(grey)
        middle, axis = self._sought(grey, self.sketch)
        boxes = self._best(grey, [self.box(middle, way * axis) for way in (1, -1)])
        return self._best(grey, [self._nudged(boxes, torch.tensor([angle])) for angle in TURNS])

    def box(self, middle: Points, axis: Points) -> Boxes:
        """About a part there, along its axis."""
        along, across = self.half
        boxes = torch.stack([along * axis, across * perpendicular(axis), middle], dim=2)
        return boxes / torch.tensor([self.ratio, 1.0])[None, :, None]

    def rough(self, grey: Grey) -> Float[Tensor, "image 1 field field"]:
        """Edges in a square about the whole photo, in which lengths are alike in all directions."""
        reach = torch.tensor([[[self._reach / self.ratio, 0.0, 0.0], [0.0, self._reach, 0.0]]])
        return edges(cut_out(grey, reach.expand(grey.shape[0], -1, -1), FIELD))

    def in_rough(self, boxes: Boxes) -> Boxes:
        """The same boxes as places of that square."""
        return boxes * torch.tensor([self.ratio / self._reach, 1 / self._reach])[None, :, None]

    @property
    def _reach(self) -> float:
        return max(self.ratio, 1.0)

    def _sought(self, grey: Grey, sketch: Tensor) -> tuple[Points, Points]:
        """The box's middle and axis, roughly: the sketch is laid on every place, in every direction."""
        margin = math.ceil(math.hypot(*self.half) / self._reach * FIELD / 2)
        angles = torch.arange(WAYS) * (2 * math.pi / WAYS)
        axes = torch.stack([angles.cos(), angles.sin()], dim=1)
        side = (2 * margin + 1) / FIELD * self._reach
        there = torch.stack([axes / self.half[0], perpendicular(axes) / self.half[1]], dim=1) * side
        there = torch.cat([there, torch.zeros(WAYS, 2, 1)], dim=2)
        laid = cut_out(sketch.expand(WAYS, 1, -1, -1), there, 2 * margin + 1, beyond="zeros")
        laid = laid / laid.square().sum(dim=(2, 3), keepdim=True).sqrt().clamp(min=TINY)
        match = F.conv2d(F.pad(self.rough(grey), (margin, margin, margin, margin)), laid)
        best = match.flatten(1).argmax(dim=1)
        return places(FIELD)[best % FIELD**2] * self._reach, axes[best // FIELD**2]

    def _steadied(self, grey: Grey) -> Boxes:
        """The whole photo, turned and moved a little to where it is most like the drawing; never by more than it is
        sought within: a part that lies elsewhere stays there."""
        seen, count = coarse_edges(grey), grey.shape[0]
        sharp = SHARPER * self.drawing.square().mean() + TINY
        boxes = self.box(grey.new_zeros(count, 2), torch.tensor([[1.0, 0.0]]).expand(count, -1))
        for turns in NUDGES:
            candidates = [self._nudged(boxes, torch.tensor([angle])) for angle in turns]
            match = self._match(torch.cat([seen] * len(turns)), torch.cat(candidates)).unflatten(0, (len(turns), -1))
            weight = match.transpose(0, 1).flatten(1).div(sharp).softmax(dim=1).unflatten(1, (len(turns), -1))
            boxes = self._moved(self._nudged(boxes, weight.sum(dim=2) @ torch.tensor(turns)), weight.sum(dim=1))
            reach = 2 * self._steps / DRAWN
            boxes = torch.cat([boxes[:, :, :2], boxes[:, :, 2:].clamp(-reach, reach)], dim=2)
        return boxes

    def _nudged(self, boxes: Boxes, angle: Float[Tensor, " #image"]) -> Boxes:
        """Turned about their middle."""
        (x, y), (sine, cosine) = boxes[:, :, :2].unbind(dim=1), (angle.sin()[:, None], angle.cos()[:, None])
        sides = torch.stack([cosine * x - sine * y / self.ratio, sine * x * self.ratio + cosine * y], dim=1)
        return torch.cat([sides, boxes[:, :, 2:]], dim=2)

    def _best(self, grey: Grey, candidates: Sequence[Boxes]) -> Boxes:
        """Of these the one most like the drawing, moved to where it is most like it."""
        count = len(candidates)
        matches = self._match(torch.cat([grey] * count), torch.cat([*candidates])).unflatten(0, (count, -1)).unbind()
        boxes, match = candidates[0], matches[0]
        for others, other in zip(candidates[1:], matches[1:], strict=True):
            better = (other.amax(dim=1) > match.amax(dim=1))[:, None]
            boxes, match = torch.where(better[:, :, None], others, boxes), torch.where(better, other, match)
        return self._moved(boxes, match.div(SHARP).softmax(dim=1))

    def _moved(self, boxes: Boxes, weight: Float[Tensor, "image step"]) -> Boxes:
        """By the mean of all steps."""
        side = 2 * self._steps + 1
        steps = weight @ places(side) * (side / DRAWN)
        moved = boxes[:, :, 2] + (boxes[:, :, :2] * steps[:, None]).sum(dim=2)
        return torch.cat([boxes[:, :, :2], moved[:, :, None]], dim=2)

    def _match(self, grey: Grey, boxes: Boxes) -> Float[Tensor, "image step"]:
        """How much the boxes are like the drawing, moved by every step. Of whole photos, edges are given."""
        wider = torch.cat([boxes[:, :, :2] * (1 + 2 * self._steps / DRAWN), boxes[:, :, 2:]], dim=2)
        seen = cut_out(grey, wider, DRAWN + 2 * self._steps)
        seen = seen if self.sketch is None else edges(seen)
        return F.conv1d(seen[:, 0], self._rows).flatten(1) / DRAWN**2

    @property
    def _rows(self) -> Float[Tensor, "step row column"]:
        """The drawing moved down by every step, for its rows as channels: of a single one a convolution is slow."""
        steps = 2 * self._steps
        return torch.stack([F.pad(self.drawing, (0, 0, down, steps - down)) for down in range(steps + 1)])

    @property
    def _steps(self) -> int:
        return NEAR if self.sketch is None else STEPS


def shown_by(pose: Pose | None, boxes: Boxes | None, grid: int) -> Float[Tensor, "image token"] | None:
    """How much each token counts; None where all do."""
    return None if pose is None or boxes is None else pose.shown(boxes, grid)


def edges(grey: Grey) -> Grey:
    """What is brighter or darker than its surroundings, in units of their spread: the same in all lights that vary
    slowly over a photo."""
    off = grey - _around(grey)
    least = 0.5 * off.square().mean(dim=(2, 3), keepdim=True).sqrt() + TINY
    return off / (_around(off.square()).sqrt() + least)


def coarse_edges(grey: Grey) -> Float[Tensor, "image 1 coarse coarse"]:
    """Of whole photos, about as fine as their drawing; the same before a photo is moved and after it."""
    return edges(shrunk(grey, max(int(grey.shape[-1]) // DRAWN, 1)))


def _around(grey: Grey) -> Grey:
    """The mean of the nearest pixels along and across, an edge's beyond it; as two products, for pooling is slow."""
    return _nearest(int(grey.shape[-2])) @ grey @ _nearest(int(grey.shape[-1])).T


@lru_cache(maxsize=8)
def _nearest(side: int) -> Float[Tensor, "side side"]:
    near = AROUND // 2
    places = torch.arange(side)[:, None] + torch.arange(-near, near + 1)
    return F.one_hot(places.clamp(0, side - 1), side).float().mean(dim=1)


def evened(views: Views, share: float) -> Views:
    """With this share of either neighbour in every pixel. What is sampled between pixels has less noise than on them:
    of a turned photo some places have, and others not, which looks like something there; after this all have alike."""
    if not share:
        return views
    padded = F.pad(views, (1, 1, 1, 1), mode="replicate")
    rows = (1 - 2 * share) * padded[:, :, 1:-1] + share * (padded[:, :, :-2] + padded[:, :, 2:])
    return (1 - 2 * share) * rows[..., 1:-1] + share * (rows[..., :-2] + rows[..., 2:])


def small(views: Float[Tensor, "image channel size size"]) -> Float[Tensor, "image channel side side"]:
    return shrunk(views, max(int(views.shape[-1]) // SIDE, 1))


def cut_out(
    images: Tensor, boxes: Boxes, side: int, beyond: str = "border", mode: str = "bilinear"
) -> Float[Tensor, "image _ side side"]:
    """Squares of this side; their grid is made by hand, for the ONNX we write has no operator for it."""
    steps = (torch.arange(side) * 2 + 1) / side - 1
    x, y, shift = (part[:, None, None] for part in boxes.unbind(dim=2))
    grid = steps[:, None] * x + (steps[:, None, None] * y + shift)
    return F.grid_sample(images, grid, mode, beyond, align_corners=False)


def places(side: int) -> Float[Tensor, "pixel 2"]:
    """x and y of every pixel of a square, ±1."""
    steps = (torch.arange(side) * 2 + 1) / side - 1
    return torch.stack([steps[None, :].expand(side, side), steps[:, None].expand(side, side)], dim=-1).flatten(0, 1)


def perpendicular(axis: Points) -> Points:
    return torch.stack([-axis[:, 1], axis[:, 0]], dim=1)
