"""Pixels in: the model's square view of an image as a float tensor in [0, 1]."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.records import Geometry
from nfad.vision.pixels import (
    ImageLike,
    find_images,
    framing,
    load_image,
    load_part,
)

LARGE = 25_000_000  # pixels above which one channel after the other is put into floats, to save memory
__all__ = ["ImageLike", "find_images", "load_image", "load_part", "pixels_of", "to_view"]


def to_view(pixels: np.ndarray, size: int, resize: int | None) -> tuple[Float[Tensor, "3 size size"], Geometry]:
    """The model's square view of an image and where it lies in the original.

    The one definition of how a photo becomes a view: `framing` says which part is seen, `resize_weights` how it is
    resized. What exported graphs do instead (nfad/deploy/views.py, openvino_graph.py) is tested to equal it.
    """
    frame = framing(pixels.shape[0], pixels.shape[1], size, resize)
    (rows, columns), (top, left) = frame.spare, frame.start
    pixels = pixels[rows : pixels.shape[0] - rows, columns : pixels.shape[1] - columns]
    at_once = 1 if pixels.shape[0] * pixels.shape[1] > LARGE else 3
    image = torch.cat([_resized(pixels[..., first : first + at_once], frame.target) for first in range(0, 3, at_once)])
    return image[:, top : top + size, left : left + size].clamp(0, 1).contiguous(), frame.geometry


def _resized(pixels: np.ndarray, target: tuple[int, int]) -> Float[Tensor, "_ rows columns"]:
    """Channels in [0, 1], antialiased. Each is resized by itself, however many there are at once."""
    top_value = float(np.iinfo(pixels.dtype).max)
    image = torch.from_numpy(pixels.astype(np.float32)).div_(top_value).permute(2, 0, 1)[None]
    if image.shape[2:] != target:
        image = F.interpolate(image, target, mode="bilinear", antialias=True, align_corners=False)
    return image[0]


def pixels_of(view: Float[Tensor, "3 size size"]) -> np.ndarray:
    """A view in [0, 1] as 8-bit pixels, (size, size, 3)."""
    return (view * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
