import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import operator as slow

from nfad.operator import MomentFitter, global_columns, incidence
from nfad.operator.incidence import incidence_from_moments, rotation_invariant_columns

EPS = torch.finfo(torch.float64).eps
seeds = st.integers(0, 2**31)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(channels, seed):
    return torch.linalg.qr(random(channels, channels, seed=seed))[0]


def moments(tokens):
    fitter = MomentFitter()
    fitter.update(tokens)
    return fitter.freeze()


def rounding(basis, tokens):
    """Moments carry rounding relative to the tokens' energy; ρ divides it by a direction's variance."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    least = (flat @ basis).var(dim=0, correction=0).min()
    return float(8 * (len(flat) + len(basis)) * EPS * flat.square().sum(dim=1).mean() / least)


@given(st.integers(2, 5), st.integers(2, 6), st.integers(2, 8), st.integers(1, 8), seeds)
def test_incidence_follows_its_definition(images, tokens, channels, columns, seed):
    columns = min(columns, channels)
    features, basis = random(images, tokens, channels, seed=seed) + 1, rotation(channels, seed + 1)[:, :columns]
    found, tolerance = incidence(basis, features), rounding(basis, features)
    assert np.abs(found.numpy() - slow.incidence(basis.numpy(), features.numpy())).max() <= tolerance
    assert ((found >= 0) & (found <= 1)).all()
    assert torch.equal(found, incidence_from_moments(basis, moments(features)))


@given(st.integers(2, 6), st.integers(2, 8), seeds)
def test_image_wide_directions_score_one_and_local_ones_zero(images, tokens, seed):
    turn = rotation(5, seed)
    image_wide = random(images, 1, 1, seed=seed + 1).expand(images, tokens, 1)
    local = random(images, tokens, 1, seed=seed + 2)
    local = local - local.mean(dim=1, keepdim=True)
    rest = random(images, tokens, 3, seed=seed + 3)
    features = torch.cat([image_wide, local, rest], dim=2) @ turn.T
    found, tolerance = incidence(turn[:, :2], features), rounding(turn[:, :2], features)
    assert abs(float(found[0]) - 1) <= tolerance
    assert abs(float(found[1])) <= tolerance


def test_sign_scale_and_offset_of_a_direction_do_not_matter():
    features, basis = random(4, 6, 5, seed=0), rotation(5, 1)[:, :3]
    wanted, tolerance = incidence(basis, features), rounding(basis, features + 3)
    for changed in (incidence(-basis, features), incidence(basis, 7 * features), incidence(basis, features + 3)):
        assert (changed - wanted).abs().max() <= tolerance


def test_a_direction_in_which_nothing_varies_is_local():
    features = random(4, 6, 5, seed=0)
    features[..., 2] = 0.3
    found = incidence(torch.eye(5, dtype=torch.float64), features)
    assert float(found[2]) == 0
    assert (found[[0, 1, 3, 4]] > 0).all()
    assert torch.equal(incidence(torch.eye(5), torch.ones(2, 3, 5)), torch.zeros(5))


def test_no_column_gives_no_score():
    assert incidence(torch.zeros(5, 0), random(2, 3, 5, seed=0)).shape == (0,)


@given(st.lists(st.lists(st.floats(0, 1, width=32), max_size=6), min_size=1, max_size=4), st.floats(0, 1))
def test_global_columns_lie_above_the_quartile_of_all_blocks_pooled(scores, quantile):
    found = global_columns([torch.tensor(block, dtype=torch.float64) for block in scores], quantile)
    pooled = [score for block in scores for score in block]
    assert [len(mask) for mask in found] == [len(block) for block in scores]
    assert all(mask.dtype == torch.bool for mask in found)
    if pooled:
        floor = np.quantile(pooled, quantile)
        for mask, block in zip(found, scores, strict=True):
            for kept, score in zip(mask.tolist(), block, strict=True):
                # Interpolating between two scores may round either way.
                assert kept == (score > floor) or abs(score - floor) <= 4 * EPS


def test_the_quartile_is_of_the_pool_not_of_each_block():
    low, high = torch.tensor([0.1, 0.2]), torch.tensor([0.7, 0.8, 0.9, 0.95, 0.97, 0.99])
    kept_low, kept_high = global_columns([low, high])
    assert kept_low.tolist() == [False, False]  # both below 0.575, the quartile of the eight
    assert kept_high.all()


def test_a_score_at_the_quartile_itself_is_not_above_it():
    [kept] = global_columns([torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])])
    assert kept.tolist() == [False, False, True, True, True]
    [kept] = global_columns([torch.full((4,), 0.5)])
    assert not kept.any()


@given(st.integers(2, 6), st.floats(0, 0.9), seeds)
def test_rotation_invariant_columns_span_the_most_image_wide_part(columns, quantile, seed):
    features = random(8, 10, 8, seed=seed) + random(8, 1, 8, seed=seed + 1)
    basis, normal = rotation(8, seed + 2)[:, :columns], moments(features)
    cut = round(quantile * columns)
    whole = rotation_invariant_columns(basis, normal)
    assert whole.shape == (8, columns)
    if cut == columns:
        return
    found = whole[:, : columns - cut]
    tolerance = 64 * 8 * EPS
    assert (found.T @ found - torch.eye(found.shape[1])).abs().max() <= tolerance
    assert (found - basis @ (basis.T @ found)).abs().max() <= tolerance * columns
    # Whatever the columns of V: a turned V of the same span gives the same span, and its best direction is at
    # least as image-wide as V's best column.
    turned = rotation_invariant_columns(basis @ rotation(columns, seed + 3), normal)[:, : columns - cut]
    values = generalized_values(basis, normal)
    gap = float(values[cut] - values[cut - 1]) if cut else 1.0
    condition = float(torch.linalg.cond(basis.T @ normal.covariance @ basis))
    assert torch.linalg.matrix_norm(found - turned @ (turned.T @ found), 2) <= tolerance * condition / gap
    assert float(values[-1]) >= float(incidence_from_moments(basis, normal).max()) * (1 - 1e-6)  # the ridge


def generalized_values(basis, normal):
    """Ascending λ of (Vᵀ Between V) a = λ (Vᵀ Total V) a, by whitening."""
    values, vectors = torch.linalg.eigh(basis.T @ normal.covariance @ basis)
    white = basis @ (vectors / values.sqrt())
    return torch.linalg.eigvalsh(white.T @ normal.between @ white)


def test_rotation_invariant_columns_undo_a_mixing_that_hides_the_global_direction():
    turn = rotation(6, 0)
    image_wide = random(12, 1, 1, seed=1).expand(12, 20, 1)
    local = random(12, 20, 1, seed=2)
    local = local - local.mean(dim=1, keepdim=True)
    features = torch.cat([image_wide, local, random(12, 20, 4, seed=3)], dim=2) @ turn.T
    half = torch.tensor([[1.0, -1], [1, 1]], dtype=torch.float64) / 2**0.5
    mixed = turn[:, :2] @ half  # both columns are half global, half local
    scores = incidence(mixed, features)
    assert ((scores > 0.1) & (scores < 0.9)).all()
    found = rotation_invariant_columns(mixed, moments(features))[:, 0]
    cosine = abs(float(found @ turn[:, 0]))
    # Global and local coefficients are uncorrelated by construction, so λ = 1 and 0 with these very directions.
    assert cosine >= 1 - 1e-6
