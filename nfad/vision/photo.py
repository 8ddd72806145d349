"""What can be said of a photo without a teacher: eight numbers, each of which `verdict/strange.py` has words for."""

from __future__ import annotations

from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

NUMBERS = ("brightness", "contrast", "flat", "dark", "bright", "noise", "colour", "uneven")
SIDE = 128  # of the view they are taken of, at the least: fine noise still shows, and they cost next to nothing
CELLS = 8  # a side: places of the photo that are looked at one by one
# Below 3 and above 252 grey levels, half a twelfth off: means of four pixels' channels are twelfths, and one that lies
# on a bound would be on either side of it by the rounding of whatever program computes it.
DARK, BRIGHT = 3 - 1 / 24, 252 + 1 / 24


def photo_numbers(views: Float[Tensor, "image 3 size size"]) -> Float[Tensor, "image 8"]:
    """Of views in [0, 1], in the order of `NUMBERS`; logarithms where ratios count."""
    by = max(int(views.shape[-1]) // SIDE, 1)
    side = int(views.shape[-1]) // by // CELLS * CELLS
    views = views[..., : side * by, : side * by]
    grey = shrunk(views.mean(dim=1, keepdim=True), by)[:, 0]
    cells = grey.reshape(-1, CELLS, side // CELLS, CELLS, side // CELLS).transpose(2, 3).flatten(3).flatten(1, 2)
    means = cells.mean(dim=2)
    spread = (cells - means[:, :, None]).square().mean(dim=2).sqrt()  # not of squares: a plain cell's would be rounding
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    fine = (4 * grey[:, 1:-1, 1:-1] - around).abs()
    grid = means.unflatten(1, (CELLS, CELLS))
    half = CELLS // 2
    rows = (grid[:, :half].mean(dim=(1, 2)) - grid[:, half:].mean(dim=(1, 2))).abs()
    columns = (grid[:, :, :half].mean(dim=(1, 2)) - grid[:, :, half:].mean(dim=(1, 2))).abs()
    channels = views.mean(dim=(2, 3)).clamp(min=1 / 255)
    return torch.stack(
        [
            (grey.mean(dim=(1, 2)) + 0.01).log(),
            (spread.sort(dim=1).values[:, CELLS**2 // 2] + 0.002).log(),
            (spread < 1.5 / 255).float().mean(dim=1),
            (grey < DARK / 255).float().mean(dim=(1, 2)),
            (grey > BRIGHT / 255).float().mean(dim=(1, 2)),
            (fine + 0.002).log().mean(dim=(1, 2)),  # of the logarithms: plain areas count, not edges
            (channels[:, 0] / channels[:, 2]).log(),
            torch.maximum(rows, columns),
        ],
        dim=1,
    )


def shrunk(views: Float[Tensor, "image channel size size"], by: int) -> Float[Tensor, "image channel side side"]:
    """Means of squares. By sums of slices, for a graph's pooling would lay one channel or three out as sixteen."""
    if by == 1:
        return views
    side = int(views.shape[-1]) // by
    views = views[..., : side * by, : side * by]
    rows = reduce(torch.add, views.unflatten(2, (side, by)).unbind(dim=3))
    return reduce(torch.add, rows.unflatten(3, (side, by)).unbind(dim=4)) / by**2
