"""Synthetic local defects drawn on normal images: a stand-in where no real defect may be looked at."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nfad.errors import NfadError

KINDS = ("cut-paste", "scar", "stain")
SMALLEST = 64  # pixels a side, below which a stain may cover no pixel


def with_defect(
    view: Float[Tensor, "3 height width"], kind: str, draw: np.random.Generator
) -> tuple[Float[Tensor, "3 height width"], Bool[np.ndarray, "height width"]]:
    """A patch from elsewhere, a narrow one, or a translucent blot; and where. Sizes go with the view's side."""
    _check(kind)
    tall, broad = view.shape[1:]
    side = min(tall, broad)
    if side < SMALLEST:
        raise NfadError(f"a defect needs a view of at least {SMALLEST}×{SMALLEST}; got {tall}×{broad}")
    high, wide = draw.integers(side * 14 // 256, side * 40 // 256, 2)
    if kind == "scar":
        thickness = draw.integers(side * 4 // 256, side * 9 // 256)
        high, wide = draw.permutation([thickness, draw.integers(side * 30 // 256, side * 70 // 256)])
    top, left = draw.integers(tall // 6, tall * 5 // 6 - high), draw.integers(broad // 6, broad * 5 // 6 - wide)
    place = (slice(top, top + high), slice(left, left + wide))
    changed, mask = view.clone(), np.zeros((tall, broad), dtype=bool)
    if kind == "stain":
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


def with_defects(
    images: Float[Tensor, "image 3 height width"], kind: str, seed: int
) -> tuple[Float[Tensor, "image 3 height width"], Bool[Tensor, "image height width"]]:
    """One defect of that kind on every image, depending on the seed and the kind alone."""
    _check(kind)
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    drawn = [with_defect(image, kind, draw) for image in images]
    return torch.stack([image for image, _ in drawn]), torch.from_numpy(np.stack([mask for _, mask in drawn]))


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise NfadError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
