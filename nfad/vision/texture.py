"""What the demonstration set is made of: surfaces on a bench, and the noise and paint that texture them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import fft

BENCH = 320  # pixels a side; wider than a photo, so that a moved camera still finds something to look at

X, Y = np.meshgrid(*[np.arange(BENCH, dtype=np.float32) - (BENCH - 1) / 2] * 2)


@dataclass(frozen=True)
class Surface:
    """What a lamp sees: height in pixels, linear reflectance (colour first), strength of the highlight."""

    height: np.ndarray
    albedo: np.ndarray
    gloss: np.ndarray


@cache
def _spectrum(power: float, stretch_x: float, stretch_y: float) -> np.ndarray:
    fy, fx = fft.fftfreq(BENCH)[:, None] * stretch_y, fft.rfftfreq(BENCH)[None] * stretch_x
    gain = (fy**2 + fx**2 + (2 / BENCH) ** 2) ** (-power / 2)
    gain[0, 0] = 0
    # The half spectrum holds every frequency twice, but for its first and last column.
    energy = 2 * (gain**2).sum() - (gain[:, [0, -1]] ** 2).sum()
    return (gain * BENCH / np.sqrt(energy)).astype(np.float32)


def noise(rng: np.random.Generator, power: float, stretch_x: float = 1, stretch_y: float = 1) -> np.ndarray:
    """Unit-variance noise whose amplitude falls as 1/frequency**power: 0 sand, 1 cast metal, 2 clouds."""
    white = rng.standard_normal((BENCH, BENCH), dtype=np.float32)
    return np.asarray(fft.irfft2(fft.rfft2(white) * _spectrum(power, stretch_x, stretch_y), s=white.shape))


def coverage(distance: np.ndarray) -> np.ndarray:
    """Coverage of a pixel by a shape, from its distance to the inside of the border."""
    return np.clip(distance + 0.5, 0, 1)


def blend(below: np.ndarray, above: np.ndarray, share: np.ndarray) -> np.ndarray:
    return below + (above - below) * share


def paint(colour: tuple[float, float, float], brightness: np.ndarray | float = 1.0) -> np.ndarray:
    return np.array(colour, np.float32)[:, None, None] * np.clip(np.asarray(brightness, np.float32), 0.05, None)
