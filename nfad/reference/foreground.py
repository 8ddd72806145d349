"""Only the part counts: what a map says off it is filled in with what the part is like."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MIDDLE = 0.2  # of the part, by weight, about its median


def on_foreground(
    token_map: Float[Tensor, "image token"], part: Float[Tensor, "image token"] | Bool[Tensor, "image token"]
) -> Float[Tensor, "image token"]:
    """Every token as far as it lies on the part, the rest of it the part's middle.

    A `part` of yes and no is that of models before format 13, whose background takes the foreground's median.
    """
    if part.dtype == torch.bool:
        ordered = token_map.masked_fill(~part, torch.inf).sort(dim=1).values
        middle = (part.sum(dim=1, keepdim=True) - 1).clamp(min=0) // 2
        return torch.where(part, token_map, ordered.gather(1, middle))
    inside = middle_of(token_map, part)
    return inside + part * (token_map - inside)


def middle_of(token_map: Float[Tensor, "image token"], part: Float[Tensor, "image token"]) -> Float[Tensor, "image 1"]:
    """The mean of the MIDDLE of the part's tokens: a median jumps to the next token by the last bit of a weight."""
    ordered, places = token_map.sort(dim=1)
    upto = part.gather(1, places).cumsum(dim=1)
    whole = upto[:, -1:]
    start, end = (0.5 - MIDDLE / 2) * whole, (0.5 + MIDDLE / 2) * whole
    within = upto.maximum(start).minimum(end)
    taken = torch.cat([within[:, :1] - start, within[:, 1:] - within[:, :-1]], dim=1)
    return (taken * ordered).sum(dim=1, keepdim=True) / taken.sum(dim=1, keepdim=True)
