"""Rendered parts that lie anyhow on a plain table: nails with a head, a shaft and a band, and nuts with a mark."""

import numpy as np
from scipy.ndimage import gaussian_filter


def nail(seed, size=160, angle=None, at=None, length=1.0, ratio=1.0, defect=False, with_mask=False):
    """A photo (size, ratio · size) of one; where and how it lies follows from the seed, unless it is said.

    `at` is its middle from the photo's, in sides; the defect is a bright spot on the shaft, whose middle lies a quarter
    of the nail's length from its own towards the tip.
    """
    random = np.random.default_rng(seed)
    turned, moved = random.uniform(0, 2 * np.pi), random.uniform(-0.1, 0.1, 2)
    angle, (right, down) = turned if angle is None else angle, moved if at is None else at
    width = round(size * ratio)
    rows, columns = np.mgrid[:size, :width].astype(float)
    x, y = (columns - width / 2) / size - right, (rows - size / 2) / size - down
    along, across = x * np.cos(angle) + y * np.sin(angle), -x * np.sin(angle) + y * np.cos(angle)
    half = 0.26 * length
    shaft = (np.abs(along) < half) & (np.abs(across) < 0.035 * np.clip((half - along) / 0.08, 0, 1))
    head = (np.abs(along + half) < 0.03) & (np.abs(across) < 0.11)
    mask = shaft | head
    photo = np.full((size, width), 0.75) + 0.01 * gaussian_filter(random.normal(size=(size, width)), 1)
    photo = np.where(mask, 0.3 + 0.1 * np.cos(60 * along), photo)
    photo = np.where(shaft & (np.abs(along - 0.02) < 0.02), 0.5, photo)
    if defect:
        photo = np.where((along - 0.13) ** 2 + across**2 < 0.03**2, 1.0, photo)
    pixels = (gaussian_filter(photo, 0.7).clip(0, 1)[..., None] * np.array([1.0, 0.97, 0.92]) * 255).astype(np.uint8)
    return (pixels, mask) if with_mask else pixels


def nut(seed, lobes, size=160):
    """A photo of a nut with so many corners and a bright mark beside one of them."""
    random = np.random.default_rng(seed)
    angle, (right, down) = random.uniform(0, 2 * np.pi), random.uniform(-0.08, 0.08, 2)
    rows, columns = np.mgrid[:size, :size] / size - 0.5
    x, y = columns - right, rows - down
    u, v = x * np.cos(angle) + y * np.sin(angle), -x * np.sin(angle) + y * np.cos(angle)
    away = np.hypot(u, v)
    ring = (away < 0.3 * (1 + 0.12 * np.cos(lobes * np.arctan2(v, u)))) & (away > 0.09)
    photo = 0.2 + 0.01 * gaussian_filter(random.normal(size=(size, size)), 1)
    photo = np.where(ring, 0.6 + 0.05 * np.cos(60 * away), photo)
    photo = np.where(ring & ((u - 0.2) ** 2 + v**2 < 0.03**2), 0.7, photo)
    return (gaussian_filter(photo, 0.7).clip(0, 1)[..., None] * np.ones(3) * 255).astype(np.uint8)
