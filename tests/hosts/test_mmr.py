import pytest
import torch
from hosts.trained import depends_on_its_seed_alone, finds_a_defect, is_frozen, random
from hypothesis import given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.hosts import MMR, NuisanceFilter
from nfad.hosts.mmr import Masked, visible

SHAPES = [(12, 16, 16), (20, 8, 8), (6, 4, 4), (5, 2, 2)]


def fit(images, backbone, seed=1, steps=60):
    return MMR.fit(images[:6], backbone, steps=steps, batch=4, seed=seed)


@pytest.fixture(scope="module")
def bare(images, backbone):
    return fit(images, backbone)


@given(st.integers(1, 4), st.integers(1, 30), st.floats(0, 0.99), st.integers(0, 2**31))
def test_exactly_the_share_is_hidden_in_each_image(count, tokens, share, seed):
    shown = visible(count, tokens, share, torch.Generator().manual_seed(seed))
    assert shown.shape == (count, tokens - round(share * tokens))
    assert all(len(set(row.tolist())) == len(row) for row in shown)


def test_every_stage_comes_on_its_own_grid():
    found = Masked("vit_tiny_patch16_224", 64, SHAPES).eval()(random(2, 3, 64, 64))
    assert [tuple(maps.shape[1:]) for maps in found] == SHAPES


def test_what_is_hidden_is_not_seen_and_what_is_shown_is():
    torch.manual_seed(0)
    network = Masked("vit_tiny_patch16_224", 64, SHAPES[2:3]).eval()
    image = torch.rand(1, 3, 64, 64)
    changed = image.clone()
    changed[:, :, :16, :16] = 0  # the first patch
    hidden, seen = torch.arange(1, 16)[None], torch.arange(0, 15)[None]
    assert torch.equal(network(image, hidden)[0], network(changed, hidden)[0])
    assert not torch.allclose(network(image, seen)[0], network(changed, seen)[0])
    assert torch.allclose(network(image, torch.arange(16)[None])[0], network(image)[0], atol=1e-5)


def test_it_trains_and_finds_a_defect(bare, images):
    assert sum(bare.losses[-5:]) < 0.8 * sum(bare.losses[:5])
    is_frozen(bare.network)
    finds_a_defect(bare, images[6:])


def test_it_depends_on_its_seed_alone(images, backbone):
    depends_on_its_seed_alone(lambda seed: fit(images, backbone, seed, steps=2), images[:2])


def test_the_filter_acts_on_both_sides_of_the_comparison(bare, images):
    light = NuisanceFilter.fit(bare, images[:6], rank={"photometric": 2})
    found, before = light.wrap(bare).score(images[6:]), bare.score(images[6:])
    assert not torch.allclose(found.image, before.image) and found.maps.shape == before.maps.shape
    assert light.wrap(bare).prepared is bare  # it holds nothing of normal images


def test_what_makes_no_sense_is_told(images, backbone):
    with pytest.raises(NfadError, match="mask must lie in 0..1"):
        MMR.fit(images, backbone, mask=1.0)
    with pytest.raises(NfadError, match="multiple of 16; got 60"):
        MMR.fit(images[:, :, :60, :60], backbone)
    with pytest.raises(NfadError, match="a timm ViT with patches of 16²"):
        MMR.fit(images, backbone, student="resnet18", steps=1)
