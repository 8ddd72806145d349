"""The demonstration set's part, a turbine blade, and the four ways it goes bad."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, pi, radians, sin

import numpy as np
from PIL import Image, ImageDraw
from scipy.ndimage import label

from nfad.vision.texture import BENCH, Surface, X, Y, blend, coverage, noise, paint

DEFECTS = ("ablation", "breakdown", "fracture", "groove")
VISIBLE = 0.2  # a pixel belongs to the mask where the defect covers more than this share of it


@dataclass(frozen=True)
class Part:
    """A blade lying on the bench. `u, v` are its own axes, across and along."""

    surface: Surface
    cover: np.ndarray  # 1 on the part, 0 beside it
    u: np.ndarray
    v: np.ndarray


def blade(rng: np.random.Generator) -> Part:
    """Aerofoil with a row of cooling holes and one of slots, platform, and a root with fir-tree teeth."""
    angle, size = radians(rng.uniform(-1.5, 1.5)), rng.uniform(0.98, 1.02)
    dx, dy = rng.uniform(-3, 3), rng.uniform(-3, 3)
    u = (cos(angle) * (X - dx) + sin(angle) * (Y - dy)) / size
    v = (cos(angle) * (Y - dy) - sin(angle) * (X - dx)) / size

    half = (55 + 0.06 * v) * rng.uniform(0.98, 1.02)
    across = (u - 5 * np.cos(v / 55)) / half
    foil = np.minimum((1 - np.abs(across)) * half, v + 100 - 7 * across**2)
    foil_height = 45 * np.sqrt(1.7 - (np.clip(across, -1, 1) + 0.1 - np.clip(v, -100, 50) / 800) ** 2)
    platform = np.minimum(74 - np.abs(u), 10 - np.abs(v - 48))
    teeth = np.cos((v - 58) * (2 * pi / 14.5))
    root = np.minimum(np.minimum(52 - 0.4 * (v - 58) + 4.5 * teeth - np.abs(u), 100 - v), v - 50)

    on_foil, on_platform, on_root = coverage(foil) * (v < 48), coverage(platform), coverage(root)
    height = blend(18 + np.clip(root, 0, 5) + 1.6 * teeth, foil_height, on_foil)
    height = blend(height, 34 + 0.8 * np.clip(platform, 0, 4), on_platform)
    cover = np.maximum(np.maximum(on_foil, on_root), on_platform)
    machined = np.maximum(on_root, on_platform)

    pitch, radius = 12.5, rng.uniform(2.0, 2.5)
    place = (v - rng.uniform(-1, 1)) / pitch
    along = (np.mod(place, 1) - 0.5) * pitch
    holes = coverage(radius - np.hypot((across + 0.72) * half, along))
    slots = coverage(np.minimum(1.2 - np.abs(along), 5 - np.abs((across - 0.8) * half)))
    holes = np.maximum(holes, slots) * ((place > -7) & (place < 2))

    cast, brushed, tarnish = noise(rng, 0.6), noise(rng, 0.5, stretch_x=12), noise(rng, 1.6)
    pores = np.clip(-cast - 2.6, 0, 1)
    rough = rng.uniform(0.7, 1.3)
    height += rough * (0.07 * cast * (1 - machined) + (0.02 + 0.05 * machined) * brushed) - 0.6 * pores - 5 * holes
    brightness = 0.2 * (1 + 0.06 * rough * (cast + brushed) + 0.1 * tarnish - 0.3 * pores + 0.1 * machined)
    # Service tarnish: blades brown a little towards the tip, each by its own amount.
    brown = np.clip(0.25 * tarnish + 0.3 - v / 250, 0, 1) * (1 - machined) * rng.uniform(0.15, 0.6)
    albedo = blend(paint((1.0, 0.99, 0.97), brightness), paint((0.9, 0.72, 0.52), brightness), brown)
    gloss = 0.32 * (1 + 0.1 * rough * (cast + brushed) - 0.15 * tarnish - 0.4 * brown + 0.2 * machined)
    return Part(Surface(height, albedo * (1 - 0.85 * holes), np.clip(gloss, 0.05, None) * (1 - holes)), cover, u, v)


def damage(part: Part, kind: str, rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """The part with one defect somewhere, and the share of each pixel that the defect changed."""
    strength, angle = rng.uniform(0.3, 1), rng.uniform(0, pi)
    u, v = rng.uniform(-38, 38), (rng.uniform(-84, 28) if rng.random() < 0.85 else rng.uniform(44, 52))
    x = cos(angle) * (part.u - u) + sin(angle) * (part.v - v)
    y = cos(angle) * (part.v - v) - sin(angle) * (part.u - u)
    make = {"ablation": _ablation, "breakdown": _breakdown, "fracture": _fracture, "groove": _groove}[kind]
    surface, extent = make(part.surface, x, y, part.cover >= 1, strength, rng)
    return replace(part, surface=surface), extent


def _blob(x, y, inside, border: float, ragged: float, rng) -> np.ndarray:
    """An irregular patch of 7 to 22 pixels' radius around the origin; `border` is its width in radii."""
    radius = 7 * (22 / 7) ** rng.random()
    r = np.hypot(x, y / rng.uniform(0.6, 1)) / radius
    extent = np.clip((1 - r + ragged * r * (r < 1.7) * noise(rng, 1.5)) / border, 0, 1) * inside
    # One defect is one region: crumbs beside it would count as defects of their own in a per-region score.
    visible = extent > VISIBLE
    pieces = np.empty(visible.shape, dtype=np.int32)
    label(visible, output=pieces)
    return extent * (pieces == np.bincount(pieces.flat)[1:].argmax() + 1)


def _ablation(surface, x, y, inside, strength, rng):
    """Burnt: dark, dull and pitted in the middle, tempering colours at the rim."""
    extent = _blob(x, y, inside, 0.5, 0.22, rng)
    rim = paint(((0.34, 0.2, 0.09), (0.1, 0.12, 0.22))[rng.integers(2)])
    soot = paint((0.045, 0.035, 0.03), 1 + 0.3 * noise(rng, 0.8))
    burnt = blend(rim, soot, np.clip(2 * extent - 0.6, 0, 1))
    share = (0.15 + 0.8 * strength) * np.sqrt(extent)
    height = surface.height + 0.3 * strength * extent * noise(rng, 0.7)
    return Surface(height, blend(surface.albedo, burnt, share), surface.gloss * (1 - 0.85 * share)), extent


def _breakdown(surface, x, y, inside, strength, rng):
    """Coating flaked off: a sharp step down to a grainy, dull layer."""
    extent = _blob(x, y, inside, 0.12, 0.3, rng)
    grain = noise(rng, 0.3)
    layer = paint(((0.42, 0.37, 0.3), (0.09, 0.085, 0.08), (0.24, 0.16, 0.11))[rng.integers(3)], 1 + 0.15 * grain)
    share = (0.25 + 0.7 * strength) * extent
    height = surface.height + extent * ((0.15 * grain - 1.2) * strength - 0.5)
    return Surface(height, blend(surface.albedo, layer, share), surface.gloss * (1 - 0.75 * share)), extent


def _fracture(surface, x, y, inside, strength, rng):
    """A thin dark crack that wanders and branches, drawn at twice the resolution."""
    plate = Image.new("L", (2 * BENCH, 2 * BENCH))
    draw = ImageDraw.Draw(plate)
    row, column = divmod(int(np.hypot(x, y).argmin()), BENCH)
    heading, length, width = rng.uniform(0, 2 * pi), rng.uniform(25, 75), rng.uniform(3, 5)
    tips = [(2 * column + 1, 2 * row + 1, heading + turn, length / 2, width) for turn in (0, pi)]
    while tips:
        a, b, heading, left, width = tips.pop()
        while left > 0:
            heading += rng.normal(0, 0.3)
            stride = rng.uniform(2, 5)
            a1, b1 = a + 2 * stride * cos(heading), b + 2 * stride * sin(heading)
            draw.line([a, b, a1, b1], fill=255, width=max(2, round(width)))
            a, b, left, width = a1, b1, left - stride, width * 0.96
            if rng.random() < 0.15:
                tips.append((a, b, heading + rng.choice([-1, 1]) * rng.uniform(0.5, 1.1), left * 0.6, width * 0.8))
    extent = np.asarray(plate.reduce(2), dtype=np.float32) / 255 * inside
    dark = 1 - (0.15 + 0.8 * strength) * extent
    return Surface(surface.height - strength * extent, surface.albedo * dark, surface.gloss * dark), extent


def _groove(surface, x, y, inside, strength, rng):
    """A gouge: a bright valley between two raised lips, so that one flank catches the lamp."""
    length, width, bend = rng.uniform(14, 42), rng.uniform(1.6, 3.2), rng.normal(0, 0.003)
    taper = np.clip(1 - (x / length) ** 2, 0, None) ** 0.75 * width
    off = np.abs(y - bend * x**2)
    extent = coverage(1.5 * taper - off) * (taper > 0) * inside
    q = off / np.maximum(taper, 0.5)
    valley, lip = np.clip(1 - q**2, 0, None) * extent, np.clip(1 - np.abs(q - 1.1) * 2.5, 0, None) * extent
    albedo = blend(surface.albedo, paint((0.4, 0.4, 0.4)), (0.15 + 0.5 * strength) * valley)
    height = surface.height + strength * width * (0.3 * lip - 0.6 * valley)
    return Surface(height, albedo, surface.gloss * (1 + 0.8 * strength * valley)), extent
