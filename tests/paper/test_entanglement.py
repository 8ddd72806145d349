import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from labelled import EPS, blocks, random, rotation, seeds, write_samples
from parts import part, tiny
from references import analysis as slow
from scipy import stats

from nfad import Detector
from nfad.evaluation.tally import EVERYWHERE
from nfad.paper.entanglement import Overlap, OverlapFitter, average, energy_shares, entanglement
from nfad.paper.patches import measured


def fitted(residuals, defect, normal, basis, cuts=()):
    fitter = OverlapFitter(basis)
    for batch in zip(*(torch.tensor_split(array, cuts) for array in (residuals, defect, normal))):
        fitter.update(*batch)
    return fitter.freeze()


def one(case):
    (residuals,), defect, normal, (basis,) = case
    return residuals, defect, normal, basis


def shares(overlap):
    return np.array([overlap.f_def, overlap.f_norm, overlap.f_disc])


def rounding(residuals, defect, normal):
    """Of sums over patches and channels; f_disc divides by the length of a difference of means."""
    gap = residuals[defect].mean(dim=0) - residuals[normal].mean(dim=0)
    size = float(residuals.square().sum(dim=-1).max() / min(1, gap.square().sum(), residuals.square().sum(-1).min()))
    return 16 * (defect.numel() + residuals.shape[-1]) * EPS * max(1, size)


# Against the definitions


@given(blocks(count=1), st.data())
def test_overlap_follows_its_definition_however_the_images_are_batched(case, data):
    residuals, defect, normal, basis = one(case)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(residuals)))))
    found = fitted(residuals, defect, normal, basis, cuts)
    wanted = slow.overlap(*(array.numpy() for array in (residuals, defect, normal, basis)))
    assert np.abs(shares(found) - wanted).max() <= rounding(residuals, defect, normal)
    assert found.chance == basis.shape[1] / basis.shape[0]


def test_a_patch_without_residual_has_no_share_but_counts_in_the_mean_residual():
    basis = torch.eye(3, dtype=torch.float64)[:, :1]
    residuals = torch.tensor([[[1.0, 0, 0], [0, 0, 0], [0, 3, 0]]], dtype=torch.float64)
    defect = torch.tensor([[True, True, False]])
    found = fitted(residuals, defect, ~defect, basis)
    assert (found.f_def, found.f_norm) == (1, 0)
    assert found.f_disc == pytest.approx(0.5**2 / (0.5**2 + 3**2))


def test_a_group_without_a_patch_is_not_a_number():
    residuals, nobody = random(2, 3, 4, seed=0), torch.zeros(2, 3, dtype=torch.bool)
    found = fitted(residuals, nobody, ~nobody, rotation(4, 1)[:, :2])
    assert np.isnan([found.f_def, found.f_disc]).all() and 0 < found.f_norm < 1


# Properties


@given(blocks(count=1), seeds)
def test_rotating_the_columns_of_v_changes_nothing(case, seed):
    residuals, defect, normal, basis = one(case)
    turned = basis @ rotation(basis.shape[1], seed) if basis.shape[1] else basis
    difference = shares(fitted(residuals, defect, normal, turned)) - shares(fitted(residuals, defect, normal, basis))
    assert np.abs(difference).max() <= rounding(residuals, defect, normal)


@given(blocks(count=1))
def test_all_energy_lies_inside_everything_and_none_in_nothing(case):
    residuals, defect, normal, _ = one(case)
    whole = rotation(residuals.shape[-1], 3)
    tolerance = rounding(residuals, defect, normal)
    assert np.abs(shares(fitted(residuals, defect, normal, whole)) - 1).max() <= tolerance
    assert (shares(fitted(residuals, defect, normal, whole[:, :0])) == 0).all()


@given(blocks(count=1, least_free=1))
def test_a_residual_off_v_has_no_share_and_one_in_it_all(case):
    residuals, defect, normal, basis = one(case)
    inside = residuals @ basis @ basis.T
    off = residuals - inside
    assert np.abs(shares(fitted(off, defect, normal, basis))).max() <= rounding(off, defect, normal)
    if basis.shape[1]:
        assert np.abs(shares(fitted(inside, defect, normal, basis)) - 1).max() <= rounding(inside, defect, normal)


@given(st.integers(24, 96), st.integers(1, 20), seeds)
def test_a_random_subspace_holds_k_of_c(channels, columns, seed):
    residuals = random(4, 500, channels, seed=seed)
    defect = torch.arange(500).expand(4, 500) % 2 == 0
    found = fitted(residuals, defect, ~defect, rotation(channels, seed + 1)[:, :columns])
    # The share of an isotropic vector is Beta(k/2, (c−k)/2); f_disc is one such draw, the others means of a thousand.
    share = stats.beta(columns / 2, (channels - columns) / 2)
    assert abs(found.f_def - found.chance) <= 6 * share.std() / 1000**0.5
    assert abs(found.f_norm - found.chance) <= 6 * share.std() / 1000**0.5
    assert share.ppf(1e-9) <= found.f_disc <= share.isf(1e-9)


@given(blocks(count=1), seeds)
def test_a_patchs_magnitude_does_not_weigh_in_its_share(case, seed):
    residuals, defect, normal, basis = one(case)
    scaled = residuals * 10 ** random(*residuals.shape[:2], 1, seed=seed).clamp(-3, 3)
    plain, found = fitted(residuals, defect, normal, basis), fitted(scaled, defect, normal, basis)
    tolerance = 16 * (defect.numel() + residuals.shape[-1]) * EPS
    assert abs(found.f_def - plain.f_def) <= tolerance and abs(found.f_norm - plain.f_norm) <= tolerance


def test_what_both_groups_share_cancels_in_the_discriminative_direction_only():
    residuals, basis = random(3, 20, 12, seed=0), rotation(12, 1)[:, :3]
    defect = torch.arange(20).expand(3, 20) < 5
    lamp = 5 * basis[:, 0]
    plain, lit = (fitted(r, defect, ~defect, basis) for r in (residuals, residuals + lamp))
    assert lit.f_disc == pytest.approx(plain.f_disc, rel=1e-9)
    assert min(lit.f_def, lit.f_norm) > 0.6 > 0.4 > max(plain.f_def, plain.f_norm)


def test_single_precision_is_summed_in_double_and_left_as_it_was():
    residuals, basis = random(2, 5, 6, seed=0).float(), rotation(6, 1)[:, :2].float()
    defect = random(2, 5, seed=2) > 0
    kept = residuals.clone(), basis.clone(), defect.clone()
    assert fitted(residuals, defect, ~defect, basis) == fitted(residuals.double(), defect, ~defect, basis.double())
    assert all(torch.equal(*pair) for pair in zip(kept, (residuals, basis, defect)))
    assert energy_shares(residuals[0], basis).dtype == torch.float64


def test_memory_does_not_grow_with_the_images():
    defect = torch.arange(30).expand(8, 30) < 10
    fitter, sizes = OverlapFitter(rotation(6, 0)[:, :2]), []
    for seed in range(20):
        fitter.update(random(8, 30, 6, seed=seed), defect, ~defect)
        sizes.append(len(pickle.dumps(fitter)))
    assert max(sizes) == min(sizes)


def test_the_average_is_the_plain_mean():
    assert average([Overlap(0.25, 0.5, 0.5, 0.125), Overlap(0.75, 0.5, 1, 0.375)]) == Overlap(0.5, 0.5, 0.75, 0.25)


# A real detector


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write_samples(tmp_path_factory.mktemp("set"))


@pytest.mark.parametrize(
    ("reference", "order"),
    [("linear", "fit-then-filter"), ("nearest", "filter-then-fit"), ("student", "fit-then-filter")],
)
def test_rows_are_the_overlaps_of_each_domains_patches_and_of_all_pooled(samples, reference, order):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(reference=reference, order=order))
    rows, batches = entanglement(detector, samples), list(measured(detector, samples))
    assert [row.domain for row in rows] == ["same", "dark", EVERYWHERE]
    assert rows[0].count + rows[1].count == rows[2].count and rows[2].count.images == len(samples)
    for row in rows:
        here = [batch for batch in batches if row.domain in (batch.domain, EVERYWHERE)]
        defect, normal = (torch.cat([getattr(b, name) for b in here]).numpy() for name in ("defect", "normal"))
        for index, basis in enumerate(detector.scorer.operator.bases):
            residuals = torch.cat([batch.residuals[index] for batch in here]).double().numpy()
            wanted = slow.overlap(residuals, defect, normal, basis.double().numpy())
            # Bases are orthonormal to single precision.
            assert shares(row.blocks[index]) == pytest.approx(wanted, abs=64 * torch.finfo(torch.float32).eps)
            assert row.blocks[index].chance == basis.shape[1] / basis.shape[0]
        assert row.mean.f_disc == pytest.approx(np.mean([block.f_disc for block in row.blocks]))


def test_one_domain_is_one_row(samples):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny())
    [row] = entanglement(detector, [sample for sample in samples if sample.domain == "dark"])
    assert row == entanglement(detector, samples)[1]
