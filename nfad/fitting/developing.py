"""How the fit's photos look, by which every photo is developed."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from nfad.config import Config
from nfad.fitting.views import ViewCache
from nfad.vision.developing import Development
from nfad.vision.region import Region, looked_at

TOLD = 256  # photos that tell it


def development_of(
    config: Config, views: ViewCache, chosen: Int[Tensor, " image"], region: Region | None
) -> Development | None:
    """Of these photos as they lie and as far as they are looked at; None where photos are left as taken."""
    if not config.develops:
        return None
    told = chosen[torch.linspace(0, len(chosen) - 1, min(len(chosen), TOLD)).round().long()]
    seen = (looked_at(region, views(some)) for some in told.split(config.at_once))
    return Development.of(seen, config.size, partial(views.sampled, like=told))
