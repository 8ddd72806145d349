"""Content-preserving edits of a normal image, in [0, 1] image space, by family (Sec. 4.2, supplement).

`paper` is exactly the paper's two families. `wide` adds the strengths of real lamps and a third family, `sensor`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F

Images = Float[Tensor, "image 3 height width"]
Foreground = Bool[Tensor, "image 1 height width"]
Intervention = Callable[[Images, Foreground, Generator], Images]


def affine(gain: float, offset: float, images: Images, _: Foreground, __: Generator) -> Images:
    """Exposure ×gain, then + offset (stray light, black level)."""
    return images * gain + offset


def contrast(factor: float, images: Images, _: Foreground, __: Generator) -> Images:
    """About the image's mean over all channels."""
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return (images - mean) * factor + mean


def gamma(exponent: float, images: Images, _: Foreground, __: Generator) -> Images:
    return images.clamp(min=0) ** exponent


def temperature(gains: tuple[float, float, float], images: Images, _: Foreground, __: Generator) -> Images:
    return images * torch.tensor(gains)[:, None, None]


def ramp(dim: int, low: float, high: float, images: Images, _: Foreground, __: Generator) -> Images:
    """Shading that grows linearly along one axis."""
    shape = [1, 1, 1, 1]
    shape[dim] = images.shape[dim]
    return images * torch.linspace(low, high, images.shape[dim]).reshape(shape)


def spot(strength: float, images: Images, _: Foreground, generator: Generator) -> Images:
    """A lamp's hot spot (or, below 1, its shadow) at a random place: gain `strength` at its centre, 1 far away."""
    count, height, width = len(images), *images.shape[2:]
    centre = torch.rand(count, 2, 1, 1, generator=generator)
    radius = 0.2 + 0.3 * torch.rand(count, 1, 1, generator=generator)
    rows = torch.linspace(0, 1, height)[None, :, None] - centre[:, 0]
    columns = torch.linspace(0, 1, width)[None, None, :] - centre[:, 1]
    bump = torch.exp(-0.5 * (rows.square() + columns.square()) / radius.square())
    return images * (1 + (strength - 1) * bump)[:, None]


def fill(colour: tuple[float, float, float], images: Images, foreground: Foreground, _: Generator) -> Images:
    return torch.where(foreground, images, torch.tensor(colour)[:, None, None])


def noise_fill(images: Images, foreground: Foreground, generator: Generator) -> Images:
    return torch.where(foreground, images, torch.rand(images.shape, generator=generator))


def noise(sigma: float, images: Images, _: Foreground, generator: Generator) -> Images:
    return images + sigma * torch.randn(images.shape, generator=generator)


def blur(sigma: float, images: Images, _: Foreground, __: Generator) -> Images:
    radius = int(4 * sigma + 0.5)
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).repeat(3, 1, 1, 1)
    padded = F.pad(images, (radius,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, taps, groups=3), taps.transpose(2, 3), groups=3)


def jpeg(quality: int, images: Images, _: Foreground, __: Generator) -> Images:
    decoded = []
    for image in (images.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy():
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        decoded.append(np.asarray(Image.open(buffer)))
    return torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).float() / 255


PAPER_PHOTOMETRIC: dict[str, Intervention] = {
    "brightness ×1.40": partial(affine, 1.40, 0.0),
    "brightness ×0.65": partial(affine, 0.65, 0.0),
    "contrast ×1.5": partial(contrast, 1.5),
    "gamma 1.6": partial(gamma, 1.6),
    "temperature": partial(temperature, (1.15, 1.0, 0.85)),
    "ramp →": partial(ramp, 3, 0.6, 1.4),
    "ramp ↓": partial(ramp, 2, 0.6, 1.4),
}
BACKGROUND: dict[str, Intervention] = {
    "fill black": partial(fill, (0.0, 0.0, 0.0)),
    "fill grey": partial(fill, (0.5, 0.5, 0.5)),
    "fill blue": partial(fill, (0.25, 0.45, 0.75)),
    "fill light": partial(fill, (0.9, 0.9, 0.9)),
    "fill noise": noise_fill,
}
WIDE_PHOTOMETRIC: dict[str, Intervention] = {
    "exposure ×0.4": partial(affine, 0.4, 0.0),
    "exposure ×2": partial(affine, 2.0, 0.0),
    "exposure ×3": partial(affine, 3.0, 0.0),
    "offset +0.2": partial(affine, 1.0, 0.2),
    "offset +0.4": partial(affine, 1.0, 0.4),
    "×1.5 + 0.1": partial(affine, 1.5, 0.1),
    "gamma 0.5": partial(gamma, 0.5),
    "gamma 0.7": partial(gamma, 0.7),
    "contrast ×0.5": partial(contrast, 0.5),
    "warm": partial(temperature, (1.35, 1.0, 0.65)),
    "cold": partial(temperature, (0.7, 0.95, 1.3)),
    "hot spot": partial(spot, 2.2),
    "shadow": partial(spot, 0.4),
}
SENSOR: dict[str, Intervention] = {
    "noise 0.05": partial(noise, 0.05),
    "noise 0.1": partial(noise, 0.1),
    "noise 0.2": partial(noise, 0.2),
    "blur 1": partial(blur, 1.0),
    "blur 2": partial(blur, 2.0),
    "JPEG 20": partial(jpeg, 20),
}
SETS: dict[str, dict[str, dict[str, Intervention]]] = {
    "paper": {"photometric": PAPER_PHOTOMETRIC, "background": BACKGROUND},
    "wide": {
        "photometric": PAPER_PHOTOMETRIC | WIDE_PHOTOMETRIC,
        "background": BACKGROUND,
        "sensor": SENSOR,
    },
}


def intervene(
    intervention: Intervention, images: Images, prior: Float[Tensor, "image token"], generator: Generator
) -> Images:
    """F(x), clamped to [0, 1]; the foreground is the prior at 0.5 and above, token by token."""
    side = int(prior.shape[1] ** 0.5)
    foreground = (prior >= 0.5).float().reshape(-1, 1, side, side)
    foreground = F.interpolate(foreground, images.shape[2:], mode="nearest") > 0.5
    return intervention(images, foreground, generator).clamp(0, 1)
