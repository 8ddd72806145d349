import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.nearest import Nearest, choose_entries

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def unit(tokens):
    return tokens / tokens.norm(dim=-1, keepdim=True)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(2, 8), st.integers(1, 30), seeds)
def test_nearest_is_the_brute_force_minimum_by_distance_and_by_cosine(images, tokens, channels, entries, seed):
    bank = unit(random(entries, channels, seed=seed))
    query = random(images, tokens, channels, seed=seed + 1)
    found = Nearest(bank, torch.zeros(entries, dtype=torch.int64))(query)
    exact, unit_query = bank.double().numpy(), unit(query.double()).numpy()
    for image in range(images):
        for token in range(tokens):
            distances = np.linalg.norm(exact - unit_query[image, token], axis=1) ** 2
            chosen = found[image, token].double().numpy()
            assert (exact == chosen).all(axis=1).any()  # an entry of the bank itself
            # Float32 may prefer another entry only where the squared distances agree to rounding.
            assert np.sum((chosen - unit_query[image, token]) ** 2) <= distances.min() + 8 * channels * EPS


@given(st.integers(2, 5), st.integers(1, 6), seeds)
def test_an_images_own_tokens_are_left_out(images, tokens, seed):
    query = unit(random(images, tokens, 6, seed=seed))
    bank = Nearest(query.reshape(-1, 6), torch.arange(images).repeat_interleave(tokens))
    assert torch.equal(bank(query), query)  # with its own tokens in the bank it finds itself,
    found = bank(query, torch.arange(images))  # which calibration must not
    for image in range(images):
        others = query[torch.arange(images) != image].reshape(-1, 6)
        for token in range(tokens):
            similarity = others @ query[image, token]
            assert not torch.equal(found[image, token], query[image, token])
            assert float(found[image, token] @ query[image, token]) >= float(similarity.max()) - 16 * EPS


def test_own_may_name_images_without_an_entry_and_the_same_image_twice():
    bank = Nearest(torch.eye(3), torch.tensor([0, 1, 2]))
    query = torch.eye(3)[None].expand(3, 3, 3)
    found = bank(query, torch.tensor([7, 0, 0]))
    assert torch.equal(found[0], torch.eye(3))
    assert torch.equal(found[1, 1:], torch.eye(3)[1:]) and torch.equal(found[1], found[2])
    assert float(found[1, 0] @ torch.eye(3)[0]) == 0


@given(st.integers(3, 8), st.integers(1, 2), seeds)
def test_a_filtered_bank_is_the_bank_projected_and_unit_again(channels, columns, seed):
    removed = torch.linalg.qr(random(channels, columns, seed=seed))[0]
    bank = Nearest(unit(random(10, channels, seed=seed + 1)), torch.arange(10))
    found = Nearest.filtered(bank, removed)
    left = bank.bank.double() - bank.bank.double() @ removed.double() @ removed.double().T
    least = float(left.norm(dim=1).min())
    assert (found.bank.double() - unit(left)).abs().max() <= 8 * channels * EPS / least
    assert (bank.bank @ removed).abs().max() > 16 * channels * EPS  # there before,
    assert (found.bank @ removed).abs().max() <= 16 * channels * EPS / least  # gone after
    assert torch.equal(found.owner, bank.owner)
    untouched = Nearest.filtered(bank, torch.zeros(channels, 0))
    assert (untouched.bank - bank.bank).abs().max() <= 4 * channels * EPS


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 500), seeds)
def test_entries_are_distinct_capped_and_spread_evenly(images, tokens, cap, seed):
    found = choose_entries(images, tokens, cap, seed)
    assert found.shape == (min(cap, images * tokens), 2)
    pairs = [tuple(pair) for pair in found.tolist()]
    assert pairs == sorted(set(pairs))
    assert all(0 <= image < images and 0 <= token < tokens for image, token in pairs)
    share = torch.bincount(found[:, 0], minlength=images)
    assert int(share.max() - share.min()) <= 1


def test_entries_depend_on_the_seed_alone():
    first, again, other = (choose_entries(5, 30, 40, seed) for seed in (54, 54, 55))
    torch.manual_seed(1)
    assert torch.equal(first, again) and torch.equal(first, choose_entries(5, 30, 40, 54))
    assert not torch.equal(first, other)


def test_entries_do_not_favour_a_place_in_the_image():
    chosen = choose_entries(200, 16, 800, 0)[:, 1]
    counts = torch.bincount(chosen, minlength=16)
    # 50 expected at each place, σ = √(200·¼·¾) ≈ 6; six σ is out of the question.
    assert int((counts - 50).abs().max()) < 6 * (200 * 0.25 * 0.75) ** 0.5


def test_an_image_that_owns_the_whole_bank_is_not_handed_its_own_tokens():
    query = unit(random(1, 3, 4, seed=0))
    bank = Nearest(query[0], torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="image"):
        bank(query, torch.tensor([0]))
