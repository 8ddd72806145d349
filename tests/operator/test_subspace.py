import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import operator as slow

from nfad.operator import MomentFitter, nuisance_basis, nuisance_subspace, second_moment
from nfad.operator.subspace import (
    columns_for,
    generalized_eigen_basis,
    join,
    leading_directions,
    ratio_selection_basis,
    within_image_scatter_basis,
)

EPS = torch.finfo(torch.float64).eps
seeds = st.integers(0, 2**31)
channels_ = st.integers(3, 14)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(channels, seed):
    return torch.linalg.qr(random(channels, channels, seed=seed))[0]


def moments(tokens):
    fitter = MomentFitter()
    fitter.update(tokens)
    return fitter.freeze()


def is_orthonormal(basis, eps=EPS):
    # "Twice is enough" leaves each inner product within a few roundings of a sum over the channels.
    gram = basis.double().T @ basis.double()
    return (gram - torch.eye(basis.shape[1])).abs().max() <= 8 * len(basis) * eps if basis.shape[1] else True


def outside(columns, basis):
    """Spectral norm of what of `columns` is not in span `basis` (orthonormal): the sine of the largest angle."""
    return float(torch.linalg.matrix_norm(columns - basis @ (basis.T @ columns), 2)) if columns.shape[1] else 0.0


@given(channels_, st.integers(1, 20), st.integers(1, 20), st.integers(0, 14), seeds)
def test_basis_is_orthonormal_finite_and_no_wider_than_asked(channels, rows, more, rank, seed):
    rank = min(rank, channels)
    displacements = {"a": random(rows, channels, seed=seed), "b": random(more, channels, seed=seed + 1)}
    basis = nuisance_basis(displacements, rank)
    assert basis.shape[0] == channels
    assert basis.shape[1] <= min(2 * rank, channels, rows + more)
    assert torch.isfinite(basis).all()
    assert is_orthonormal(basis)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_basis_has_the_displacements_dtype(dtype):
    basis = nuisance_basis({"a": random(20, 6, seed=0).to(dtype)}, 2)
    assert basis.dtype == dtype
    assert is_orthonormal(basis, torch.finfo(dtype).eps)


@given(channels_, st.data(), seeds)
def test_a_planted_subspace_is_recovered_exactly_without_noise(channels, data, seed):
    rank = data.draw(st.integers(1, channels - 1))
    planted = rotation(channels, seed)[:, :rank]
    coefficients = random(4 * rank + 8, rank, seed=seed + 1)
    basis = nuisance_basis({"light": coefficients @ planted.T}, rank)
    values = torch.linalg.eigvalsh(coefficients.T @ coefficients / len(coefficients))
    assert basis.shape == (channels, rank)
    # Davis–Kahan: rounding of the moment, over the gap to the zero eigenvalues.
    tolerance = 16 * channels * len(coefficients) * EPS * float(values[-1] / values[0])
    assert outside(planted, basis) <= tolerance


@given(channels_, st.data(), seeds)
def test_a_planted_subspace_is_recovered_within_davis_kahan_under_noise(channels, data, seed):
    rank = data.draw(st.integers(1, channels - 1))
    planted = rotation(channels, seed)[:, :rank]
    clean = random(60, rank, seed=seed + 1) @ planted.T
    noisy = clean + 0.05 * random(60, channels, seed=seed + 2)
    basis = nuisance_basis({"light": noisy}, rank)
    error = torch.linalg.matrix_norm(second_moment(noisy) - second_moment(clean), 2)
    gap = torch.linalg.eigvalsh(second_moment(clean))[-rank]
    assert outside(planted, basis) <= 2 * float(error / gap) + 8 * channels * EPS


def test_the_nuisance_was_there_before_and_is_gone_after():
    planted, rest = rotation(12, 3).split([3, 9], dim=1)
    moved = random(50, 3, seed=1) @ planted.T
    content = random(50, 9, seed=2) @ rest.T
    basis = nuisance_basis({"light": moved}, 3)

    def remove(rows):
        return rows - rows @ basis @ basis.T

    tolerance = 64 * 12 * EPS
    assert moved.norm() > 1
    assert remove(moved).norm() <= tolerance * moved.norm()
    assert (remove(content) - content).norm() <= tolerance * content.norm()
    assert (remove(remove(content + moved)) - remove(content + moved)).norm() <= tolerance * moved.norm()


@given(channels_, st.integers(1, 4), st.integers(1, 14), seeds)
def test_rank_deficient_displacements_give_fewer_columns_and_no_nan(channels, true_rank, asked, seed):
    true_rank, asked = min(true_rank, channels), min(asked, channels)
    rows = random(30, true_rank, seed=seed) @ rotation(channels, seed + 1)[:, :true_rank].T
    basis = nuisance_basis({"a": rows}, asked)
    assert basis.shape == (channels, min(true_rank, asked))
    assert torch.isfinite(basis).all()


@given(st.integers(6, 14), seeds)
def test_the_first_family_is_contained_exactly_and_the_second_adds_to_it(channels, seed):
    first, second = random(40, channels, seed=seed), random(40, channels, seed=seed + 1)
    found = nuisance_subspace({"a": second_moment(first), "b": second_moment(second)}, 3)
    assert found.families == ("a",) * 3 + ("b",) * 3
    alone_a, alone_b = leading_directions(second_moment(first), 3), leading_directions(second_moment(second), 3)
    tolerance = 8 * channels * EPS
    assert outside(alone_a, found.basis[:, :3]) <= tolerance
    # The second family's columns lose what the first had: only the whole holds it.
    overlap = torch.linalg.matrix_norm(alone_a.T @ alone_b, 2)
    # Whether it divides by a small remainder: a nearly contained direction is resolved that much less well.
    assert outside(alone_b, found.basis) <= tolerance / float((1 - overlap**2).clamp(min=EPS).sqrt())
    assert outside(alone_b, found.basis[:, 3:]) >= float(overlap) * (1 - 1e-6)
    swapped = nuisance_subspace({"b": second_moment(second), "a": second_moment(first)}, 3)
    assert swapped.families == ("b",) * 3 + ("a",) * 3


@given(channels_, seeds)
def test_a_duplicated_family_adds_no_column(channels, seed):
    moment = second_moment(random(30, channels, seed=seed))
    twice = nuisance_subspace({"a": moment, "again": moment}, 2)
    assert twice.families == ("a", "a")
    assert torch.equal(twice.basis, nuisance_subspace({"a": moment}, 2).basis)


def test_no_column_beyond_the_channels():
    found = nuisance_subspace({name: second_moment(random(30, 4, seed=i)) for i, name in enumerate("abc")}, 3)
    assert found.basis.shape == (4, 4)
    assert found.families == ("a", "a", "a", "b")


@pytest.mark.parametrize("rows", [torch.zeros(5, 4), torch.zeros(0, 4)])
def test_displacements_that_do_not_move_give_no_column(rows):
    found = nuisance_basis({"a": rows, "b": rows}, 2)
    assert found.shape == (4, 0)
    moving = nuisance_subspace({"a": second_moment(rows), "b": second_moment(torch.eye(4))}, 2)
    assert moving.families == ("b", "b")


def test_ranks_are_columns_shares_or_named_per_family():
    moment = {"a": second_moment(random(30, 8, seed=0)), "b": second_moment(random(30, 8, seed=1))}
    for rank, wanted in [
        (3, ("a",) * 3 + ("b",) * 3),
        (0.25, ("a",) * 2 + ("b",) * 2),
        ({"a": 0, "b": 3}, ("b",) * 3),
        ({"a": 0.5, "b": 1}, ("a",) * 4 + ("b",)),
        (0, ()),
        (0.0, ()),
        (8, ("a",) * 8),
    ]:
        assert nuisance_subspace(moment, rank).families == wanted
    assert columns_for(1, "a", 8) == 1  # one column, not the whole


@pytest.mark.parametrize("rank", [-1, -0.5, 9, {"a": 9}])
def test_an_impossible_rank_is_told(rank):
    with pytest.raises(ValueError, match=r"rank of family 'a' must lie in 0\.\.8"):
        nuisance_subspace({"a": torch.eye(8)}, rank)


@given(channels_, st.integers(1, 14), seeds)
def test_leading_directions_are_the_leading_eigenvectors(channels, rank, seed):
    rank = min(rank, channels)
    moment = second_moment(random(3 * channels, channels, seed=seed))
    found, values = leading_directions(moment, rank), torch.linalg.eigvalsh(moment).flip(0)
    quotients = ((moment @ found) * found).sum(dim=0)
    assert (quotients - values[:rank]).abs().max() <= 8 * channels * EPS * values[0]
    if rank < channels:
        difference = slow.projector(found.numpy()) - slow.projector(slow.leading(moment.numpy(), rank))
        gap = float(values[rank - 1] - values[rank])
        assert np.linalg.norm(difference, 2) <= 16 * channels * EPS * float(values[0]) / gap


def test_signs_are_fixed_so_that_equal_data_give_equal_files():
    found = leading_directions(second_moment(random(40, 9, seed=0)), 5)
    peaks = found.gather(0, found.abs().argmax(dim=0, keepdim=True))
    assert (peaks > 0).all()


@given(st.integers(3, 30), seeds)
def test_join_drops_dependent_columns_and_spans_the_rest(channels, seed):
    independent = random(channels, 2, seed=seed)
    mixed = independent @ random(2, 3, seed=seed + 1)
    found = join({"a": independent, "b": mixed})
    assert found.families == ("a", "a")
    assert is_orthonormal(found.basis)
    condition = float(torch.linalg.cond(independent))
    assert outside(mixed / mixed.norm(), found.basis) <= 16 * channels * EPS * condition


@given(st.integers(3, 30), st.floats(-6, -1), seeds)
def test_nearly_parallel_columns_come_out_orthonormal_to_rounding(channels, exponent, seed):
    # One pass of Gram–Schmidt would leave ε/10^exponent between them: "twice is enough".
    column, other = random(channels, 1, seed=seed), random(channels, 1, seed=seed + 1)
    found = join({"a": column, "b": column + 10**exponent * other})
    assert found.families == ("a", "b")
    assert is_orthonormal(found.basis)


# The supplement's other constructions


def test_scatter_basis_is_the_top_variance_about_each_images_mean():
    turn = rotation(6, 0)
    # Images differ mostly along direction 0, tokens within an image mostly along 1, then 2.
    spread = torch.tensor([0.1, 5, 3, 0.1, 0.1, 0.1])
    tokens = (20 * random(8, 1, 6, seed=1) * torch.eye(6)[0] + spread * random(8, 30, 6, seed=2)) @ turn.T
    found = within_image_scatter_basis(moments(tokens), 2)
    assert found.families == ("scatter", "scatter")
    own = (tokens - tokens.mean(dim=1, keepdim=True)).reshape(-1, 6)
    wanted = slow.leading(slow.second_moment(own.numpy()), 2)
    # Rounding of moments as large as the images' differences, over the gap of the scatter.
    tolerance = 64 * 6 * EPS * float(moments(tokens).second.trace())
    assert outside(torch.from_numpy(wanted.copy()), found.basis) <= tolerance
    assert outside(turn[:, 1:3], found.basis) < 0.1  # planted, up to sampling
    assert outside(turn[:, :1], found.basis) > 0.9


def test_generalized_basis_prefers_what_moves_relative_to_normal_scatter():
    turn = rotation(5, 4)
    scales = torch.tensor([10.0, 1, 1, 1, 0.1])
    normal = moments((random(6, 50, 5, seed=1) * scales) @ turn.T)
    # Direction 0 moves most (4 against a scatter of 100), direction 1 most for its scatter (1 against 1).
    nuisance = turn @ torch.diag(torch.tensor([4.0, 1, 0, 0, 0], dtype=torch.float64)) @ turn.T
    found = generalized_eigen_basis(nuisance, normal, 1)
    mir = nuisance_subspace({"mir": nuisance}, 1)
    assert found.families == ("generalized",)

    def ratio(v):
        return float(v @ nuisance @ v / (v @ normal.covariance @ v))

    best, plain = ratio(found.basis[:, 0]), ratio(mir.basis[:, 0])
    assert abs(mir.basis[:, 0] @ turn[:, 0]) > 1 - 1e-9
    assert best > 5 * plain
    assert best >= max(ratio(v) for v in random(200, 5, seed=2)) - 1e-5  # but for the ridge of 1e-6


@given(st.integers(3, 10), seeds)
def test_generalized_basis_spans_the_top_of_the_rayleigh_quotient(channels, seed):
    normal = moments(random(4, 4 * channels, channels, seed=seed))
    nuisance = second_moment(random(3 * channels, channels, seed=seed + 1))
    rank = channels // 2
    found = generalized_eigen_basis(nuisance, normal, rank).basis
    ridge = 1e-6 * normal.covariance.diagonal().mean() * torch.eye(channels)
    root = torch.linalg.cholesky(normal.covariance + ridge)
    half = torch.linalg.solve_triangular(root, nuisance, upper=False)
    white = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((white + white.T) / 2)
    wanted = torch.linalg.solve_triangular(root.T, vectors[:, -rank:], upper=True)
    gap = float((values[-rank] - values[-rank - 1]) / values[-1])
    tolerance = 64 * channels * EPS * float(torch.linalg.cond(root)) ** 2 / gap
    assert is_orthonormal(found)
    assert outside(torch.linalg.qr(wanted)[0], found) <= tolerance
    # Its first column attains the largest quotient.
    first = found[:, 0]
    quotient = first @ nuisance @ first / (first @ (normal.covariance + ridge) @ first)
    assert abs(float(quotient / values[-1]) - 1) <= tolerance


@given(st.integers(3, 10), seeds)
def test_ratio_basis_picks_normal_directions_by_their_ratio(channels, seed):
    normal = moments(random(4, 4 * channels, channels, seed=seed) * torch.arange(1, channels + 1))
    nuisance = second_moment(random(3 * channels, channels, seed=seed + 1))
    rank = channels // 2
    found = ratio_selection_basis(nuisance, normal, rank)
    assert found.families == ("ratio",) * rank
    directions = slow.leading(normal.covariance.numpy(), channels)
    ratios = [d @ nuisance.numpy() @ d / (d @ normal.covariance.numpy() @ d) for d in directions.T]
    order = np.argsort(ratios)[::-1]
    wanted = torch.from_numpy(directions[:, order[:rank]].copy())
    values = torch.linalg.eigvalsh(normal.covariance)
    gap = float(values.diff().min() / values[-1])
    assert outside(wanted, found.basis) <= 64 * channels * EPS / gap
