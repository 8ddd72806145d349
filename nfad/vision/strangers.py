"""Photos that no model of a part may call normal: nothing there, or the part covered."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy import ndimage
from torch import Tensor

LEVELS = {"black": 0.0, "dark grey": 0.2, "grey": 0.5, "white": 1.0}
BELTS = {"grey belt": (0.35, 0.36, 0.37), "green belt": (0.16, 0.3, 0.2), "dark belt": (0.1, 0.1, 0.11)}
COVERS = {"half covered in black": 0.0, "half covered in grey": 0.5}


def empty_photos(size: int) -> dict[str, Float[Tensor, "3 size size"]]:
    """A plain colour, noise, and empty belts; always the same."""
    draw = np.random.default_rng(0)
    found = {name: torch.full((3, size, size), level) for name, level in LEVELS.items()}
    found["noise"] = torch.from_numpy(draw.random((3, size, size), dtype=np.float32))
    for name, colour in BELTS.items():
        grain = ndimage.gaussian_filter(draw.standard_normal((size, size)), size / 256) + 0.5 * np.sin(
            np.arange(size) * 2 * np.pi * 24 / size
        )
        weave = torch.from_numpy((0.04 * grain / grain.std()).astype(np.float32))
        found[name] = (torch.tensor(colour)[:, None, None] * (1 + 3 * weave)).clamp(0, 1)
    return found


def covered(view: Float[Tensor, "3 size size"], name: str, side: int) -> Float[Tensor, "3 size size"]:
    """One half hidden: the left, the right, the upper or the lower one."""
    hidden, half = view.clone(), view.shape[-1] // 2
    place = (slice(None), [slice(half), slice(half, None)][side % 2])
    hidden[(slice(None), *(place if side < 2 else place[::-1]))] = COVERS[name]
    return hidden
