"""Synthetic local defects drawn on normal images: a stand-in where no real defect may be looked at."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nfad.errors import NfadError

KINDS = ("cut-paste", "scar", "stain")  # local ones
STRUCTURAL = ("missing", "moved", "doubled")  # of a large piece in the middle, where the part is
ALL_KINDS = (*KINDS, "large", *STRUCTURAL)
SMALLEST = 64  # pixels a side, below which a stain may cover no pixel


def with_defect(
    view: Float[Tensor, "3 height width"], kind: str, draw: np.random.Generator, side: int | None = None
) -> tuple[Float[Tensor, "3 height width"], Bool[np.ndarray, "height width"]]:
    """A patch from elsewhere, a narrow one, or a translucent blot; a large blot; a piece of the middle missing, moved
    or doubled. And where. Sizes go with the view's side; those of blots and patches
    with another, if it is given: a tile's."""
    _check(kind, ALL_KINDS)
    tall, broad = view.shape[1:]
    side = min(tall, broad, side or tall)
    if side < SMALLEST:
        raise NfadError(f"a defect needs a view of at least {SMALLEST}×{SMALLEST}; got {tall}×{broad}")
    if kind in STRUCTURAL:
        return _restructured(view, kind, draw)
    high, wide = draw.integers(side * 14 // 256, side * 40 // 256, 2)
    if kind == "scar":
        thickness = draw.integers(side * 4 // 256, side * 9 // 256)
        high, wide = draw.permutation([thickness, draw.integers(side * 30 // 256, side * 70 // 256)])
    if kind == "large":
        high, wide = draw.integers(side * 60 // 256, side * 120 // 256, 2)
    top, left = draw.integers(tall // 6, tall * 5 // 6 - high), draw.integers(broad // 6, broad * 5 // 6 - wide)
    place = (slice(top, top + high), slice(left, left + wide))
    changed, mask = view.clone(), np.zeros((tall, broad), dtype=bool)
    if kind in ("stain", "large"):
        rows, columns = np.mgrid[-1 : 1 : high * 1j, -1 : 1 : wide * 1j]
        mask[place] = rows**2 + columns**2 < 1
        blot = torch.from_numpy(mask[place] * 0.6).to(view)
        colour = torch.from_numpy(draw.random((3, 1, 1))).to(view)
        changed[:, *place] = changed[:, *place] * (1 - blot) + blot * colour
    else:
        mask[place] = True
        y, x = draw.integers(0, tall - high), draw.integers(0, broad - wide)
        changed[:, *place] = view[:, y : y + high, x : x + wide] * float(draw.uniform(0.8, 1.2))
    return changed.clamp(0, 1), mask


def _restructured(
    view: Float[Tensor, "3 height width"], kind: str, draw: np.random.Generator
) -> tuple[Float[Tensor, "3 height width"], Bool[np.ndarray, "height width"]]:
    """A piece about the middle goes, and what lies at an edge of the photo takes its place; or it appears elsewhere."""
    tall, broad = view.shape[1:]
    side = min(tall, broad)
    high, wide = draw.integers(side * 70 // 256, side * 130 // 256, 2)
    top = (tall - high) // 2 + draw.integers(-side // 12, side // 12)
    left = (broad - wide) // 2 + draw.integers(-side // 12, side // 12)
    piece = view[:, top : top + high, left : left + wide]
    changed, mask = view.clone(), np.zeros((tall, broad), dtype=bool)
    if kind != "doubled":
        down, right = draw.integers(0, 2, 2)  # which corner
        edge = view[:, -high:] if down else view[:, :high]
        changed[:, top : top + high, left : left + wide] = edge[:, :, -wide:] if right else edge[:, :, :wide]
        mask[top : top + high, left : left + wide] = True
    if kind != "missing":
        far = draw.uniform(0.12, 0.3) * side
        angle = draw.uniform(0, 2 * np.pi)
        top = int(np.clip(top + far * np.sin(angle), 0, tall - high))
        left = int(np.clip(left + far * np.cos(angle), 0, broad - wide))
        changed[:, top : top + high, left : left + wide] = piece
        mask[top : top + high, left : left + wide] = True
    return changed.clamp(0, 1), mask


def with_defects(
    images: Float[Tensor, "image 3 height width"], kind: str, seed: int
) -> tuple[Float[Tensor, "image 3 height width"], Bool[Tensor, "image height width"]]:
    """One defect of that kind on every image, depending on the seed and the kind alone."""
    _check(kind, KINDS)
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    drawn = [with_defect(image, kind, draw) for image in images]
    return torch.stack([image for image, _ in drawn]), torch.from_numpy(np.stack([mask for _, mask in drawn]))


def _check(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise NfadError(f"kind must be one of {', '.join(kinds)}; got {kind!r}")
