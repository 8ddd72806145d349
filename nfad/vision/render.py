"""Pixels of the demonstration set: one kind of turbine blade, its defects, and four ways to photograph it.

A part is a height field with a reflectance; a photo is that part on a surface, under a lamp, through a camera. Part,
defect and photo draw from separate random streams, so a seed names one part whatever is done to it or around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cos, hypot, pi, radians, sin

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from nfad.errors import NfadError
from nfad.vision.blade import DEFECTS, VISIBLE, Part, blade, damage
from nfad.vision.texture import BENCH, Surface, X, Y, blend, coverage, noise, paint

DOMAINS = ("same", "background", "illumination", "view")

SIZE = 256
SOURCE_VIEW = np.eye(3)  # the camera looks straight at the middle of the bench
MARGIN = (BENCH - SIZE) // 2


@dataclass(frozen=True)
class Lamp:
    """A point lamp, the room's ambient light, and the tone curve the camera uses under them."""

    position: tuple[float, float, float]  # in pixels from the centre of the bench
    power: float = 1.0
    colour: tuple[float, float, float] = (1.0, 1.0, 1.0)
    ambient: float = 0.25
    gamma: float = 1.0
    slope: tuple[float, float] = (0.0, 0.0)  # relative change of power from the centre to the photo's edge
    spot: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 0.0)  # x, y, radius, relative power


def render(seed: int, defect: str = "good", domain: str = "same") -> tuple[np.ndarray, np.ndarray]:
    """Photograph part `seed`: uint8 image (256, 256, 3) and the bool mask of its defect, empty for a good part."""
    if seed < 0:
        raise NfadError(f"A demo part's seed must be 0 or more; got {seed}.")
    if defect not in ("good", *DEFECTS):
        raise NfadError(f"The demo set has no defect {defect!r}; choose good, {', '.join(DEFECTS)}.")
    if domain not in DOMAINS:
        raise NfadError(f"The demo set has no domain {domain!r}; choose {', '.join(DOMAINS)}.")
    part, extent = _part(seed, defect)
    (lamp, bench), view = _session(seed), SOURCE_VIEW
    photo = _stream(seed, domain)
    if domain == "background":
        bench = BACKGROUNDS[photo.integers(len(BACKGROUNDS))](photo)
    elif domain == "illumination":
        lamp = _other_lamp(photo)
    elif domain == "view":
        view = _moved_camera(photo)
    image = _expose(_look(_illuminate(part, bench, lamp, view), view), lamp.gamma, photo)
    return image, _look(extent[None], view)[0] > VISIBLE


# The last part and session are kept, because a set photographs each of its test parts in every domain in turn.
@lru_cache(maxsize=1)
def _part(seed: int, defect: str) -> tuple[Part, np.ndarray]:
    part = blade(_stream(seed, "part"))
    if defect == "good":
        return part, np.zeros_like(part.cover)
    return damage(part, defect, _stream(seed, defect))


@lru_cache(maxsize=1)
def _session(seed: int) -> tuple[Lamp, Surface]:
    """Lamp and bench of the source on the day of this part; each other domain changes one thing about it."""
    rng = _stream(seed, "session")
    return _source_lamp(rng), _bench(rng)


def _stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose.encode()])


def _bench(rng: np.random.Generator) -> Surface:
    """The source's own: a dark matt mat, a little different each day."""
    grain = noise(rng, 0.3)
    albedo = paint((0.05, 0.056, 0.065), rng.uniform(0.9, 1.1) * (1 + 0.1 * grain + 0.08 * noise(rng, 1.5)))
    return Surface(0.1 * grain, albedo, np.full_like(X, 0.02))


def _fabric(rng: np.random.Generator) -> Surface:
    dye = ((0.04, 0.07, 0.18), (0.27, 0.05, 0.04), (0.36, 0.31, 0.23), (0.09, 0.09, 0.1))[rng.integers(4)]
    pitch, folds = 2 * pi / rng.uniform(3.5, 6), noise(rng, 2.2)
    weave = np.sin(X * pitch + folds) * np.sin(Y * pitch + folds) + 0.4 * noise(rng, 0.4)
    return Surface(0.3 * weave + 3 * folds, paint(dye, 1 + 0.25 * weave), np.zeros_like(X))


def _cardboard(rng: np.random.Generator) -> Surface:
    fibre, flute = noise(rng, 0.7, stretch_x=5), np.sin(Y * (2 * pi / rng.uniform(14, 20)))
    albedo = paint((0.34, 0.21, 0.115), rng.uniform(0.8, 1.15) * (1 + 0.07 * fibre + 0.05 * noise(rng, 0.1)))
    return Surface(0.1 * fibre + 0.15 * flute, albedo, np.full_like(X, 0.01))


def _cutting_mat(rng: np.random.Generator) -> Surface:
    pitch, turn, wear = rng.uniform(28, 44), rng.uniform(-0.2, 0.2), noise(rng, 0.8)
    grid = [np.abs(np.mod(a, pitch) - pitch / 2) for a in (X + turn * Y + 7, Y - turn * X + 3)]
    lines = 0.5 * coverage(0.4 - np.minimum(*grid))
    albedo = blend(paint((0.015, 0.11, 0.08), 1 + 0.1 * wear), paint((0.4, 0.45, 0.3)), lines)
    return Surface(0.05 * wear, albedo, np.full_like(X, 0.04))


def _wood(rng: np.random.Generator) -> Surface:
    rings = np.sin(Y / rng.uniform(3, 6) + 2.5 * noise(rng, 1.8, stretch_x=4))
    fibre = noise(rng, 0.4, stretch_x=15)
    albedo = paint((0.28, 0.155, 0.075), rng.uniform(0.6, 1.2) * (1 + 0.14 * rings + 0.12 * fibre))
    return Surface(0.08 * fibre, albedo, np.full_like(X, 0.04))


def _steel_table(rng: np.random.Generator) -> Surface:
    brushed = noise(rng, 0.3, stretch_y=25)
    albedo = paint((0.2, 0.21, 0.22), rng.uniform(0.8, 1.1) * (1 + 0.12 * brushed + 0.1 * noise(rng, 1.6)))
    return Surface(0.04 * brushed, albedo, np.full_like(X, 0.1))


BACKGROUNDS = (_fabric, _cardboard, _cutting_mat, _wood, _steel_table)


def _source_lamp(rng: np.random.Generator) -> Lamp:
    return Lamp(tuple(rng.normal((-170, -190, 300), 12).tolist()), power=rng.uniform(0.93, 1.07))


def _other_lamp(rng: np.random.Generator) -> Lamp:
    """Brighter or darker by a stop or so, of another colour, on another side, uneven."""
    power = rng.uniform(0.4, 0.65) if rng.random() < 0.5 else rng.uniform(1.5, 2.2)
    bearing, warmth = rng.uniform(-0.6, 1.1) * pi, rng.uniform(-0.3, 0.3)  # the source's lamp stands at -0.73 pi
    return Lamp(
        position=(250 * cos(bearing), 250 * sin(bearing), rng.uniform(260, 420)),
        power=power,
        colour=(1 + warmth, 1.0, 1 - warmth),
        ambient=rng.uniform(0.12, 0.4),
        gamma=rng.uniform(0.85, 1.2),
        slope=(rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3)),
        # The dimmer the lamp, the harder its spot: a hard one on a bright lamp would burn a whole defect out.
        spot=(rng.uniform(-90, 90), rng.uniform(-90, 90), rng.uniform(40, 90), rng.uniform(0, 0.35) / power),
    )


def _moved_camera(rng: np.random.Generator) -> np.ndarray:
    """Homography from the photo to the bench, both measured from their centres."""
    angle, zoom = radians(rng.uniform(4, 12)) * rng.choice([-1, 1]), rng.uniform(0.9, 1.1)
    c, s = cos(angle) / zoom, sin(angle) / zoom
    (shift_x, shift_y), tilt = rng.uniform(-0.08, 0.08, 2) * SIZE, rng.uniform(-6e-4, 6e-4, 2)
    return np.array([[c, s, shift_x], [-s, c, shift_y], [*tilt, 1]])


def _illuminate(part: Part, bench: Surface, lamp: Lamp, view: np.ndarray) -> np.ndarray:
    """Linear light from every point of the bench: diffuse, highlight, the room's reflection, shadows."""
    cover, surface = part.cover, part.surface
    bench_slope, part_slope = np.gradient(bench.height), np.gradient(surface.height)
    down, right = (blend(b, p, cover) for b, p in zip(bench_slope, part_slope, strict=True))
    albedo, gloss = blend(bench.albedo, surface.albedo, cover), blend(bench.gloss, surface.gloss, cover)
    tilt_x, tilt_y = (600 * view[2, :2]).tolist()  # the camera's own lean, which moves the reflections

    x, y, z = lamp.position
    distance = np.sqrt((x - X) ** 2 + (y - Y) ** 2 + z**2)
    to_x, to_y, to_z = (x - X) / distance, (y - Y) / distance, z / distance
    steep = np.sqrt(right**2 + down**2 + 1)
    facing = np.clip((to_z - right * to_x - down * to_y) / steep, 0, None)
    half_x, half_y, half_z = to_x + tilt_x, to_y + tilt_y, to_z + 1
    mirror = half_z - right * half_x - down * half_y
    mirror /= steep * np.sqrt(half_x**2 + half_y**2 + half_z**2)
    highlight = np.clip(mirror, 0, None) ** 12
    # A dim room with one tall window to the right: what makes a curved sheet read as metal.
    there_x, there_y = tilt_x - 2 * right / steep**2, tilt_y - 2 * down / steep**2
    room = 0.7 - 0.5 * there_y + 1.6 * np.exp(-((there_x - 0.75) ** 2) / 0.05)

    thrown = (round(-22 * y / z), round(-22 * x / z))  # a part is about 22 pixels thick
    beside = 1 - cover
    shade = 1 - 0.85 * beside * gaussian_filter(np.roll(cover, thrown, (0, 1)), 3, truncate=3)
    ambient = lamp.ambient * (1 - 0.7 * beside * gaussian_filter(cover, 6, truncate=3))
    spot_x, spot_y, radius, extra = lamp.spot
    beam = 1 + (lamp.slope[0] * X + lamp.slope[1] * Y) / (SIZE / 2)
    beam += extra * np.exp(-((X - spot_x) ** 2 + (Y - spot_y) ** 2) / (2 * radius**2))
    beam = np.clip(beam, 0.15, None) * shade * hypot(x, y, z) ** 2 / distance**2
    light = albedo * (ambient + beam * facing) + gloss * (ambient * room + beam * highlight)
    return light * paint(lamp.colour, 1.35 * lamp.power)


def _look(bench: np.ndarray, view: np.ndarray) -> np.ndarray:
    """What the camera frames of the bench, colour first."""
    if view is SOURCE_VIEW:
        return bench[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    wide = np.pad(bench, ((0, 0), (80, 80), (80, 80)), mode="reflect")
    there, here = np.eye(3), np.eye(3)
    there[:2, 2], here[:2, 2] = wide.shape[1] / 2, -SIZE / 2
    matrix = there @ view @ here
    how = ((SIZE, SIZE), Image.Transform.PERSPECTIVE, (matrix / matrix[2, 2]).ravel()[:8], Image.Resampling.BICUBIC)
    return np.stack([np.asarray(Image.fromarray(plane).transform(*how)) for plane in wide])


def _expose(light: np.ndarray, gamma: float, rng: np.random.Generator) -> np.ndarray:
    """Lens blur, shot and read noise, saturation, display gamma, eight bits."""
    light = np.clip(gaussian_filter(light, (0, 0.5, 0.5)), 0, None)
    grain = rng.standard_normal(light.shape, dtype=np.float32)
    light = np.clip(light + grain * np.sqrt(light * 2e-4 + 4e-6), 0, None)
    # Highlights roll off above the knee before they clip, as in any camera: glare hides much of a defect, not all.
    knee = np.float32(0.6)
    over = np.clip(light - knee, 0, None)
    light = np.minimum(light, knee) + (1 - knee) * (1 - np.exp(-over / (1 - knee)))
    return np.round(255 * light ** (gamma / 2.2)).astype(np.uint8).transpose(1, 2, 0).copy()
