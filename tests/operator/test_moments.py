import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import operator as slow

from nfad.operator import MomentFitter, second_moment

EPS = torch.finfo(torch.float64).eps
sizes = st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 8))  # images, tokens, channels
seeds = st.integers(0, 2**31)


def random(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fitted(*batches):
    fitter = MomentFitter()
    for batch in batches:
        fitter.update(batch)
    return fitter.freeze()


def close(found, wanted, terms, size):
    """Equal but for the rounding of sums of so many terms of that size."""
    wanted = torch.as_tensor(wanted)
    return (found - wanted).abs().max() <= 4 * terms * EPS * size


@given(sizes, seeds)
def test_moments_follow_their_definitions(size, seed):
    tokens = random(*size, seed=seed)
    found, (mean, second, image_second) = fitted(tokens), slow.moments(tokens.numpy())
    terms, peak = tokens[..., 0].numel(), float(tokens.abs().max())
    assert (found.images, found.tokens) == (size[0], size[0] * size[1])
    assert close(found.mean, mean, terms, peak)
    assert close(found.second, second, terms, peak**2)
    assert close(found.image_second, image_second, terms, peak**2)


@given(sizes, seeds)
def test_scatter_splits_into_between_and_within_images(size, seed):
    tokens = random(*size, seed=seed)
    found, flat = fitted(tokens), tokens.reshape(-1, size[2])
    peak, terms = float(tokens.abs().max()) ** 2, len(flat)
    centred, means = flat - flat.mean(dim=0), tokens.mean(dim=1)
    about_own = (tokens - means[:, None]).reshape(-1, size[2])
    between = means - means.mean(dim=0)
    assert close(found.covariance, centred.T @ centred / len(flat), terms, peak)
    assert close(found.within, about_own.T @ about_own / len(flat), terms, peak)
    assert close(found.between, between.T @ between / len(means), terms, peak)
    assert close(found.covariance, found.between + found.within, 1, peak)


@given(st.tuples(st.integers(2, 7), st.integers(1, 5), st.integers(1, 6)), seeds, st.data())
def test_streaming_equals_one_batch_whatever_the_split_and_order(size, seed, data):
    tokens = random(*size, seed=seed)
    order = torch.tensor(data.draw(st.permutations(range(size[0]))))
    cuts = sorted(data.draw(st.sets(st.integers(1, size[0] - 1))))
    batches = torch.tensor_split(tokens[order], cuts)
    whole, streamed = fitted(tokens), fitted(*batches)
    terms, peak = size[0] * size[1], float(tokens.abs().max())
    assert (streamed.images, streamed.tokens) == (whole.images, whole.tokens)
    assert close(streamed.mean, whole.mean, terms, peak)
    assert close(streamed.second, whole.second, terms, peak**2)
    assert close(streamed.image_second, whole.image_second, terms, peak**2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_sums_are_kept_in_double_whatever_comes_in(dtype):
    tokens = random(3, 5, 4, seed=0, dtype=torch.float32).to(dtype)
    assert torch.equal(fitted(tokens).second, fitted(tokens.double()).second)
    assert fitted(tokens).mean.dtype == torch.float64


def test_what_was_frozen_does_not_move_with_later_updates():
    fitter = MomentFitter()
    fitter.update(random(2, 3, 4, seed=1))
    frozen = fitter.freeze()
    before = frozen.mean.clone(), frozen.second.clone(), frozen.image_second.clone()
    fitter.update(random(2, 3, 4, seed=2))
    after = frozen.mean, frozen.second, frozen.image_second
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not torch.equal(fitter.freeze().mean, frozen.mean)


def test_no_tokens_are_told():
    with pytest.raises(ValueError, match="update"):
        MomentFitter().freeze()


@given(st.integers(1, 20), st.integers(1, 8), seeds)
def test_second_moment_leaves_the_mean_in(rows, channels, seed):
    displacements = random(rows, channels, seed=seed) + 3
    found, peak = second_moment(displacements), float(displacements.abs().max()) ** 2
    assert close(found, slow.second_moment(displacements.numpy()), rows, peak)
    mean = displacements.mean(dim=0)
    assert mean @ found @ mean >= (mean @ mean) ** 2 * (1 - 4 * rows * channels * EPS)  # E[⟨d,m⟩²] ≥ ⟨m,m⟩²


def test_second_moment_of_nothing_is_zero():
    assert torch.equal(second_moment(torch.zeros(0, 3)), torch.zeros(3, 3, dtype=torch.float64))


@given(sizes, st.integers(1, 4), seeds)
def test_pooled_moments_are_those_of_one_pass(size, more, seed):
    first, second = random(*size, seed=seed), random(more, *size[1:], seed=seed + 1)
    found, wanted = fitted(first).pooled(fitted(second)), fitted(first, second)
    assert (found.images, found.tokens) == (wanted.images, wanted.tokens)
    peak = float(torch.cat([first, second]).abs().max())
    for name in ("mean", "second", "image_second"):
        assert close(getattr(found, name), getattr(wanted, name), wanted.tokens, max(peak, peak**2))
