import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.vision.flaws import FLAWS, flawed

seeds = st.integers(0, 2**31)
kinds = pytest.mark.parametrize("kind", FLAWS)


def view_(side, seed=0):
    """Texture of coarse and fine features, away from black and white."""
    random = torch.Generator().manual_seed(seed)
    coarse = torch.nn.functional.interpolate(torch.rand(1, 3, 8, 8, generator=random), (side, side), mode="bilinear")
    return 0.2 + 0.5 * coarse[0] + 0.1 * torch.rand(3, side, side, generator=random)


@kinds
@given(st.sampled_from([64, 96, 256]), seeds)
def test_a_flaw_is_local_and_leaves_the_view_as_it_was(kind, side, seed):
    view = view_(side, seed % 5)
    before = view.clone()
    found = flawed(view, kind, np.random.default_rng(seed))
    assert torch.equal(view, before)
    assert found.shape == view.shape and found.dtype == view.dtype
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    moved = (found - view).abs().amax(dim=0) > 0.02
    assert float(moved.float().mean()) < 0.4


@kinds
def test_nearly_all_flaws_can_be_seen(kind):
    view = view_(256)
    seen = [(flawed(view, kind, np.random.default_rng(seed)) - view).abs().max() for seed in range(40)]
    assert sum(float(each) > 0.03 for each in seen) >= 36


@kinds
@given(seeds)
def test_a_flaw_depends_on_its_draw_alone(kind, seed):
    view = view_(64)
    first, again = (flawed(view, kind, np.random.default_rng(seed)) for _ in range(2))
    assert torch.equal(first, again)


@kinds
def test_sizes_are_small_and_large(kind):
    """Of the pixels changed, the largest of many has ten times as many as the smallest."""
    view = view_(256)
    changed = [
        int(((flawed(view, kind, np.random.default_rng(seed)) - view).abs().amax(dim=0) > 0.02).sum())
        for seed in range(40)
    ]
    changed = sorted(each for each in changed if each)
    assert changed[-1] > 10 * changed[0]
