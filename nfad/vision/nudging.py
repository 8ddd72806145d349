"""What a nudged camera sees of the same part: a little aside, turned, nearer or farther."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

SHIFT = 1 / 32  # of the view's side: half a token of a ViT's 16 at 256
TURN = 3.0  # degrees
ZOOM = 0.03


def nudged(images: Float[Tensor, "image 3 side side"], generator: Generator) -> Float[Tensor, "image 3 side side"]:
    """Each image under a shift, turn and zoom of its own, drawn evenly up to the limits; its edge is mirrored."""
    drawn = torch.rand(len(images), 4, generator=generator, device="cpu") * 2 - 1
    aside, down, turn, zoom = drawn.T * torch.tensor([2 * SHIFT, 2 * SHIFT, TURN * torch.pi / 180, ZOOM])[:, None]
    scale = 1 + zoom
    rows = [
        torch.stack([scale * turn.cos(), -scale * turn.sin(), aside], dim=1),
        torch.stack([scale * turn.sin(), scale * turn.cos(), down], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1).to(images), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, mode="bicubic", padding_mode="reflection", align_corners=False)
    return moved.clamp(0, 1)
