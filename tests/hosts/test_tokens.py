"""The hosts that hold a ViT's tokens: AnomalyDINO, SubspaceAD, RAD."""

import numpy as np
import pytest
import torch
from hosts.trained import finds_a_defect, random
from hypothesis import given
from hypothesis import strategies as st
from references import tokens as slow
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts import RAD, AnomalyDINO, NuisanceFilter, SubspaceAD, defect_overlap, score_images, vit_maps
from nfad.hosts.anomalydino import nearest_gap, part_of, rotated
from nfad.hosts.rad import most_similar, placed_gap
from nfad.hosts.subspacead import principal, residual

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def tiny():
    """An untrained small ViT's tokens of two blocks."""
    return vit_maps("vit_tiny_patch16_224", (3, 8), "untrained")


@pytest.fixture(scope="module", params=[AnomalyDINO, SubspaceAD, RAD])
def host(request, images, tiny):
    return request.param.fit(images[:6], tiny)


@given(seeds, st.integers(1, 5), st.integers(1, 7), st.integers(2, 6))
def test_the_nearest_token_is_that_of_the_loop(seed, count, entries, channels):
    tokens, bank = (F.normalize(random(n, channels, seed=seed + n), dim=1) for n in (count, entries))
    wanted = slow.nearest_gaps(tokens.double().numpy(), bank.double().numpy())
    assert np.abs(nearest_gap(tokens, bank).numpy() - wanted.clip(0)).max() <= 32 * EPS


@given(seeds, st.floats(0.3, 0.95))
def test_the_residual_is_what_the_principal_components_leave(seed, share):
    normals, tokens = random(40, 6, seed=seed).double(), random(2, 3, 6, seed=seed + 1).double()
    centred = normals - normals.mean(dim=0)
    components = principal(centred.T @ centred / len(normals), share)
    found = residual(tokens, normals.mean(dim=0), components)
    wanted = slow.residuals(tokens.flatten(0, 1).numpy(), normals.numpy(), share)
    assert np.allclose(found.flatten().numpy(), wanted, atol=1e-9)
    assert torch.allclose(components.T @ components, torch.eye(components.shape[1]).double(), atol=1e-12)


@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))
def test_tokens_are_matched_around_their_place_alone(seed, side, count, radius):
    query = F.normalize(random(3, side, side, seed=seed), dim=0)
    bank = F.normalize(random(count, 3, side, side, seed=seed + 1), dim=1)
    wanted = slow.placed_gap(query.double().numpy(), bank.double().numpy(), radius)
    assert np.abs(placed_gap(query, bank, radius).numpy() - wanted).max() <= 32 * EPS


def test_the_most_similar_images_are_those_of_the_largest_cosine():
    summaries = F.normalize(random(5, 4), dim=1)
    assert most_similar(summaries[2:3], summaries, 3)[0, 0] == 2
    assert most_similar(summaries, summaries, 99).shape == (5, 5)


def test_a_host_finds_a_defect_and_batches_change_nothing(host, images):
    finds_a_defect(host, images[6:], leftmost=0)
    one, many = score_images(host, images[6:], batch=1), score_images(host, images[6:], batch=2)
    assert torch.allclose(one.maps, many.maps, atol=1e-4) and one.maps.shape == (2, 64, 64)


def test_the_filter_acts_on_tokens_and_on_what_is_held(host, images):
    light = NuisanceFilter.fit(host, images[:6], rank={"photometric": 8})
    worn = light.wrap(host)
    assert worn.unwrap() is host
    dark = images[6:] * 0.6
    bare = host.score(dark).image / host.score(images[6:]).image
    filtered = worn.score(dark).image / worn.score(images[6:]).image
    assert filtered.mean() < bare.mean()  # and the dark lamp did raise the scores:
    assert bare.mean() > 1
    assert 0 <= defect_overlap(host, light, images[6:]).share <= 1


def test_a_projection_that_does_nothing_changes_nothing(host, images):
    idle = host.prepare(list).score(images[6:], list)
    assert torch.allclose(idle.maps, host.score(images[6:]).maps, rtol=1e-3, atol=1e-5)


def test_subspacead_finds_its_components_anew_after_a_projection(images, tiny):
    """As if it had been fitted on projected tokens."""
    host = SubspaceAD.fit(images[:6], tiny)
    light = NuisanceFilter.fit(host, images[:6], rank={"photometric": 8})
    fitted = SubspaceAD.fit(images[:6], lambda part: [light.project([sum(tiny(part)) / 2])[0]])
    found, wanted = light.wrap(host).score(images[6:]).maps, fitted.score(images[6:]).maps
    assert torch.allclose(found, wanted, rtol=0.02, atol=float(wanted.max()) * 0.02)


def test_what_makes_no_sense_is_told(images, tiny):
    with pytest.raises(NfadError, match="variance must lie between 0 and 1"):
        SubspaceAD.fit(images, tiny, variance=1.5)
    with pytest.raises(NfadError, match="images must be at least 1"):
        RAD.fit(images, tiny, images=0)
    with pytest.raises(NfadError, match="fitted on a grid of 4² positions; these images give 3²"):
        RAD.fit(images, tiny).score(images[:, :, :48, :48])
    with pytest.raises(NfadError, match="reads the tokens of a ViT; embedded-cnn is none"):
        vit_maps("embedded-cnn", (2,))
    for kind in (AnomalyDINO, SubspaceAD, RAD):
        with pytest.raises(NfadError, match=f"{kind.__name__} takes square images"):
            kind.fit(images[:, :, :32], tiny)


def test_a_quarter_turn_moves_every_pixel_and_a_whole_one_none():
    images = random(2, 3, 7, 7).abs().clamp(max=1)
    assert torch.equal(rotated(images, 0), images) and torch.equal(rotated(images, 360), images)
    # Places are computed to some eps of the grid, between pixels that differ by at most 1.
    assert (rotated(images, 90) - images.rot90(1, (2, 3))).abs().max() <= 7 * 32 * EPS
    assert rotated(images, 45).min() >= 0 and not torch.allclose(rotated(images, 45), images)


def test_rotated_copies_are_held_beside_the_image_itself(images, tiny):
    plain, turned = (AnomalyDINO.fit(images[:2], tiny, batch=1, rotations=n) for n in (1, 4))
    assert len(turned.bank) == 4 * len(plain.bank)
    first = len(plain.bank) // 2
    assert torch.equal(turned.bank[:first], plain.bank[:first])
    seen = images[:2].rot90(1, (2, 3))
    assert (turned.score(seen).image < plain.score(seen).image).all()
    with pytest.raises(NfadError, match="rotations must be at least 1"):
        AnomalyDINO.fit(images[:2], tiny, rotations=0)


def test_the_part_is_where_the_first_component_says_whatever_its_sign():
    maps = 0.1 * random(1, 5, 12, 12)
    direction = F.normalize(random(5, seed=1), dim=0)[:, None, None]
    maps[:, :, 3:9, 3:9] += 60 * direction
    for sign in (1, -1):
        part = part_of(sign * maps).unflatten(1, (12, 12))[0]
        wanted = torch.zeros(12, 12)
        wanted[2:10, 2:10] = 1  # grown by one token
        assert torch.equal(part, wanted)


def test_what_lies_off_the_part_does_not_count(images, tiny):
    host = AnomalyDINO.fit(images[:6], tiny, foreground=True)
    features = host.features(images)
    half = torch.zeros(len(images), features[-1][0, 0].numel())
    half[:, : half.shape[1] // 2] = 1
    judged, whole = host.judge(features, 64, half), host.judge(features, 64)
    assert (judged.maps <= whole.maps).all() and (judged.maps < whole.maps).any()
    assert (judged.image <= whole.image).all()
    assert torch.equal(host.score(images).image, host.judge(features, 64, part_of(features[-1])).image)


def test_components_of_rotated_copies_hold_what_a_turned_part_shows(images, tiny):
    plain, turned = (SubspaceAD.fit(images[:3], tiny, rotations=n) for n in (1, 4))
    seen = images[:3].rot90(1, (2, 3))
    assert turned.score(seen).image.mean() < plain.score(seen).image.mean()
