"""Properties of both orders that no single part can promise."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from nfad.operator import MomentFitter, discrepancy
from nfad.reference.linear import Linear
from nfad.scoring import VIEWS, Calibration, FilterThenFit, Operator, calibrate, on_foreground, without_common_mode

GENERATOR = torch.Generator().manual_seed(0)
CHANNELS = 24


def unit(*shape):
    return F.normalize(torch.randn(*shape, generator=GENERATOR), dim=-1)


def build(common_mode=False):
    tokens = [unit(20, 16, CHANNELS) for _ in range(2)]
    bases = tuple(torch.linalg.qr(torch.randn(CHANNELS, 6, generator=GENERATOR)).Q for _ in tokens)
    families = (("photometric",) * 4 + ("sensor",) * 2,) * 2
    operator = Operator(bases, families, (torch.arange(6) < 4,) * 2)
    references = {}
    for view in VIEWS:
        blocks = []
        for index, block in enumerate(tokens):
            fitter = MomentFitter()
            fitter.update(block)
            blocks.append(Linear.fit(fitter.freeze(), 0.7, operator.removed(view, index)))
        references[view] = tuple(blocks)
    return FilterThenFit(operator, references, common_mode=common_mode), tokens


def view_map(scorer, tokens, view):
    """The slow way: project, expect, compare, block by block."""
    maps = []
    for index, t in enumerate(tokens):
        removed = scorer.operator.removed(view, index)
        project = torch.eye(CHANNELS) - removed @ removed.T
        maps.append(discrepancy(t @ project, scorer.references[view][index](t @ project)))
    return torch.stack(maps).mean(dim=0)


def test_filter_then_fit_is_the_slow_way():
    scorer, tokens = build()
    out = scorer(tokens)
    torch.testing.assert_close(out.control, view_map(scorer, tokens, "control"))
    torch.testing.assert_close(out.detection, view_map(scorer, tokens, "detection"), atol=1e-5, rtol=1e-4)
    energy = inside = 0
    for index, t in enumerate(tokens):
        residual = t - scorer.references["control"][index](t)
        energy = energy + residual.square().sum(dim=(1, 2))
        inside = inside + (residual @ scorer.operator.bases[index]).square().sum(dim=(1, 2))
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


@pytest.mark.parametrize(("tau", "view"), [(1e9, "control"), (1e-9, "global")])
def test_localization_is_the_control_at_gate_0_and_the_global_view_at_gate_1(tau, view):
    scorer, tokens = build()
    scorer = dataclasses.replace(scorer, calibration=Calibration(tau=tau))
    torch.testing.assert_close(scorer(tokens).localization, view_map(scorer, tokens, view), atol=1e-5, rtol=1e-4)


def test_a_lift_of_the_whole_map_is_common_mode_and_a_spike_is_not():
    level = torch.rand(5, 16, generator=GENERATOR)
    lifted = level + torch.arange(5.0)[:, None]
    torch.testing.assert_close(without_common_mode(lifted), without_common_mode(level))
    level[:, 3] += 10
    assert (without_common_mode(level)[:, 3] > 9).all()


def test_background_deviations_do_not_count():
    prior = torch.full((1, 8, 8), 0.2)
    prior[:, 2:6, 2:6] = 0.9
    deviation = torch.rand(1, 8, 8, generator=GENERATOR) * 0.1
    deviation[:, 0, 0], deviation[:, 3, 3] = 5.0, 4.0
    kept = on_foreground(deviation.flatten(1), prior.flatten(1)).reshape(8, 8)
    assert kept[0, 0] < 0.2 and kept[3, 3] == 4.0


@pytest.mark.parametrize("common_mode", [False, True])
def test_calibration_puts_both_views_in_units_of_their_spread(common_mode):
    scorer, tokens = build(common_mode)
    calibrated = calibrate(scorer, lambda: [(tokens, None, None, None)])
    assert calibrated.calibration.tau == pytest.approx(float(scorer(tokens).participation.quantile(0.5)))
    for tau in (1e9, 1e-9):
        again = dataclasses.replace(calibrated, calibration=dataclasses.replace(calibrated.calibration, tau=tau))
        assert float(again(tokens).localization.std(correction=0)) == pytest.approx(1, rel=1e-3)
