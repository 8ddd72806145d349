import numpy as np
import pytest
import torch
from hosts.trained import depends_on_its_seed_alone, finds_a_defect, is_frozen, random
from hypothesis import given
from hypothesis import strategies as st
from references import reconstruction as slow
from references.patchcore import resized

from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter, UniAD, score_images
from nfad.hosts.uniad import Attention, Layer, Reconstruction, jittered, judge, neighbour_mask, on_one_grid

EPS = torch.finfo(torch.float32).eps
SMALL = {"width": 32, "depth": 2, "heads": 4, "neighbours": 3}
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def bare(images, backbone):
    return UniAD.fit(images[:6], backbone, steps=40, batch=4, rate=3e-3, dropout=0.0, **SMALL)


@given(st.integers(2, 7), st.data())
def test_nobody_looks_at_its_neighbours_or_itself(grid, data):
    neighbours = data.draw(st.integers(1, 2 * (grid // 2) - 1))
    found = neighbour_mask(grid, neighbours)
    assert np.array_equal(found.numpy(), slow.sees(grid, neighbours))
    assert found.any(dim=1).all()  # each has somewhere to look
    with pytest.raises(NfadError, match=f"on a grid of {grid}² .* lower it"):
        neighbour_mask(grid, 2 * (grid // 2))


@given(st.integers(1, 3), seeds)
def test_attention_is_that_of_the_formula(heads, seed):
    torch.manual_seed(seed)
    attention = Attention(2 * heads, heads, dropout=0.5).eval()
    query, key, value = (random(1, 9, 2 * heads, seed=seed + k) for k in range(3))
    mask = neighbour_mask(3, 1)
    found = attention(query, key, value, mask)[0]

    def through(linear, tokens):
        return tokens @ linear.weight.detach().double().numpy().T + linear.bias.detach().double().numpy()

    inputs = ((attention.query, query), (attention.key, key), (attention.value, value))
    by_head = [through(linear, tokens[0].double().numpy()) for linear, tokens in inputs]
    wanted = through(attention.out, slow.attention(*by_head, heads, mask.numpy()))
    assert np.abs(found.detach().numpy() - wanted).max() <= 256 * EPS * (1 + np.abs(wanted).max())


def test_a_layer_attends_to_its_memories_in_turn_and_normalises_after_each():
    torch.manual_seed(0)
    layer, mask, places = Layer(8, 2, 0.1, attentions=2).eval(), neighbour_mask(3, 1), random(9, 8, seed=4)
    tokens, first, second = (random(2, 9, 8, seed=seed) for seed in range(3))
    wanted = tokens
    for attention, norm, memory in zip(layer.attentions, layer.norms, (first, second)):
        wanted = norm(wanted + attention(wanted + places, memory + places, memory, mask))
    wanted = layer.norms[2](wanted + layer.network(wanted))
    assert torch.equal(layer(tokens, [first, second], places, mask), wanted)


def test_one_layer_reconstructs_a_position_from_far_ones_alone():
    # One encoder layer's residual path carries a position to itself; what its attention fetches must not.
    torch.manual_seed(0)
    network = Reconstruction(5, 6, 16, 1, 4, 3, 0.0).eval()
    places, tokens = torch.zeros(36, 16), random(1, 36, 16)
    changed = tokens.clone()
    changed[0, 14] += 1
    queries = network.queries[0].expand(1, -1, -1)
    before, after = (network.decoder[0](queries, [t, t], places, network.mask)[0] for t in (tokens, changed))
    moved = (before - after).abs().amax(dim=1) > 0
    assert torch.equal(moved, network.mask[14])  # all but those that have it among their neighbours


def test_positions_are_told_apart_by_row_and_by_column():
    torch.manual_seed(0)
    network = Reconstruction(3, 6, 16, 1, 4, 3, 0.0).eval()
    same = torch.ones(1, 3, 6, 6)
    network.queries = torch.nn.Parameter(torch.zeros_like(network.queries))
    found = network(same)[0].detach()
    assert float(found.std(dim=1).min()) > 0 and float(found.std(dim=2).min()) > 0
    turned = Reconstruction(3, 6, 16, 1, 4, 3, 0.0).eval()
    turned.load_state_dict(network.state_dict())
    turned.requires_grad_(False)
    turned.rows.data.copy_(network.rows.flip(0))
    assert (turned(same)[0] - found.flip(1)).abs().max() <= 1e3 * EPS * found.abs().max()


@given(st.integers(1, 6), st.floats(0, 30), seeds)
def test_jitter_is_noise_in_proportion_to_the_feature(channels, scale, seed):
    maps = random(2, channels, 3, 4, seed=seed)
    torch.manual_seed(seed)
    found = jittered(maps, scale)
    torch.manual_seed(seed)
    noise = torch.randn_like(maps)
    for image, y, x in np.ndindex(2, 3, 4):
        deviation = scale * float(maps[image, :, y, x].double().norm()) / channels
        wanted = maps[image, :, y, x] + deviation * noise[image, :, y, x]
        assert (found[image, :, y, x] - wanted).abs().max() <= 32 * EPS * (1 + deviation) * 10


def test_layers_meet_on_the_deepest_ones_grid():
    layers = [random(1, 2, 12, 12), random(1, 3, 4, 4, seed=1)]
    shallow, deep = on_one_grid(layers)
    wanted = resized(layers[0][0].double().numpy(), 4, 4)
    assert torch.equal(deep, layers[1])
    assert np.abs(shallow[0].numpy() - wanted).max() <= 64 * EPS


@given(seeds)
def test_maps_and_scores_are_those_of_the_paper(seed):
    layers = [random(1, channels, 4, 4, seed=seed + channels) for channels in (2, 3)]
    rebuilt = [random(1, channels, 4, 4, seed=seed + 9 + channels) for channels in (2, 3)]
    found = judge(layers, rebuilt, 20, 0.0)
    gap = torch.cat(layers, dim=1).double().numpy()[0] - torch.cat(rebuilt, dim=1).double().numpy()[0]
    wanted = resized(np.sqrt((gap**2).sum(axis=0))[None], 20, 20)[0]
    assert np.abs(found.maps[0].numpy() - wanted).max() <= 256 * EPS * wanted.max()
    assert float(found.image) == pytest.approx(slow.pooled_maximum(wanted, 16), rel=256 * EPS)


def test_training_lowers_the_loss_and_a_defect_then_stands_out(bare, images):
    assert np.mean(bare.losses[-5:]) < 0.5 * np.mean(bare.losses[:5])
    is_frozen(bare.network)
    finds_a_defect(bare, images[6:])


def test_both_the_features_and_their_reconstruction_are_filtered(bare, images):
    none, some = (NuisanceFilter.fit(bare, images, rank) for rank in (0, 2))
    wanted, found, other = (score_images(host, images) for host in (bare, none.wrap(bare), some.wrap(bare)))
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    # A projection is linear: filtering both is filtering their difference.
    layers = bare.features(images)
    rebuilt = bare.network(torch.cat(layers, dim=1)).split([12, 20], dim=1)
    gap = some.project([a - b for a, b in zip(layers, rebuilt)])
    wanted = judge(gap, [torch.zeros_like(maps) for maps in gap], 64, 0.0)
    assert (other.maps - wanted.maps).abs().max() <= 256 * EPS * float(wanted.maps.max() + layers[1].abs().max())
    assert some.wrap(bare).unwrap() is bare and bare.unit is False


def test_a_fit_depends_on_its_seed_and_leaves_the_callers_random_numbers(images, backbone):
    depends_on_its_seed_alone(lambda seed: UniAD.fit(images, backbone, steps=3, batch=4, seed=seed, **SMALL), images)


def test_real_weights_come_with_the_installation(images):
    large = torch.nn.functional.interpolate(images[:2], (128, 128))
    host = UniAD.fit(large, steps=1, **SMALL)
    features, prior = host.features_and_prior(large[:1])
    assert [maps.shape[1:] for maps in features] == [(channels, 8, 8) for channels in (16, 24, 40, 112)]
    assert prior.shape == (1, 256)
    assert host.score(large).maps.shape == (2, 128, 128)


def test_what_is_wrong_is_said_in_a_sentence(bare, images, backbone):
    with pytest.raises(NfadError, match="UniAD takes square images"):
        bare.features(images[..., :32])
    with pytest.raises(NfadError, match="fitted on a grid of 8² positions; these images give 4²"):
        bare.score(images[..., :32, :32])
    with pytest.raises(NfadError, match="width must be a multiple of twice the heads; got 20 for 8 heads"):
        UniAD.fit(images, backbone, width=20)
    with pytest.raises(NfadError, match=r"on a grid of 8² \(at most 7\); got 9"):
        UniAD.fit(images, backbone, neighbours=9)
