import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from references import operator as slow

from nfad.operator import MomentFitter, discrepancy
from nfad.operator.readout import coefficients
from nfad.reference.linear import Linear, compare_both

EPS = torch.finfo(torch.float32).eps  # a fitted reference is stored in float32
seeds = st.integers(0, 2**31)
sizes = st.tuples(st.integers(2, 4), st.integers(5, 12), st.integers(3, 8))
shares = st.floats(0.05, 0.999)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(channels, seed):
    return torch.linalg.qr(random(channels, channels, seed=seed))[0]


def uneven(size, seed):
    """Tokens with a mean and a spectrum that falls, so that the components are well apart."""
    return random(*size, seed=seed) * 0.6 ** torch.arange(size[2]) @ rotation(size[2], seed + 1).T + 1


def moments(tokens):
    fitter = MomentFitter()
    fitter.update(tokens)
    return fitter.freeze()


def spectrum(tokens):
    flat = tokens.reshape(-1, tokens.shape[-1])
    return torch.linalg.eigvalsh(torch.cov(flat.T, correction=0).reshape(len(flat.T), -1)).flip(0).clamp(min=0)


def away_from_a_tie(tokens, variance):
    """The number of components is only defined to rounding where a cumulated share is not `variance` itself."""
    values = spectrum(tokens)
    return bool(((values.cumsum(0) / values.sum() - variance).abs() > 1e-9).all())


def projector(reference):
    return slow.projector(reference.components.double().numpy())


@given(sizes, shares, seeds)
def test_expected_is_the_projection_onto_the_leading_principal_components(size, variance, seed):
    tokens = uneven(size, seed)
    assume(away_from_a_tie(tokens, variance))
    found = Linear.fit(moments(tokens), variance)
    flat = tokens.reshape(-1, size[2]).numpy()
    mean = flat.mean(axis=0)
    directions = np.linalg.svd(flat - mean, full_matrices=False)[2][: found.components.shape[1]].T
    query = random(2, 3, size[2], seed=seed + 2)
    wanted = mean + (query.numpy() - mean) @ directions @ directions.T
    values, count = spectrum(tokens), found.components.shape[1]
    gap = float((values[count - 1] - values[count]) / values[0]) if count < size[2] else 1.0
    double_rounding = 64 * size[2] * torch.finfo(torch.float64).eps * len(flat) / gap
    tolerance = (8 * size[2] * EPS + double_rounding) * float(query.abs().max() + np.abs(mean).max())
    assert np.abs(found(query.float()).double().numpy() - wanted).max() <= tolerance


@given(sizes, shares, seeds)
def test_the_components_hold_the_share_asked_for_and_no_more_than_needed(size, variance, seed):
    tokens = uneven(size, seed)
    assume(away_from_a_tie(tokens, variance))
    count = Linear.fit(moments(tokens), variance).components.shape[1]
    held = spectrum(tokens).cumsum(0) / spectrum(tokens).sum()
    assert held[count - 1] >= variance
    assert count == 1 or held[count - 2] < variance


@given(sizes, shares, st.integers(1, 3), seeds)
def test_fitting_with_columns_removed_is_fitting_filtered_tokens(size, variance, columns, seed):
    columns = min(columns, size[2] - 1)
    tokens, removed = uneven(size, seed), rotation(size[2], seed + 3)[:, :columns]
    filtered = tokens - tokens @ removed @ removed.T
    assume(away_from_a_tie(filtered, variance))
    closed, explicit = Linear.fit(moments(tokens), variance, removed), Linear.fit(moments(filtered), variance)
    assert closed.components.shape == explicit.components.shape
    values, count = spectrum(filtered), closed.components.shape[1]
    gap = float((values[count - 1] - values[count]) / values[0]) if count < size[2] else 1.0
    tolerance = 16 * size[2] * (EPS + tokens[..., 0].numel() * torch.finfo(torch.float64).eps / gap)
    assert (closed.mean - explicit.mean).abs().max() <= tolerance
    assert np.abs(projector(closed) - projector(explicit)).max() <= tolerance
    # Nothing of what was removed can be put back; without `removed` it would be.
    query = random(1, 4, size[2], seed=seed + 4)
    clean = (query - query @ removed @ removed.T).float()
    assert (closed(clean) @ removed.float()).abs().max() <= tolerance * float(clean.abs().max() + 2)
    raw = Linear.fit(moments(tokens), variance)
    if raw.components.shape[1] < size[2]:  # with every component kept, whatever comes is expected as it is
        assert (raw(clean) @ removed.float()).abs().max() > tolerance


@given(sizes, shares, seeds)
def test_what_is_expected_is_expected_of_itself(size, variance, seed):
    found = Linear.fit(moments(uneven(size, seed)), variance)
    once = found(random(2, 3, size[2], seed=seed + 5).float())
    assert (found(once) - once).abs().max() <= 16 * size[2] * EPS * float(once.abs().max() + found.mean.abs().max())


def test_normal_tokens_come_back_and_a_foreign_direction_does_not():
    turn = rotation(8, 0)
    normal = (random(4, 30, 3, seed=1) @ turn[:, :3].T + turn[:, 0]).float()
    found = Linear.fit(moments(normal), 0.999)
    foreign = normal + turn[:, 5].float()
    assert (found(normal) - normal).abs().max() <= 64 * EPS * float(normal.abs().max())
    assert float((foreign - found(foreign)).norm(dim=-1).min()) == pytest.approx(1, abs=64 * EPS * 8)


def test_the_spectrum_is_in_double_though_the_tokens_are_not():
    tokens = (100 + 1e-3 * random(4, 30, 5, seed=0)).float()  # float32 moments would lose it all
    found = Linear.fit(moments(tokens), 0.5)
    values, vectors = torch.linalg.eigh(torch.cov(tokens.double().reshape(-1, 5).T))
    count = found.components.shape[1]
    difference = np.abs(projector(found) - slow.projector(vectors[:, -count:].numpy())).max()
    double = 120 * torch.finfo(torch.float64).eps * 5 * 100**2
    assert difference <= 16 * EPS * 5 + 16 * double / float(values.diff().min())


@pytest.mark.parametrize("level", [0.0, 0.5, 0.1])
@pytest.mark.parametrize("removed", [None, torch.eye(4)[:, :1]])
def test_constant_tokens_are_expected_to_stay_so(level, removed):
    tokens = torch.full((2, 5, 4), level)
    found = Linear.fit(moments(tokens), 0.9, removed)
    if removed is not None:
        tokens = tokens - tokens @ removed @ removed.T
    assert torch.isfinite(found.components).all()
    assert (found(tokens) - tokens).abs().max() <= 8 * EPS


def test_constant_normals_do_not_make_everything_expected():
    found = Linear.fit(moments(torch.full((2, 5, 4), 0.5)), 0.9)
    foreign = torch.tensor([[[1.0, 0, 0, 0]]])
    assert (found(foreign) - foreign).abs().max() > 0.1


@given(st.integers(0, 10_000), st.integers(0, 6))
def test_comparing_in_closed_form_is_comparing_what_is_formed(seed, k):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.nn.functional.normalize(torch.randn(6, 9, 12, generator=generator), dim=-1)
    removed = torch.linalg.qr(torch.randn(12, 6, generator=generator)).Q[:, :k]
    fitter = MomentFitter()
    fitter.update(tokens)
    reference = Linear.fit(fitter.freeze(), 0.8, removed)
    filtered = tokens - (tokens @ removed) @ removed.T
    expected = reference(filtered)
    found = reference.compare(tokens, removed)
    tolerance = 1e3 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(found, discrepancy(filtered, expected), atol=tolerance, rtol=tolerance)


@given(st.integers(0, 10_000), st.integers(0, 6), st.booleans())
def test_both_comparisons_from_one_product_are_those_of_what_is_formed(seed, k, with_filtered):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(6, 9, 12, generator=generator) + 0.3
    basis = torch.linalg.qr(torch.randn(12, 6, generator=generator)).Q[:, :k]
    raw, filtered = Linear.fit(moments(tokens), 0.8), Linear.fit(moments(tokens), 0.8, basis)
    found, other = compare_both(raw, filtered if with_filtered else None, tokens, basis)
    wanted = coefficients(tokens, raw(tokens), basis)
    tolerance = 1e3 * EPS
    for name in ("dot", "teacher", "reference"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), atol=tolerance, rtol=tolerance)
    if with_filtered:
        torch.testing.assert_close(other, filtered.compare(tokens, basis), atol=tolerance, rtol=tolerance)
    else:
        assert other is None
