import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from labelled import EPS, blocks, random, rotation, seeds, write_samples
from parts import part, tiny
from references import analysis as slow

from nfad import Detector
from nfad.evaluation.tally import EVERYWHERE
from nfad.paper.entanglement import OverlapFitter
from nfad.paper.mechanism import MagnitudeFitter, mechanism, rank_correlation
from nfad.paper.patches import measured


def fitted(residuals, defect, normal, bases, cuts=()):
    fitter = MagnitudeFitter(bases)
    split = [torch.tensor_split(block, cuts) for block in residuals]
    for index, labels in enumerate(zip(torch.tensor_split(defect, cuts), torch.tensor_split(normal, cuts))):
        fitter.update([block[index] for block in split], *labels)
    return fitter.freeze()


def lengths(found):
    return np.array([found.control_defect, found.defect, found.control_normal, found.normal])


def rounding(residuals, defect):
    """Of sums over patches and channels of squares; √ of what cancels keeps the root of it."""
    terms = defect.numel() + max(block.shape[-1] for block in residuals)
    return 16 * terms * EPS * max(float(block.norm(dim=-1).max()) for block in residuals)


# Patches


@given(blocks(), st.data())
def test_magnitudes_follow_their_definition_however_the_images_are_batched(case, data):
    residuals, defect, normal, bases = case
    cuts = sorted(data.draw(st.sets(st.integers(0, len(defect)))))
    found = fitted(residuals, defect, normal, bases, cuts)
    arrays = [block.numpy() for block in residuals], [basis.numpy() for basis in bases]
    wanted = [slow.rms(arrays[0], labels.numpy(), arrays[1]) for labels in (defect, normal)]
    assert np.abs(lengths(found) - np.ravel(wanted)).max() <= rounding(residuals, defect)
    (defect_before, defect_after), (before, after) = wanted
    assert found.control_contrast == pytest.approx(defect_before / before)
    if after > 1e-6:
        assert found.contrast == pytest.approx(defect_after / after, rel=1e-6, abs=1e-9)
        assert found.energy_removed == pytest.approx(1 - (after / before) ** 2, abs=1e-9)


@given(blocks(), seeds)
def test_rotating_the_columns_of_v_changes_nothing(case, seed):
    residuals, defect, normal, bases = case
    turned = [basis @ rotation(basis.shape[1], seed) if basis.shape[1] else basis for basis in bases]
    plain, found = (lengths(fitted(residuals, defect, normal, each)) for each in (bases, turned))
    assert np.abs(found - plain).max() <= rounding(residuals, defect)


@given(blocks())
def test_projecting_off_everything_leaves_nothing_and_off_nothing_all(case):
    residuals, defect, normal, _ = case
    whole = [rotation(block.shape[-1], 3) for block in residuals]
    gone = fitted(residuals, defect, normal, whole)
    assert max(gone.defect, gone.normal) <= rounding(residuals, defect)
    assert gone.energy_removed == pytest.approx(1)
    kept = fitted(residuals, defect, normal, [basis[:, :0] for basis in whole])
    assert (kept.defect, kept.normal, kept.energy_removed) == (kept.control_defect, kept.control_normal, 0)
    assert kept.contrast == kept.control_contrast


@given(blocks(least_free=1), seeds)
def test_energy_off_v_is_not_removed_and_twice_is_once(case, seed):
    residuals, defect, normal, bases = case
    off = [block - block @ basis @ basis.T for block, basis in zip(residuals, bases)]
    once, twice = fitted(residuals, defect, normal, bases), fitted(off, defect, normal, bases)
    tolerance = rounding(residuals, defect)
    assert abs(twice.control_normal - once.normal) <= tolerance and abs(twice.normal - once.normal) <= tolerance


def test_patches_of_equal_length_lose_the_share_that_entanglement_measures():
    residuals, basis = random(3, 10, 12, seed=0), rotation(12, 1)[:, :4]
    residuals = residuals / residuals.norm(dim=-1, keepdim=True)
    defect = torch.arange(10).expand(3, 10) < 3
    shares = OverlapFitter(basis)
    shares.update(residuals, defect, ~defect)
    found, overlap = fitted([residuals], defect, ~defect, [basis]), shares.freeze()
    assert found.energy_removed == pytest.approx(overlap.f_norm, rel=1e-9)
    assert found.contrast == pytest.approx(((1 - overlap.f_def) / (1 - overlap.f_norm)) ** 0.5, rel=1e-9)
    # Not so when the long residuals are the nuisance: pooled energy follows them, the mean share does not.
    nuisance = residuals @ basis @ basis.T
    uneven = torch.where((torch.arange(10) > 7)[None, :, None], 30 * nuisance, residuals)
    assert fitted([uneven], defect, ~defect, [basis]).energy_removed > 0.95 > overlap.f_norm


def test_equal_shrinking_spares_the_contrast_and_nuisance_on_normals_raises_it():
    basis, rest = rotation(12, 0).split([3, 9], dim=1)
    content = random(2, 40, 9, seed=1) @ rest.T
    defect = torch.arange(40).expand(2, 40) < 10
    content[defect] *= 2
    lamp = 3 * random(2, 40, 3, seed=2) @ basis.T
    everywhere, on_normals = content + lamp * (1 + defect[..., None]), content + lamp * ~defect[..., None]
    same, better = (fitted([r], defect, ~defect, [basis]) for r in (everywhere, on_normals))
    assert same.contrast == pytest.approx(same.control_contrast, rel=0.2)
    assert better.contrast == pytest.approx(same.contrast) and better.contrast > 1.5 * better.control_contrast


def test_a_group_without_a_patch_is_not_a_number():
    nobody = torch.zeros(2, 3, dtype=torch.bool)
    found = fitted([random(2, 3, 4, seed=0)], nobody, ~nobody, [rotation(4, 1)[:, :2]])
    assert np.isnan([found.defect, found.control_contrast, found.contrast]).all() and 0 < found.energy_removed < 1


def test_normals_without_residual_have_no_contrast():
    residuals, defect = torch.zeros(1, 2, 3), torch.tensor([[True, False]])
    residuals[0, 0] = 1
    found = fitted([residuals], defect, ~defect, [torch.eye(3)[:, :1]])
    assert np.isnan([found.control_contrast, found.contrast, found.energy_removed]).all() and found.defect > 0


def test_memory_does_not_grow_with_the_images():
    defect = torch.arange(30).expand(8, 30) < 10
    fitter, sizes = MagnitudeFitter([rotation(6, 0)[:, :2]]), []
    for seed in range(20):
        fitter.update([random(8, 30, 6, seed=seed)], defect, ~defect)
        sizes.append(len(pickle.dumps(fitter)))
    assert max(sizes) == min(sizes)


# Images

scores = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=12)


@given(scores)
def test_rank_correlation_follows_its_definition_with_ties(pairs):
    before, after = zip(*pairs)
    found = rank_correlation(before, after)
    if len(set(before)) == 1 or len(set(after)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(slow.spearman(before, after), abs=1e-12)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20, unique=True))
def test_only_the_order_counts(before):
    order = np.argsort(np.argsort(before))
    assert rank_correlation(before, (order**3.0).tolist()) == pytest.approx(1)
    assert rank_correlation(before, (-order).tolist()) == pytest.approx(-1)


def test_one_image_cannot_be_ranked():
    assert np.isnan(rank_correlation([1.0], [2.0]))


# A real detector


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write_samples(tmp_path_factory.mktemp("set"))


@pytest.mark.parametrize(
    "changes",
    [
        {"order": "fit-then-filter", "reference": "student"},
        {"order": "fit-then-filter", "reference": "nearest", "foreground": True},
        {"order": "filter-then-fit", "reference": "linear"},
    ],
    ids=lambda changes: changes["reference"],
)
def test_rows_are_those_of_each_domains_patches_and_predictions(samples, changes):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(**changes))
    rows, batches = mechanism(detector, samples), list(measured(detector, samples))
    predictions = list(detector.predict_stream([sample.path for sample in samples]))
    assert [row.domain for row in rows] == ["same", "dark", EVERYWHERE]
    assert rows[0].count + rows[1].count == rows[2].count and rows[2].count.images == len(samples)
    bases = [basis.double().numpy() for basis in detector.scorer.operator.bases]
    for row in rows:
        here = [batch for batch in batches if row.domain in (batch.domain, EVERYWHERE)]
        residuals = [torch.cat([b.residuals[i] for b in here]).double().numpy() for i in range(len(bases))]
        wanted = [
            slow.rms(residuals, torch.cat([getattr(b, name) for b in here]).numpy(), bases)
            for name in ("defect", "normal")
        ]
        assert lengths(row.magnitudes) == pytest.approx(np.ravel(wanted), rel=1e-9)
        judged = [p for s, p in zip(samples, predictions) if row.domain in (s.domain, EVERYWHERE)]
        assert row.spearman == pytest.approx(
            slow.spearman([p.unfiltered_score for p in judged], [p.score for p in judged]), abs=1e-9
        )
        assert row.magnitudes.contrast > 1  # an untrained teacher, too, sees a red square
