import numpy as np
import pytest
import torch
from hosts.trained import depends_on_its_seed_alone, is_frozen, random
from hypothesis import given
from hypothesis import strategies as st
from parts import part
from references import reconstruction as slow

from nfad.errors import NfadError
from nfad.hosts import RD4AD, NuisanceFilter, score_images
from nfad.hosts.reverse import Reverse, cosine_maps, judge, reconstruction_loss

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def layers_(seed, images=2):
    return [random(images, 3, 4, 4, seed=seed), random(images, 5, 2, 2, seed=seed + 1)]


def exact(layers, image=None):
    return [(maps if image is None else maps[image]).double().numpy() for maps in layers]


@pytest.fixture(scope="module")
def bare(images, backbone):
    return RD4AD.fit(images[:6], backbone, steps=30, batch=3)


@given(seeds)
def test_the_loss_is_that_of_the_equation(seed):
    layers, decoded = layers_(seed), layers_(seed + 2)
    wanted = slow.reverse_loss(exact(layers), exact(decoded))
    assert float(reconstruction_loss(layers, decoded)) == pytest.approx(wanted, abs=64 * EPS)
    assert float(reconstruction_loss(layers, [3 * maps for maps in layers])) == pytest.approx(0, abs=64 * EPS)


@given(seeds)
def test_maps_and_scores_are_those_of_the_paper(seed):
    layers, decoded = layers_(seed), layers_(seed + 2)
    found = judge(layers, decoded, 12, 1.0)
    for image in range(2):
        wanted = slow.map_of(exact(layers, image), exact(decoded, image), 12, 1.0)
        assert np.abs(found.maps[image].numpy() - wanted).max() <= 256 * EPS
        assert float(found.image[image]) == pytest.approx(wanted.max(), abs=256 * EPS)


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(2, 19)), min_size=1, max_size=3), st.integers(1, 2), seeds)
def test_layers_of_any_shape_come_back_in_theirs(shapes, heads, seed):
    layers = [random(2, channels, side, side, seed=seed) for channels, side in shapes]
    network = Reverse([maps.shape[1:] for maps in layers], depth=1, heads=heads).eval()
    found = network(layers)
    assert len(found) == heads
    for decoded in found:
        assert [maps.shape for maps in decoded] == [maps.shape for maps in layers]
    wide, high = shapes[-1]
    assert network.embedding(layers).shape == (2, 2 * wide, -(-high // 2), -(-high // 2))


def test_a_layer_reaches_the_decoder_through_the_embedding_alone(images, backbone):
    layers = backbone(images)
    network = Reverse([maps.shape[1:] for maps in layers]).eval()
    wanted = network.decoder(network.embedding(layers), [maps.shape[2:] for maps in layers])[0]
    assert all(torch.equal(a, b) for a, b in zip(network(layers)[0], wanted))
    for layer in range(2):  # and every layer has a say in it
        changed = [maps + (index == layer) for index, maps in enumerate(layers)]
        assert not torch.equal(network.embedding(changed), network.embedding(layers))


def test_training_lowers_the_loss_and_leaves_a_frozen_network(bare, images):
    assert len(bare.losses) == 30
    assert np.mean(bare.losses[-5:]) < 0.5 * np.mean(bare.losses[:5])
    is_frozen(bare.network)
    layers = bare.features(images[:6])
    assert float(reconstruction_loss(layers, bare.network(layers)[0])) < 0.5 * bare.losses[0]


def test_what_is_compared_is_filtered_on_both_sides(bare, images):
    fitted = NuisanceFilter.fit(bare, images, rank=3)
    [decoded] = bare.network(bare.features(images))
    wanted = judge(fitted.project(bare.features(images)), fitted.project(decoded), 64, 4.0)
    found = fitted.wrap(bare).score(images)
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    for basis, before, after in zip(fitted.bases, decoded, fitted.project(decoded)):
        assert torch.einsum("ck,ncyx->nkyx", basis, before).abs().max() > 0.01
        assert torch.einsum("ck,ncyx->nkyx", basis, after).abs().max() <= 256 * EPS * before.abs().max()


def test_a_gap_inside_the_subspace_is_gone_and_one_outside_stays():
    basis = torch.eye(6)[:, :2]
    filtered = NuisanceFilter((basis,), (("photometric",) * 2,))
    layer = random(1, 6, 4, 4)
    inside = torch.tensor([1.0, -2, 0, 0, 0, 0])[:, None, None]
    outside = torch.tensor([0, 0, 0, 1.0, -1, 0])[:, None, None]
    for gap, gone in ((inside, True), (outside, False)):
        assert cosine_maps([layer], [layer + gap])[0].max() > 0.1
        [left] = cosine_maps(filtered.project([layer]), filtered.project([layer + gap]))
        assert bool(left.abs().max() <= 64 * EPS) is gone


def test_rank_0_is_the_bare_host_to_the_bit_and_wearing_a_filter_changes_no_weight(bare, images):
    before = {name: tensor.clone() for name, tensor in bare.network.state_dict().items()}
    none, some = (NuisanceFilter.fit(bare, images, rank).wrap(bare) for rank in (0, 2))
    wanted, found, other = (score_images(host, images) for host in (bare, none, some))
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    assert not torch.equal(other.image, wanted.image)
    assert some.unwrap() is bare and some.prepared is bare
    assert all(torch.equal(tensor, before[name]) for name, tensor in bare.network.state_dict().items())


def test_a_fit_depends_on_its_seed_and_leaves_the_callers_random_numbers(images, backbone):
    depends_on_its_seed_alone(lambda seed: RD4AD.fit(images, backbone, steps=3, batch=4, seed=seed), images)


def test_a_defect_stands_out_of_unseen_normals_with_the_weights_that_come_with_the_installation():
    told = []
    normal = [part(i, 96) for i in range(22)]
    views = torch.stack([torch.from_numpy(a).permute(2, 0, 1) / 255 for a in [*normal, part(30, 96, defect=True)]])
    host = RD4AD.fit(views[:16], steps=25, batch=8, depth=1, progress=lambda *state: told.append(state))
    assert told == [("reading images", done, 16) for done in (8, 16)] + [("training", k, 25) for k in range(1, 26)]
    features, prior = host.features_and_prior(views[:1])
    assert [maps.shape[1:] for maps in features] == [(24, 24, 24), (40, 12, 12), (112, 6, 6)]
    assert prior.shape == (1, 144)
    found = score_images(host, views[16:])
    assert found.image[-1] > found.image[:-1].max()
    peak = divmod(int(found.maps[-1].argmax()), 96)  # the defect is 16² pixels from the centre on
    assert 40 <= peak[0] <= 72 and 40 <= peak[1] <= 72


def test_what_is_wrong_is_said_in_a_sentence(bare, images, backbone):
    with pytest.raises(NfadError, match="RD4AD takes square images; got 64×32"):
        bare.score(images[..., :32])
    with pytest.raises(NfadError, match="at least 2 normal images; got 1"):
        RD4AD.fit(images[:1], backbone)
    with pytest.raises(NfadError, match="batch, epochs and steps must be at least 1; got 16, 200 and 0"):
        RD4AD.fit(images, backbone, steps=0)
    with pytest.raises(NfadError, match=r"at step \d of 9; lower the learning rate"):
        RD4AD.fit(images, lambda images: [maps * torch.nan for maps in backbone(images)], steps=9)
