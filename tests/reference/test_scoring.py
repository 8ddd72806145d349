"""Properties of both orders that no single part can promise."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from nfad.operator import MomentFitter, ReadOut, discrepancy
from nfad.reference.linear import Linear
from nfad.reference.scoring import Operator, Scorer, calibrate, where_shown, with_undone, without_common_mode

GENERATOR = torch.Generator().manual_seed(0)
CHANNELS = 24


def unit(*shape):
    return F.normalize(torch.randn(*shape, generator=GENERATOR), dim=-1)


def build():
    tokens = [unit(20, 16, CHANNELS) for _ in range(2)]
    bases = tuple(torch.linalg.qr(torch.randn(CHANNELS, 6, generator=GENERATOR)).Q for _ in tokens)
    families = (("photometric",) * 4 + ("sensor",) * 2,) * 2
    operator = Operator(bases, families, (torch.arange(6) < 4,) * 2)
    raw, filtered = [], []
    for block, basis in zip(tokens, bases):
        fitter = MomentFitter()
        fitter.update(block)
        raw.append(Linear.fit(fitter.freeze(), 0.7))
        filtered.append(Linear.fit(fitter.freeze(), 0.7, basis))
    return Scorer(operator, tuple(raw), tuple(filtered)), tokens


def slow_map(tokens, references, removed):
    """Project, expect, compare, block by block."""
    maps = []
    for t, reference, columns in zip(tokens, references, removed):
        project = torch.eye(CHANNELS) - columns @ columns.T
        maps.append(discrepancy(t @ project, reference(t @ project)))
    return torch.stack(maps).mean(dim=0)


def test_filter_then_fit_is_the_slow_way():
    scorer, tokens = build()
    out = scorer(tokens)
    bases = scorer.operator.bases
    torch.testing.assert_close(out.control, slow_map(tokens, scorer.reference, [b[:, :0] for b in bases]))
    torch.testing.assert_close(out.detection, slow_map(tokens, scorer.filtered, bases), atol=1e-5, rtol=1e-4)
    energy = inside = 0
    for t, reference, basis in zip(tokens, scorer.reference, bases):
        residual = t - F.normalize(reference(t), dim=-1)
        energy = energy + residual.square().sum(dim=(1, 2))
        inside = inside + (residual @ basis).square().sum(dim=(1, 2))
    torch.testing.assert_close(out.nuisance_fraction, inside / energy, atol=1e-5, rtol=1e-4)
    total = sum(out.nuisance_by_family.values())
    torch.testing.assert_close(total, out.nuisance_fraction)
    assert (out.nuisance_fraction > 0).all() and (out.nuisance_fraction < 1).all()


def test_moving_tokens_inside_v_moves_the_control_but_not_detection():
    scorer, tokens = build()
    moved = [t + 0.5 * torch.randn(20, 16, 6, generator=GENERATOR) @ b.T for t, b in zip(tokens, scorer.operator.bases)]
    before, after = scorer(tokens), scorer(moved)
    torch.testing.assert_close(before.detection, after.detection, atol=1e-5, rtol=1e-3)
    assert (before.control - after.control).abs().mean() > 0.01


@pytest.mark.parametrize(("tau", "open_"), [(1e9, False), (1e-9, True)])
def test_localization_is_the_control_at_gate_0_and_the_papers_projection_at_gate_1(tau, open_):
    scorer, tokens = build()
    scorer = dataclasses.replace(scorer, tau=tau)
    maps = []
    for t, reference, basis, keep in zip(tokens, scorer.reference, scorer.operator.bases, scorer.operator.keep):
        removed = basis[:, keep] if open_ else basis[:, :0]
        project = torch.eye(CHANNELS) - removed @ removed.T
        maps.append(discrepancy(t @ project, reference(t) @ project))
    torch.testing.assert_close(scorer(tokens).localization, torch.stack(maps).mean(dim=0), atol=1e-5, rtol=1e-4)


def test_both_orders_share_everything_but_detection():
    scorer, tokens = build()
    ours, papers = scorer(tokens), dataclasses.replace(scorer, filtered=None)(tokens)
    for name in ("control", "localization", "gate", "nuisance_fraction"):
        assert torch.equal(getattr(ours, name), getattr(papers, name))
    assert not torch.allclose(ours.detection, papers.detection)


def test_without_image_wide_columns_there_is_neither_a_gate_nor_a_map_of_its_own():
    scorer, tokens = build()
    operator = dataclasses.replace(scorer.operator, keep=None)
    ungated, gated = dataclasses.replace(scorer, operator=operator)(tokens), scorer(tokens)
    assert ungated.localization is None and ungated.gate is None
    for name in ("control", "detection", "participation", "nuisance_fraction"):
        assert torch.equal(getattr(ungated, name), getattr(gated, name))
    assert (dataclasses.replace(scorer, tau=1e9)(tokens).gate < 1).all()


def test_the_common_mode_is_taken_from_filtered_maps_only():
    plain = build()[0]
    tokens = [unit(3, 16, CHANNELS) for _ in range(2)]
    centred = dataclasses.replace(plain, common_mode=True)
    a, b = plain(tokens), centred(tokens)
    assert torch.equal(a.control, b.control)
    for name in ("detection", "localization"):
        torch.testing.assert_close(without_common_mode(getattr(a, name)), getattr(b, name))


def test_a_lift_of_the_whole_map_is_common_mode_and_a_spike_is_not():
    level = torch.rand(5, 16, generator=GENERATOR)
    lifted = level + torch.arange(5.0)[:, None]
    torch.testing.assert_close(without_common_mode(lifted), without_common_mode(level))
    level[:, 3] += 10
    assert (without_common_mode(level)[:, 3] > 9).all()


def test_calibration_takes_the_median_normals_participation():
    scorer, tokens = build()
    calibrated = calibrate(scorer, lambda: [(tokens, None, None, None)])
    assert calibrated.tau == pytest.approx(float(scorer(tokens).participation.quantile(0.5)))


def test_what_is_not_shown_is_as_ordinary_as_the_median_token():
    found, shown = torch.tensor([[5.0, 1.0, 2.0, 3.0, 9.0]]), torch.tensor([[0.0, 1.0, 1.0, 1.0, 0.5]])
    before = found.clone()
    torch.testing.assert_close(where_shown(found, shown), torch.tensor([[3.0, 1.0, 2.0, 3.0, 6.0]]))
    assert torch.equal(found, before) and where_shown(found, None) is found


def test_of_a_centred_map_the_median_token_is_0_to_the_last_bit():
    found = without_common_mode(torch.randn(4, 65, generator=GENERATOR))
    shown = torch.rand(4, 65, generator=GENERATOR)
    assert torch.equal(where_shown(found, shown, centred=True), where_shown(found, shown))
    assert not torch.equal(where_shown(found + 1, shown, centred=True), where_shown(found + 1, shown))


@given(st.integers(0, 2**16), st.floats(0, 0.5), st.floats(0, 0.5))
def test_what_developing_undid_comes_first_and_shares_stay_shares(seed, noise, light):
    shares = torch.rand(3, 2, generator=torch.Generator().manual_seed(seed)) / 2
    families = dict(zip(("photometric", "background"), shares.T))
    empty = torch.zeros(3, 1)
    out = ReadOut(empty, empty, None, empty[:, 0], None, shares.sum(dim=1), families)
    undone = torch.tensor([[noise, light]]).expand(3, 2)
    first = with_undone(out, undone)
    left = 1 - noise - light
    torch.testing.assert_close(first.nuisance_by_family["photometric"], left * families["photometric"] + light)
    torch.testing.assert_close(first.nuisance_by_family["background"], left * families["background"])
    torch.testing.assert_close(1 - first.nuisance_fraction, left * (1 - out.nuisance_fraction))
    same = with_undone(out, torch.zeros(3, 2))
    torch.testing.assert_close(same.nuisance_fraction, out.nuisance_fraction)
