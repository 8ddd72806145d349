import copy

import numpy as np
import pytest
import torch
from hosts.trained import depends_on_its_seed_alone, finds_a_defect, is_frozen, random
from hypothesis import given
from hypothesis import strategies as st
from references import reconstruction as slow
from torch import nn

from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter, ReContrast, score_images, timm_maps
from nfad.hosts.backbone import embedded_maps
from nfad.hosts.recontrast import Contrast, contrast_loss, global_cosine, hard_positions, hardness
from nfad.hosts.reverse import judge

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


class Stages(nn.Module):
    """Two small stages with the BatchNorm that training and evaluation treat differently."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 12, 4, 4), nn.BatchNorm2d(12), nn.LeakyReLU(0.2))
        self.second = nn.Sequential(nn.Conv2d(12, 20, 2, 2), nn.BatchNorm2d(20), nn.LeakyReLU(0.2))

    def forward(self, images):
        shallow = self.first(images)
        return [shallow, self.second(shallow)]


@pytest.fixture(scope="module")
def stages():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Stages()


@pytest.fixture(scope="module")
def bare(images, stages):
    return ReContrast.fit(images[:6], stages, steps=30, batch=6, depth=1)


@given(seeds, st.floats(-3, 1))
def test_the_loss_is_that_of_the_paper_whatever_is_mined(seed, alpha):
    layers = [random(3, 4, 2, 3, seed=seed + k) for k in range(2)]
    decoded = [random(3, 4, 2, 3, seed=seed + 2 + k) for k in range(2)]
    wanted = slow.contrast_loss(*([maps.double().numpy() for maps in side] for side in (layers, decoded)))
    assert float(contrast_loss(layers, decoded, alpha)) == pytest.approx(wanted, abs=64 * EPS)


@given(seeds, st.floats(-3, 1))
def test_gradient_comes_from_the_hard_positions_alone(seed, alpha):
    layer, decoded = random(3, 4, 2, 3, seed=seed), random(3, 4, 2, 3, seed=seed + 1).requires_grad_()
    contrast_loss([layer], [decoded], alpha).backward()
    wanted = slow.contrast_gradient(layer.double().numpy(), decoded.detach().double().numpy(), alpha)
    assert np.abs(decoded.grad.numpy() - wanted).max() <= 64 * EPS
    assert torch.equal(hard_positions(layer, decoded, alpha), decoded)


def test_all_positions_count_at_first_and_fewer_and_fewer_after():
    layer, decoded = random(8, 4, 6, 6), random(8, 4, 6, 6, seed=1)
    shares = []
    for step in (0, 50, 100, 1000):
        given_ = decoded.clone().requires_grad_()
        global_cosine(layer, hard_positions(layer, given_, hardness(step, 1000))).backward()
        shares.append(float((given_.grad.abs().sum(dim=1) > 0).float().mean()))
    assert [hardness(step, 1000) for step in (0, 50, 100, 1000)] == [-3, -1, 1, 1]
    assert shares[0] == 1 and shares[0] > shares[1] > shares[2] == shares[3] > 0


def test_targets_pass_no_gradient_and_the_encoder_learns_by_what_is_decoded_from_it(images, stages):
    layer, decoded = random(2, 3, 4, 4).requires_grad_(), random(2, 3, 4, 4, seed=1).requires_grad_()
    contrast_loss([layer], [decoded], -3).backward()
    assert layer.grad is None and decoded.grad is not None
    frozen = copy.deepcopy(stages).requires_grad_(False)
    # In evaluation mode: else each half of a batch moves the other's statistics.
    network = Contrast(frozen, [(12, 16, 16), (20, 8, 8)], 1).eval()
    layers, decoded = network(images)
    # Crosswise: the frozen layers are decoded from the adapted encoder, and only they reach its weights.
    weight = network.encoder.first[0].weight
    for chosen, reached in ((slice(2), True), (slice(2, 4), False)):
        network.zero_grad()
        contrast_loss(layers[chosen], decoded[chosen], -3).backward(retain_graph=True)
        assert bool(weight.grad.abs().sum() > 0) is reached
    assert all(parameter.grad is None for parameter in network.frozen.parameters())


def test_training_lowers_the_loss_moves_the_copy_and_spares_the_backbone(bare, images, stages):
    before = {name: tensor.clone() for name, tensor in stages.state_dict().items()}
    was_training = [module.training for module in stages.modules()]
    again = ReContrast.fit(images[:6], stages, steps=2, batch=6, depth=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in stages.state_dict().items())
    assert [module.training for module in stages.modules()] == was_training
    assert np.mean(bare.losses[-5:]) < 0.5 * np.mean(bare.losses[:5])
    frozen, adapted = bare.network.frozen.state_dict(), bare.network.encoder.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.items())
    assert not torch.equal(adapted["first.0.weight"], before["first.0.weight"])
    for host in (bare, again):
        is_frozen(host.network)


def test_batch_statistics_are_followed_only_when_asked_for(images, stages):
    for follows in (True, False):
        host = ReContrast.fit(images, stages, steps=2, batch=4, depth=1, batch_statistics=follows)
        mean = host.network.encoder.first[1].running_mean
        assert torch.equal(mean, stages.first[1].running_mean) is not follows


def test_scores_compare_both_encoders_layers_with_what_is_decoded_crosswise(bare, images):
    network = bare.network
    frozen, adapted = network.frozen(images), network.encoder(images)
    # In evaluation mode an image's embedding does not depend on its batch.
    from_adapted, from_frozen = network.reverse(adapted)[0], network.reverse(frozen)[1]
    wanted = judge([*frozen, *adapted], [*from_adapted, *from_frozen], 64, 4.0)
    found = bare.score(images)
    assert (found.maps - wanted.maps).abs().max() <= 1e4 * EPS
    assert torch.equal(found.image, found.maps.flatten(1).amax(dim=1))
    assert all(torch.equal(a, b) for a, b in zip(bare.features(images), [*frozen, *adapted]))


def test_a_defect_stands_out_of_unseen_normals(bare, images):
    finds_a_defect(bare, images[6:])


def test_the_filter_knows_both_encoders_and_rank_0_is_the_bare_host_to_the_bit(bare, images):
    none, some = (NuisanceFilter.fit(bare, images, rank) for rank in (0, 2))
    assert [basis.shape for basis in some.bases] == [(12, 2), (20, 2), (12, 2), (20, 2)]
    wanted, found, other = (score_images(host, images) for host in (bare, none.wrap(bare), some.wrap(bare)))
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    assert not torch.equal(other.image, wanted.image)
    layers, decoded = bare.network(images)
    both = judge(some.project(layers), some.project(decoded), 64, 4.0)
    assert torch.equal(other.maps, both.maps) and some.wrap(bare).unwrap() is bare


def test_a_fit_depends_on_its_seed_and_leaves_the_callers_random_numbers(images, stages):
    def fit(seed):
        return ReContrast.fit(images, stages, steps=2, batch=4, depth=1, seed=seed)

    depends_on_its_seed_alone(fit, images)


def test_real_weights_come_with_the_installation_and_any_timm_network_will_do(images):
    host = ReContrast.fit(images[:2], steps=1, depth=1)
    features, prior = host.features_and_prior(images[:1])
    assert [maps.shape[1] for maps in features] == [24, 40, 112] * 2 and prior.shape == (1, 64)
    other = ReContrast.fit(images[:2], timm_maps("test_resnet", (1, 2), "untrained"), steps=1, depth=1)
    assert other.features_and_prior(images[:1])[1] is None
    assert other.score(images[:1]).maps.shape == (1, 64, 64)


def test_what_is_wrong_is_said_in_a_sentence(bare, images):
    with pytest.raises(NfadError, match=r"takes a torch module such as embedded_stages\(\) .* got TeacherMaps"):
        ReContrast.fit(images, embedded_maps())
    with pytest.raises(NfadError, match="ReContrast takes square images"):
        bare.score(images[..., :32])
    with pytest.raises(NfadError, match="batch, epochs and steps must be at least 1"):
        ReContrast.fit(images, steps=0)
