import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.vision.defects import KINDS, SMALLEST, with_defect, with_defects

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 2**31)


def images_(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@given(kinds, st.integers(SMALLEST, 100), st.integers(SMALLEST, 100), seeds)
def test_a_defect_is_local_inside_the_image_and_changes_nothing_else(kind, height, width, seed):
    view = images_(3, height, width, seed=seed % 7)
    before = view.clone()
    changed, mask = with_defect(view, kind, np.random.default_rng(seed))
    assert torch.equal(view, before)
    assert changed.shape == view.shape and changed.min() >= 0 and changed.max() <= 1
    moved = (changed != view).any(dim=0).numpy()
    assert mask.any() and mask.mean() < 0.1
    assert not moved[~mask].any()
    assert moved[mask].mean() > 0.9  # a texture copied onto itself is the only way not to


@given(kinds, seeds)
def test_a_defect_depends_on_its_seed_alone(kind, seed):
    images = images_(2, 3, 64, 64)
    first, again, other = (with_defects(images, kind, s) for s in (seed, seed, seed + 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[1][0], first[1][1])  # each image has its own


def test_kinds_differ_in_shape():
    images = images_(40, 3, 128, 128)

    def boxes(kind):
        masks = with_defects(images, kind, 0)[1]
        return torch.stack([masks.any(dim=2).sum(dim=1), masks.any(dim=1).sum(dim=1)]).sort(dim=0).values, masks

    (short, long), scars = boxes("scar")
    assert (long > 3 * short).all()
    (high, wide), pastes = boxes("cut-paste")
    assert (pastes.sum(dim=(1, 2)) == high * wide).all() and (scars.sum(dim=(1, 2)) == short * long).all()
    (high, wide), stains = boxes("stain")
    assert stains.sum() < 0.9 * (high * wide).sum()  # ellipses


def test_a_stain_lets_the_surface_through():
    images = images_(10, 3, 128, 128)
    changed, masks = with_defects(images, "stain", 0)
    for image, stained, mask in zip(images, changed, masks):
        x, y = image[0][mask], stained[0][mask]
        slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        assert float(slope) == pytest.approx(0.4, abs=1e-3)


def test_sizes_go_with_the_view():
    small, large = (with_defects(images_(30, 3, side, side), "cut-paste", 0)[1] for side in (64, 256))
    ratio = float(large.float().mean() / small.float().mean())
    assert 0.7 < ratio < 1.6


def test_what_is_wrong_is_said_in_a_sentence():
    with pytest.raises(NfadError, match="kind must be one of cut-paste, scar, stain; got 'dent'"):
        with_defects(images_(1, 3, 64, 64), "dent", 0)
    with pytest.raises(NfadError, match="at least 64×64; got 64×63"):
        with_defects(images_(1, 3, 64, 63), "scar", 0)
