import numpy as np
import pytest
import torch
from hosts.trained import depends_on_its_seed_alone, finds_a_defect, is_frozen, random
from hypothesis import given
from hypothesis import strategies as st
from references import tokens as slow

from nfad.errors import NfadError
from nfad.hosts import Dinomaly, NuisanceFilter, vit_maps
from nfad.hosts.dinomaly import FACTOR, Rebuilder, damped, easy_share, grouped, linear_attention, loose_loss, rate_share

EPS = torch.finfo(torch.float32).eps


@pytest.fixture(scope="module")
def layers(network):
    """Four layers of one grid, as a ViT's blocks are."""

    def maps(images):
        first = network[0](images)
        return [first, first.roll(1, 1), first.square(), first.roll(2, 1)]

    return maps


def fit(images, layers, seed=1, steps=60):
    return Dinomaly.fit(images[:6], layers, steps=steps, depth=4, heads=3, batch=4, seed=seed)


@pytest.fixture(scope="module")
def bare(images, layers):
    return fit(images, layers)


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_linear_attention_is_that_of_the_formula(seed, tokens):
    query, key, value = (random(1, 1, tokens, 4, seed=seed + k) for k in range(3))
    wanted = slow.linear_attention(*(each[0, 0].double().numpy() for each in (query, key, value)))
    assert np.abs(linear_attention(query, key, value)[0, 0].numpy() - wanted).max() <= 64 * EPS * (
        1 + abs(wanted).max()
    )


def test_layers_are_compared_in_two_groups():
    maps = [random(1, 2, 3, 3, seed=k) for k in range(4)]
    first, second = grouped(maps)
    assert torch.allclose(first, (maps[0] + maps[1]) / 2) and torch.allclose(second, (maps[2] + maps[3]) / 2)


def test_easy_positions_count_a_tenth_and_no_value_changes():
    wanted, rebuilt = random(2, 5, 4, 4), random(2, 5, 4, 4, seed=1).requires_grad_()
    found = damped(wanted, rebuilt, easy=0.75)
    assert torch.allclose(found, rebuilt)
    found.sum().backward()
    share = rebuilt.grad[:, 0]
    assert share.unique().tolist() == pytest.approx([FACTOR, 1.0]) and (share == 1).sum() == 8
    gaps = 1 - torch.cosine_similarity(wanted, rebuilt.detach(), dim=1)
    assert gaps[share == 1].min() >= gaps[share < 1].max()


def test_the_loss_is_one_global_cosine_a_group():
    means, rebuilt = ([random(2, 3, 2, 2, seed=s + k) for k in range(2)] for s in (0, 9))
    wanted = np.mean([
        np.mean([1 - slow.cosine(a[i].flatten().double().numpy(), b[i].flatten().double().numpy()) for i in range(2)])
        for a, b in zip(means, rebuilt)
    ])  # fmt: skip
    assert float(loose_loss(means, rebuilt, 0.5)) == pytest.approx(wanted, abs=1e-6)


def test_the_schedules_rise_and_fall_as_the_paper_says():
    assert easy_share(0, 1000) == 0 and easy_share(50, 1000) == pytest.approx(0.45) and easy_share(999, 1000) == 0.9
    assert rate_share(0, 1000) == 1 / 20 and rate_share(20, 1000) == 1 and rate_share(1000, 1000) == pytest.approx(0.1)


def test_it_trains_and_finds_a_defect(bare, images):
    assert sum(bare.losses[-5:]) < 0.7 * sum(bare.losses[:5])
    is_frozen(bare.network)
    finds_a_defect(bare, images[6:])


def test_it_depends_on_its_seed_alone(images, layers):
    depends_on_its_seed_alone(lambda seed: fit(images, layers, seed, steps=3), images[:2])


def test_the_filter_acts_on_both_sides_of_the_comparison(bare, images):
    light = NuisanceFilter.fit(bare, images[:6], rank={"photometric": 2})
    worn = light.wrap(bare)
    means, rebuilt = bare.features(images[6:]), bare.network(bare.backbone(images[6:]))
    gaps = [1 - torch.cosine_similarity(a, b, dim=1) for a, b in zip(light.project(means), light.project(rebuilt))]
    found = worn.score(images[6:])
    assert not torch.allclose(found.image, bare.score(images[6:]).image)
    assert found.maps.mean().item() == pytest.approx(torch.stack(gaps).mean().item(), rel=0.2)


def test_a_depth_that_does_not_fit_is_told(images, layers):
    with pytest.raises(NfadError, match="depth must be even and the number of the backbone's layers"):
        Dinomaly.fit(images[:4], layers, depth=8, heads=3)


def test_class_tokens_pass_through_the_decoder_and_are_not_compared():
    layers, tokens = [random(2, 6, 3, 3, seed=k) for k in range(2)], [random(2, 6, 1, 1, seed=k) for k in (5, 6)]
    network = Rebuilder(6, 2, 3).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * random(*parameter.shape, seed=parameter.numel())
        given = network(layers, tokens)
        rows = torch.cat([sum(tokens).flatten(2) / 2, sum(layers).flatten(2) / 2], dim=2).transpose(1, 2)
        first = network.blocks[0](network.bottleneck(rows))
        wanted = grouped(
            [each[:, 1:].transpose(1, 2).reshape(2, 6, 3, 3) for each in (network.blocks[1](first), first)]
        )
        for one, other in zip(given, wanted, strict=True):
            assert torch.allclose(one, other, atol=64 * EPS)
        assert not torch.allclose(given[0], network(layers)[0])


def test_a_vit_gives_its_class_tokens_and_another_backbone_is_told(images, layers):
    vit = vit_maps("vit_tiny_patch16_224", (3, 8), "untrained", last=False)
    host = Dinomaly.fit(images[:4], vit, steps=2, depth=2, heads=3, batch=2, class_token=True)
    assert host.score(images).image.shape == (len(images),) and len(host.features(images)) == 2
    with pytest.raises(NfadError, match="class_token needs a backbone of vit_maps"):
        Dinomaly.fit(images[:4], layers, depth=4, heads=3, class_token=True)
