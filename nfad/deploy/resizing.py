"""Antialiased resizing between two known sizes, as one matrix an axis.

The same numbers as `interpolate` to rounding. Exported as it is, an antialiased resize weighs the image's border
differently in onnxruntime (pytorch#183546) and is not antialiased at all in OpenVINO; a matrix is a matrix everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nfad.vision.pixels import resize_weights


class MatrixResizing(TorchFunctionMode):
    """Within this context `interpolate(antialias=True)` is two matrix products, whoever calls it."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.interpolate and kwargs.get("antialias") and kwargs.get("mode") == "bilinear":
            images, (height, width) = args[0], args[1] if len(args) > 1 else kwargs["size"]
            return resized(images, int(height), int(width))  # int(): the older exporter hands out sizes as tensors
        return function(*args, **kwargs)


def resized(
    images: Float[Tensor, "image channel height width"], height: int, width: int
) -> Float[Tensor, "image channel after_y after_x"]:
    """Antialiased bilinear, half-pixel centres."""
    rows, columns = _weights(int(images.shape[-2]), height), _weights(int(images.shape[-1]), width)
    return rows.to(images) @ images @ columns.to(images).T


@lru_cache(maxsize=8)
def _weights(before: int, after: int) -> Float[Tensor, "after before"]:
    return torch.from_numpy(resize_weights(before, after)).float()
