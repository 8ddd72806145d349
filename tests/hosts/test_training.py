from inspect import signature

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nfad import hosts
from nfad.errors import NfadError
from nfad.hosts.training import FrozenFeatures, batches, steps_of, train


@given(st.integers(2, 20), st.integers(1, 25), st.integers(1, 30), st.integers(0, 99))
def test_every_image_is_seen_as_often_as_the_others_in_full_batches(count, batch, steps, seed):
    found = list(batches(count, batch, steps, seed))
    assert [len(indices) for indices in found] == [min(batch, count)] * steps
    seen = torch.cat(found).bincount(minlength=count)
    assert int(seen.max() - seen.min()) <= 1
    assert all(torch.equal(a, b) for a, b in zip(found, batches(count, batch, steps, seed)))


@given(st.integers(2, 300), st.integers(1, 32), st.integers(1, 20))
def test_epochs_are_turned_into_the_steps_that_show_every_image_so_often(count, batch, epochs):
    steps = steps_of(None, epochs, count, batch)
    shown = steps * min(batch, count)
    assert epochs * count <= shown < epochs * count + min(batch, count)
    assert steps_of(7, epochs, count, batch) == 7


def test_features_are_read_once_while_they_fit_and_are_the_backbones(images, backbone):
    seen = []

    def watched(images):
        seen.append(len(images))
        return backbone(images)

    kept = FrozenFeatures(watched, images, batch=3)
    assert seen == [1, 3, 3, 2] and kept.shapes == [(12, 16, 16), (20, 8, 8)]
    whole = 2 * 8 * (12 * 256 + 20 * 64)
    again = FrozenFeatures(watched, images, batch=3, room=whole - 1)
    chosen, half = torch.tensor([5, 0]), torch.finfo(torch.float16).eps
    for maps, exact, wanted in zip(kept(chosen), again(chosen), backbone(images[chosen])):
        assert torch.equal(exact, wanted)
        assert maps.dtype == torch.float32 and (maps - wanted).abs().max() <= half * wanted.abs().max()
    assert seen == [1, 3, 3, 2, 1, 2]  # without room for all, each step asks the backbone


def test_features_too_large_for_half_precision_are_asked_for_again(images, backbone):
    def large(images):
        return [1e6 * maps for maps in backbone(images)]

    found = FrozenFeatures(large, images, batch=8)(torch.arange(2))
    assert all(torch.equal(a, b) for a, b in zip(found, large(images[:2])))


def test_features_made_in_inference_mode_may_enter_a_graph(images, backbone):
    features = FrozenFeatures(torch.inference_mode()(backbone), images, batch=8, room=0)
    weight = torch.ones(1, requires_grad=True)
    (features(torch.arange(2))[0] * weight).sum().backward()
    assert weight.grad is not None


def quadratic():
    network = nn.Linear(1, 1, bias=False)
    return network, lambda indices, step: (network.weight - 3).square().sum()


def test_it_trains_as_told_and_hands_back_a_frozen_network():
    network, loss_of = quadratic()
    told, optimizer = [], torch.optim.SGD(network.parameters(), 0.25)
    losses = train(network, loss_of, [optimizer], batches(2, 2, 5, 0), 5, lambda *state: told.append(state))
    assert losses[1:] == pytest.approx([loss / 4 for loss in losses[:-1]], rel=1e-4, abs=1e-6)
    assert told == [("training", step, 5) for step in range(1, 6)]
    assert not network.training and not network.weight.requires_grad


def test_gradients_are_clipped_and_the_rate_follows_its_schedule():
    network, loss_of = quadratic()
    network.weight.data.fill_(0)
    optimizer = torch.optim.SGD(network.parameters(), 1.0)
    late = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    losses = train(network, loss_of, [optimizer], batches(2, 2, 4, 0), 4, None, 0.5, late)
    moved = [0.5, 0.5, 0.05]  # a gradient of 6 is cut to 0.5; after two steps the rate is a tenth
    gaps = [3.0]
    for step in moved:
        gaps.append(gaps[-1] - step)
    assert losses == pytest.approx([gap**2 for gap in gaps], rel=1e-4)


def test_what_is_wrong_is_said_in_a_sentence():
    network, loss_of = quadratic()
    optimizer = torch.optim.SGD(network.parameters(), 1e30)
    with pytest.raises(NfadError, match=r"the loss is (inf|nan) at step 2 of 3; lower the learning rate"):
        train(network, loss_of, [optimizer], batches(2, 2, 3, 0), 3)
    with pytest.raises(NfadError, match="at least 2 normal images; got 1"):
        steps_of(5, 1, 1, 4)
    for steps, epochs, batch in ((0, 1, 4), (None, 0, 4), (5, 1, 0)):
        with pytest.raises(NfadError, match="must be at least 1"):
            steps_of(steps, epochs, 8, batch)


@pytest.mark.parametrize(
    "kind", ["PatchCore", "RD4AD", "ReContrast", "UniAD", "MMR", "Dinomaly", "AnomalyDINO", "SubspaceAD", "RAD"]
)
def test_what_hosts_have_in_common_has_one_name_and_one_order(kind):
    names = list(signature(getattr(hosts, kind).fit).parameters)
    common = ("epochs", "steps", "rate", "sigma", "seed", "batch", "progress")
    assert names[:2] == ["normal_images", "backbone"]
    assert [name for name in names if name in common] == [name for name in common if name in names]
    assert {"sigma", "batch", "progress"} <= set(names)
