"""Small real parts for tests: textured images and a detector on an untrained tiny ViT, fitted in a second."""

import numpy as np
from scipy.ndimage import gaussian_filter

from nfad import Config

TINY = {
    "teacher": "vit_tiny_patch16_224",
    "weights": "untrained",
    "size": 64,
    "blocks": (1, 3),
    "prior_blocks": (4, 5),
    "pairs": 2,
    "batch": 4,
    "rank": {"photometric": 8, "background": 4, "sensor": 4},
    "bank": 100,
    "student": "untrained-test_vit",
    "epochs": 2,
    "acquisitions": 14,
    "pose": "as taken",
}


def tiny(**changes) -> Config:
    return Config.from_dict(TINY | changes)


def part(seed: int, size: int = 64, defect: bool = False) -> np.ndarray:
    """A blob on a textured ground; the defect is a bright square."""
    random = np.random.default_rng(seed)
    texture = gaussian_filter(random.normal(size=(size, size, 3)), (2, 2, 0)) * 0.2
    rows, columns = np.mgrid[:size, :size] / size - 0.5
    blob = (rows**2 + columns**2 < 0.09 + 0.002 * random.normal())[..., None] * 0.3
    image = 0.4 + texture + blob
    if defect:
        image[size // 2 : size // 2 + size // 6, size // 2 : size // 2 + size // 6] = [1.0, 0.1, 0.1]
    return (image.clip(0, 1) * 255).astype(np.uint8)


def parts(count: int, start: int = 0) -> list[np.ndarray]:
    return [part(start + i) for i in range(count)]
