import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.vision.prior import FLAT, SHARPNESS, foreground_prior, foreground_tokens, foreground_weights, smoothed


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(patches, summaries):
    maps = []
    for tokens, summary in zip(patches, summaries, strict=True):
        cosine = np.zeros(tokens.shape[:2])
        for image, token in np.ndindex(cosine.shape):
            t, s = tokens[image, token], summary[image]
            cosine[image, token] = max(0, t @ s / np.linalg.norm(t) / np.linalg.norm(s))
        low, high = cosine.min(axis=1, keepdims=True), cosine.max(axis=1, keepdims=True)
        maps.append(np.divide(cosine - low, high - low, out=np.zeros_like(cosine), where=high > low))
    return np.mean(maps, axis=0)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(2, 6), st.integers(1, 3), st.integers(0, 2**31))
def test_prior_follows_its_definition_and_lies_in_zero_one(images, tokens, channels, blocks, seed):
    patches = [random(images, tokens, channels, seed=seed + i) for i in range(blocks)]
    summaries = [random(images, channels, seed=seed + 10 + i) for i in range(blocks)]
    found = foreground_prior(patches, summaries)
    ranges = []
    for tokens_, summary in zip(patches, summaries, strict=True):
        cosine = torch.cosine_similarity(tokens_, summary[:, None], dim=-1).clamp(min=0)
        ranges.append(cosine.amax(dim=1) - cosine.amin(dim=1))
    ranges = torch.stack(ranges)
    least = float(ranges[ranges > 0].min()) if (ranges > 0).any() else 1.0
    wanted = plain([p.numpy() for p in patches], [s.numpy() for s in summaries])
    assert np.abs(found.numpy() - wanted).max() <= 32 * channels * torch.finfo(torch.float64).eps / least
    assert ((found >= 0) & (found <= 1)).all()


def test_tokens_like_the_summary_are_foreground_and_opposite_ones_are_not():
    part, ground = torch.tensor([1.0, 0, 0]), torch.tensor([-1.0, 1, 0])
    patches = torch.stack([part, ground, part, ground])[None]
    assert foreground_prior([patches], [part[None]]).tolist() == [[1, 0, 1, 0]]


def test_an_image_without_contrast_has_no_foreground_and_no_nan():
    patches = torch.ones(1, 4, 3)
    assert torch.equal(foreground_prior([patches], [torch.ones(1, 3)]), torch.zeros(1, 4))


@pytest.mark.parametrize("told", [foreground_weights, foreground_tokens])
def test_the_part_is_found_on_a_busy_ground_where_one_half_fails(told):
    generator = torch.Generator().manual_seed(0)
    prior = 0.45 + 0.2 * torch.rand(1, 16, 16, generator=generator)  # a cutting mat: many tokens above one half
    prior[:, 4:12, 4:12] = 0.75 + 0.2 * torch.rand(1, 8, 8, generator=generator)
    part = told(prior.flatten(1)).reshape(16, 16)
    assert (part[5:11, 5:11] > 0.99).all()
    assert all(side.max() < 0.01 for side in (1.0 * part[:3], 1.0 * part[13:], 1.0 * part[:, :3], 1.0 * part[:, 13:]))
    assert (prior >= 0.5).float().mean() > 0.5  # and the fixed threshold takes most of the image


def explained(values, cut):
    """Otsu's: the share of the variance between those above and those below."""
    above = values > cut
    return above.mean() * (1 - above.mean()) * (values[above].mean() - values[~above].mean()) ** 2 / values.var()


def cuts_of(values):
    """Where there are cuts at all, how long that stretch is, and what each of its cuts counts beside the best."""
    levels = np.unique(values)
    lengths = np.diff(levels)
    found = np.array([explained(values, low) for low in levels[:-1]])
    return levels, lengths, np.exp((found - found.max()) / SHARPNESS)


def plain_weights(values):
    levels, lengths, counts = cuts_of(values)
    contrast = min(1, np.ptp(values) / FLAT)
    above = [(lengths * counts)[levels[1:] <= value].sum() / (lengths * counts).sum() for value in values]
    return 1 - contrast * (1 - np.array(above))


def priors(grid, kind, scale, seed):
    """As smooth as they come, in patches, in two halves, or (see below) undecided."""
    noise = torch.rand(grid, grid, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    halves = (torch.arange(grid) >= grid // 2).double().repeat(grid, 1)
    found = {
        "noise": noise,
        "levels": (3 * noise).round() / 3,
        "halves": 0.8 * halves + 0.2 * noise,
        "undecided": undecided(grid).reshape(grid, grid) + 1e-3 * noise,
    }[kind]
    return scale * found.reshape(1, -1)


def undecided(grid):
    """Rises along the diagonal: the tokens of the other one, at its middle, may as well be part as background."""
    along = torch.arange(grid, dtype=torch.float64)
    return ((along + along[:, None]) / (2 * grid - 2)).reshape(1, -1)


PRIORS = st.builds(
    priors, st.integers(3, 12), st.sampled_from(["noise", "levels", "halves", "undecided"]), st.floats(0.02, 1),
    st.integers(0, 2**31),
)  # fmt: skip


@given(PRIORS)
def test_a_token_weighs_the_share_of_cuts_it_is_above(prior):
    smooth = smoothed(prior)[0].numpy().round(12)  # equal ones are equal: else the slow way sees cuts between them
    found = foreground_weights(prior)[0].numpy()
    assert ((found >= 0) & (found <= 1)).all() and found.max() == 1
    np.testing.assert_allclose(found, plain_weights(smooth), atol=1e-12 / SHARPNESS / smooth.std() ** 2)


@given(PRIORS, st.integers(0, 2**31))
def test_weights_move_by_a_bounded_multiple_of_what_the_prior_moves_by(prior, seed):
    """√η is the cosine of the centred prior and a step, so η moves by 4 ε / σ at most and the weights by half of that
    over SHARPNESS; the ends of the stretches move by ε, which is that over the mean length of cuts that count."""
    by = 1e-8
    moved = prior + by * (2 * torch.rand(prior.shape, generator=torch.Generator().manual_seed(seed)) - 1)
    smooth = smoothed(prior)[0].numpy()
    _, lengths, counts = cuts_of(smooth)
    ends = (2 + np.abs(np.diff(counts)).sum()) / (lengths * counts).sum()
    bound = 2 / (smooth.std() * SHARPNESS) + ends + 2 / FLAT
    assert float((foreground_weights(moved) - foreground_weights(prior)).abs().max()) <= 2 * by * bound


def test_where_the_split_is_undecided_a_last_bit_moves_weights_by_little_and_moved_whole_tokens_before():
    middle = undecided(16) == 0.5
    low, high = (undecided(16) + side * 1e-7 * middle for side in (-1, 1))
    hard = foreground_tokens(high).double() - foreground_tokens(low).double()
    assert (hard[middle] == 1).sum() >= 14 and hard[~middle].abs().sum() == 0  # the whole diagonal but for its corners
    soft = foreground_weights(high) - foreground_weights(low)
    assert 0 < float(soft.abs().max()) < 100 * 1e-7
    assert float((foreground_weights(low)[middle] - 0.5).abs().max()) < 0.05  # the corners were evened to one side


@given(st.integers(6, 20), st.integers(0, 2**31))
def test_a_clear_part_is_split_as_by_otsu(grid, seed):
    """Also at its edge, which smoothing makes two tokens wide: the ramp is in the gap between them."""
    noise = torch.rand(grid, grid, generator=torch.Generator().manual_seed(seed))
    part = (torch.arange(grid) >= grid // 2).float().repeat(grid, 1)
    prior = (0.98 * part + 0.02 * noise).reshape(1, -1)
    hard, soft = foreground_tokens(prior), foreground_weights(prior)
    assert torch.equal(hard, part.reshape(1, -1) == 1)
    assert float((soft - hard.float()).abs().max()) < 0.02


def test_an_image_whose_tokens_are_all_alike_is_all_part():
    assert torch.equal(foreground_weights(torch.full((2, 16), 0.3)), torch.ones(2, 16))
