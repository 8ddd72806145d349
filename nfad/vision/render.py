"""Pixels of the demonstration set: one kind of turbine blade, its defects, and four ways to photograph it.

A part is a height field with a reflectance; a photo is that part on a surface, under a lamp, through a camera. Part,
defect and photo draw from separate random streams, so a seed names one part whatever is done to it or around it.

The domains are what befalls a line: another belt, a lamp that was replaced, turned or has aged, a camera that was
nudged. Nobody calls it the same station when the part lies across the photo or the belt has become a table of wood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import atan2, cos, hypot, pi, radians, sin

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from nfad.errors import NfadError
from nfad.vision.blade import DEFECTS, VISIBLE, Part, blade, damage
from nfad.vision.texture import BENCH, Surface, X, Y, blend, noise, paint

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
        bench = _belt(photo)
    elif domain == "illumination":
        lamp = _other_lamp(photo)
    elif domain == "view":
        view = _moved_camera(photo)
    image = _expose(_look(_illuminate(part, bench, lamp, view), view), lamp.gamma, photo)
    return image, _look(extent[None], view)[0] > VISIBLE


def render_stranger(seed: int = 0) -> np.ndarray:
    """A photo from the same station with nothing on its bench, uint8 (256, 256, 3): there is no blade to judge."""
    lamp, bench = _session(seed)
    part = blade(_stream(seed, "stranger"))
    light = _illuminate(replace(part, cover=np.zeros_like(part.cover)), bench, lamp, SOURCE_VIEW)
    return _expose(_look(light, SOURCE_VIEW), lamp.gamma, _stream(seed, "stranger's photo"))


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


def _belt(rng: np.random.Generator) -> Surface:
    """A conveyor belt of another colour: fine weave under a dull coat, scuffed along its way."""
    pitch, weave_x, weave_y = 2 * pi / rng.uniform(3.5, 6), rng.uniform(0, pi), rng.uniform(0, pi)
    weave = np.sin(X * pitch + weave_x) * np.sin(Y * pitch + weave_y)
    scuffs, dirt = noise(rng, 0.4, stretch_y=15), noise(rng, 1.5)
    colour = BELTS[rng.integers(len(BELTS))]
    albedo = paint(colour, rng.uniform(0.85, 1.15) * (1 + 0.05 * weave + 0.06 * scuffs + 0.08 * dirt))
    return Surface(0.08 * weave + 0.05 * scuffs, albedo, np.full_like(X, 0.02))


# As belts are sold: green, blue, white, grey, sand.
BELTS = ((0.03, 0.15, 0.08), (0.03, 0.08, 0.24), (0.5, 0.5, 0.48), (0.19, 0.195, 0.2), (0.38, 0.31, 0.21))


SOURCE_LAMP = (-170, -190, 300)
SOURCE_BEARING = atan2(SOURCE_LAMP[1], SOURCE_LAMP[0])


def _source_lamp(rng: np.random.Generator) -> Lamp:
    return Lamp(tuple(rng.normal(SOURCE_LAMP, 12).tolist()), power=rng.uniform(0.93, 1.07))


def _other_lamp(rng: np.random.Generator) -> Lamp:
    """Up to 40 % brighter or darker, a little warmer or colder, turned by up to 40 degrees, less even."""
    power = 1 + rng.uniform(0.15, 0.4) * rng.choice([-1, 1])
    bearing, warmth = SOURCE_BEARING + radians(rng.uniform(-40, 40)), rng.uniform(-0.12, 0.12)
    return Lamp(
        position=(255 * cos(bearing), 255 * sin(bearing), rng.uniform(260, 350)),
        power=power,
        colour=(1 + warmth, 1.0, 1 - warmth),
        ambient=rng.uniform(0.18, 0.33),
        gamma=rng.uniform(0.92, 1.08),
        slope=(rng.uniform(-0.15, 0.15), rng.uniform(-0.15, 0.15)),
        spot=(rng.uniform(-90, 90), rng.uniform(-90, 90), rng.uniform(40, 90), rng.uniform(0, 0.2)),
    )


def _moved_camera(rng: np.random.Generator) -> np.ndarray:
    """A nudge: at most 3 degrees, 5 pixels, 2 % nearer or farther, and a lean that shows as 1 % at the photo's edge.

    A homography from the photo to the bench, both measured from their centres.
    """
    angle, zoom = radians(rng.uniform(1, 3)) * rng.choice([-1, 1]), rng.uniform(0.98, 1.02)
    c, s = cos(angle) / zoom, sin(angle) / zoom
    (shift_x, shift_y), tilt = rng.uniform(-5, 5, 2), rng.uniform(-8e-5, 8e-5, 2)
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
