"""A small labelled set on disk and residuals with labels: what the tests of both measurements start from."""

import numpy as np
import torch
from hypothesis import strategies as st
from parts import part
from PIL import Image

from nfad.records import Sample

EPS = torch.finfo(torch.float64).eps
seeds = st.integers(0, 2**31)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(channels, seed):
    return torch.linalg.qr(random(channels, channels, seed=seed))[0]


@st.composite
def blocks(draw, least_free=0, count=None):
    """Residuals and bases of 1–3 blocks whose channels and columns differ, with both kinds of patches and neither."""
    images, tokens, seed = draw(st.integers(1, 4)), draw(st.integers(2, 6)), draw(seeds)
    residuals, bases = [], []
    for index in range(count or draw(st.integers(1, 3))):
        channels = draw(st.integers(least_free + 1, 10))
        columns = draw(st.integers(0, channels - least_free))
        residuals.append(random(images, tokens, channels, seed=seed + 10 * index) + 0.5)
        bases.append(rotation(channels, seed + 10 * index + 1)[:, :columns])
    kind = torch.randint(3, (images, tokens), generator=torch.Generator().manual_seed(seed + 2))
    kind[0, 0], kind[-1, -1] = 0, 1
    return residuals, kind == 0, kind == 1, bases


def write_samples(root, count=12, size=80):
    """Parts in two domains by turns, every other one with a square defect: a patch of a 64² view, and half the next."""
    made = []
    for index in range(count):
        bad, domain = index % 2 == 1, "dark" if index % 4 >= 2 else "same"
        path, mask = root / f"{index}.png", root / f"{index}_mask.png"
        pixels, truth = part(100 + index, size), np.zeros((size, size), np.uint8)
        if bad:
            truth[size // 2 : size * 3 // 4, size // 2 : size * 7 // 8] = 255
            pixels[truth > 0] = [255, 25, 25]
            Image.fromarray(truth).save(mask)
        Image.fromarray((pixels * (0.5 if domain == "dark" else 1)).astype(np.uint8)).save(path)
        made.append(Sample(path, bad, "square" if bad else "good", domain, mask if bad else None))
    return made
