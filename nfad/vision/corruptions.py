"""Four corruptions of ImageNet-C at its five severities, for measuring how a detector bears a shift it never saw.

They are those of the PyPI package `imagecorruptions` to one grey level, without its need of OpenCV and scikit-image.
Source of the strengths: Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019. Interventions teach the filter, corruptions test it; they share no code on purpose.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage, signal

from nfad.errors import NfadError

SEVERITIES = range(1, 6)
NAMED = {"all": SEVERITIES, "visa_c": range(1, 4)}  # suites of all corruptions, by their severities


def brightness(pixels: np.ndarray, shift: float, _: np.random.Generator) -> np.ndarray:
    """HSV value + shift: hue and saturation stay when all channels grow by the factor that the largest one grows by."""
    values = np.arange(256, dtype=np.float32)
    brighter = np.minimum(values + 255 * shift, 255)
    largest = np.maximum.reduce([pixels[..., channel] for channel in range(3)])[..., None]
    # Black has no hue: it becomes grey, not a multiple of itself.
    return np.where(largest == 0, brighter[0], pixels * (brighter / np.maximum(values, 1))[largest])


def contrast(pixels: np.ndarray, factor: float, _: np.random.Generator) -> np.ndarray:
    """About the mean of each channel."""
    mean = pixels.mean(axis=(0, 1))
    table = ((np.arange(256)[:, None] - mean) * factor + mean).astype(np.float32)
    return np.stack([table[pixels[..., channel], channel] for channel in range(3)], axis=-1)


def defocus_blur(pixels: np.ndarray, optics: tuple[int, float], _: np.random.Generator) -> np.ndarray:
    """A disk of this radius with an edge softened by a Gaussian; the image is mirrored about its outermost pixels."""
    kernel = soft_disk(*optics)
    reach = len(kernel) // 2
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect").astype(np.float32)
    return signal.fftconvolve(padded, kernel[..., None], mode="valid", axes=(0, 1))


def gaussian_noise(pixels: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Of the same strength in every channel, independent between them."""
    return pixels + 255 * sigma * rng.standard_normal(pixels.shape, dtype=np.float32)


def soft_disk(radius: int, softness: float) -> np.ndarray:
    """The blur's kernel on the grid of the reference: 17 wide up to radius 8, then as wide as the disk."""
    reach, gaussian_reach = (8, 1) if radius <= 8 else (radius, 2)
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    taps = np.exp(-0.5 * (np.arange(-gaussian_reach, gaussian_reach + 1) / softness) ** 2)
    for axis in (0, 1):
        # At severities 4 and 5 the disk fills its grid and mirroring adds 1 % of light, in the reference too.
        disk = ndimage.convolve1d(disk, taps / taps.sum(), axis=axis, mode="mirror")
    return disk.astype(np.float32)


# Each with its strengths at severities 1 to 5
CORRUPTIONS = {
    "brightness": (brightness, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": (contrast, (0.4, 0.3, 0.2, 0.1, 0.05)),
    "defocus_blur": (defocus_blur, ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
    "gaussian_noise": (gaussian_noise, (0.08, 0.12, 0.18, 0.26, 0.38)),
}


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity: call it on an image; as text it is `contrast:3`."""

    name: str
    severity: int

    def __post_init__(self) -> None:
        if self.name not in CORRUPTIONS:
            raise NfadError(f"a corruption is one of {', '.join(CORRUPTIONS)}; got {self.name!r}")
        if not isinstance(self.severity, int) or self.severity not in SEVERITIES:
            raise NfadError(f"the severity of a corruption must lie in 1..5; got {self.severity!r}")

    @classmethod
    def parse(cls, text: str) -> Corruption:
        """From `name:severity`; a hyphen may stand for the underscore."""
        found = re.fullmatch(r"([\w-]+):(\d+)", text, re.ASCII)
        if not found:
            raise NfadError(f"a corruption is written name:severity, e.g. contrast:3; got {text!r}")
        return cls(found[1].replace("-", "_"), int(found[2]))

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"

    def __call__(self, pixels: np.ndarray, seed: int = 0) -> np.ndarray:
        """The corrupted copy of a uint8 (height, width, 3) image.

        Noise follows from the seed and the image itself, so that a set can be corrupted in any order under one seed
        and yet no two images share a pattern.
        """
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise NfadError(
                f"a corruption takes a uint8 image of shape (height, width, 3); got {pixels.dtype} {pixels.shape}"
            )
        corrupt, strengths = CORRUPTIONS[self.name]
        corrupted = corrupt(pixels, strengths[self.severity - 1], self._generator(pixels, seed))
        # The reference cuts off fractions. What rounding errors left a hair below a whole grey level is that level.
        return (corrupted + np.float32(1e-3)).clip(0, 255).astype(np.uint8)

    def _generator(self, pixels: np.ndarray, seed: int) -> np.random.Generator:
        content = hashlib.blake2b(f"{self} {seed} {pixels.shape}".encode(), digest_size=16)
        content.update(pixels.tobytes())
        return np.random.default_rng(int.from_bytes(content.digest(), "big"))


def suite(names: Iterable[str] | None = None, severities: Iterable[int] = SEVERITIES) -> tuple[Corruption, ...]:
    """Every named corruption (all four unless told) at every severity, name by name."""
    names, severities = CORRUPTIONS if names is None else names, tuple(severities)
    return tuple(Corruption.parse(f"{name}:{severity}") for name in names for severity in severities)


def parse_suite(text: str) -> tuple[Corruption, ...]:
    """With commas between: `contrast:3`, `contrast` (at all severities), `visa-c` (the paper's: all four at 1 to 3),
    `all`; each corruption once, in that order."""
    found: list[Corruption] = []
    for each in text.split(","):
        name = each.strip().replace("-", "_")
        if name in NAMED:
            found += suite(severities=NAMED[name])
        elif ":" in name:
            found.append(Corruption.parse(name))
        else:
            found += suite([name])
    return tuple(dict.fromkeys(found))
