"""A part of another line: a turned flange with a bore and a ring of bolt holes, which no blade's model should judge."""

from __future__ import annotations

from math import pi

import numpy as np

from nfad.vision.blade import Part
from nfad.vision.texture import Surface, X, Y, coverage, noise, paint

BOLTS = 6


def flange(rng: np.random.Generator) -> Part:
    """Disc, raised hub, bore and bolt holes, turned so that fine grooves run round it."""
    x, y = X - rng.uniform(-3, 3), Y - rng.uniform(-3, 3)
    radius = np.hypot(x, y)
    disc, hub, bore = coverage(92 - radius), coverage(48 - radius), coverage(26 - radius)
    turns = (np.arctan2(y, x) + rng.uniform(0, pi)) * BOLTS / (2 * pi)
    around = (np.mod(turns, 1) - 0.5) * 2 * pi / BOLTS * 70  # along the circle of 70 pixels that the bolts stand on
    bolts = coverage(7 - np.hypot(around, radius - 70))
    grooves, cast = np.sin(radius * 2.1), noise(rng, 0.6)
    cover = disc * (1 - bore) * (1 - bolts)
    height = 12 + 14 * hub + 0.08 * grooves + 0.05 * cast
    brightness = 0.22 * (1 + 0.04 * grooves + 0.06 * cast)
    gloss = np.clip(0.35 * (1 + 0.1 * cast), 0.05, None)
    return Part(Surface(height, paint((1.0, 0.99, 0.96), brightness), gloss), cover, x, y)
