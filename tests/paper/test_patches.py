import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from labelled import write_samples
from parts import part, tiny
from PIL import Image
from references import analysis as slow

from nfad import Detector, NfadError
from nfad.evaluation.tally import mask_of
from nfad.paper.patches import Count, measured, patch_labels
from nfad.reference.scoring import residuals
from nfad.vision.images import load_part, to_view
from nfad.vision.photo import photo_numbers


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write_samples(tmp_path_factory.mktemp("set"))


@pytest.fixture(scope="module")
def detector():
    return Detector.fit([part(i, 80) for i in range(12)], tiny())


# Labels


@given(st.integers(1, 5), st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**31))
def test_labels_follow_their_definition(grid, side, share, seed):
    masks = np.random.default_rng(seed).random((2, grid * side, grid * side)) < share
    found = patch_labels(torch.from_numpy(masks), grid)
    for image, mask in enumerate(masks):
        for label, wanted in zip(found, slow.patch_labels(mask, grid)):
            assert np.array_equal(label[image].numpy(), wanted)


def test_a_defect_is_where_it_is_thickest_however_thin_and_what_it_grazes_is_neither():
    masks = torch.zeros(3, 32, 32, dtype=torch.bool)
    masks[0, :16, :16] = True  # a whole patch,
    masks[0, :16, 16:24] = True  # half of the next
    masks[0, 16:, :7] = True  # and less than half of the one below
    masks[1, 20, 16:] = True  # a scratch of one pixel's width,
    masks[1, 20, 13:16] = True  # whose end sticks out
    defect, normal = patch_labels(masks, 2)
    assert defect.int().tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert normal.int().tolist() == [[0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]]


# The walk


def test_batches_are_of_one_domain_in_order_of_appearance_and_hold_every_image_once(detector, samples):
    told = []
    batches = list(measured(detector, samples, lambda *report: told.append(report)))
    assert [batch.domain for batch in batches] == ["same", "same", "dark", "dark"]
    assert told[-1] == ("measuring", len(samples), len(samples)) and len(told) == len(batches)
    for domain in ("same", "dark"):
        views = torch.cat([batch.views for batch in batches if batch.domain == domain])
        wanted = [to_view(load_part(s.path), 64, None)[0] for s in samples if s.domain == domain]
        assert torch.equal(views, torch.stack(wanted))


def test_the_defect_is_where_the_mask_is_and_the_rest_is_normal(detector, samples):
    batches = list(measured(detector, samples))
    # The square covers rows 32..48 and columns 32..56 of the view: one patch of the 4×4 grid, and half of the next.
    square = torch.zeros(16, dtype=torch.bool)
    square[[10, 11]] = True
    defect, normal = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("defect", "normal"))
    bad = defect.any(dim=1)
    assert int(bad.sum()) == 6 and (defect[bad] == square).all()
    assert torch.equal(normal, ~defect)
    assert sum((batch.count for batch in batches), Count()) == Count(images=12, lost=0, defect=12, normal=12 * 16 - 12)


def test_masks_follow_a_cropped_view(samples):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(resize=96))
    [batch] = measured(detector, samples[1:2])
    _, geometry = to_view(load_part(samples[1].path), 64, 96)
    defect, normal = slow.patch_labels(mask_of(samples[1], geometry, 64), 4)
    assert np.array_equal(batch.defect[0].numpy(), defect) and np.array_equal(batch.normal[0].numpy(), normal)
    assert 0 < defect.sum() != 2  # the crop enlarges the square


def test_a_defect_outside_of_the_view_is_counted_as_lost(detector, samples, tmp_path):
    away = np.zeros((80, 80), np.uint8)
    Image.fromarray(away).save(tmp_path / "away.png")
    [batch] = measured(detector, [dataclasses.replace(samples[1], mask=tmp_path / "away.png"), samples[5]])
    assert batch.count == Count(images=2, lost=1, defect=2, normal=16 + 14)
    cropped = Detector.fit([part(i, 80) for i in range(12)], tiny(resize=96))
    away[:5] = 255
    Image.fromarray(away).save(tmp_path / "edge.png")
    edge = dataclasses.replace(samples[1], mask=tmp_path / "edge.png")
    assert [next(measured(each, [edge])).count.lost for each in (detector, cropped)] == [0, 1]


def test_an_anomalous_image_without_a_mask_is_lost_and_gives_no_patch_at_all(detector, samples):
    [batch] = measured(detector, [dataclasses.replace(samples[1], mask=None), samples[0]])
    assert batch.count == Count(images=2, lost=1, defect=0, normal=16)
    assert not batch.normal[0].any()


def test_nothing_to_measure_is_told(detector):
    with pytest.raises(NfadError, match="at least one sample"):
        list(measured(detector, []))


# Residuals

SETTINGS = [
    ("linear", "fit-then-filter"),
    ("linear", "filter-then-fit"),
    ("nearest", "fit-then-filter"),
    ("nearest", "filter-then-fit"),
    ("student", "fit-then-filter"),
]


@pytest.mark.parametrize(("reference", "order"), SETTINGS)
def test_residuals_are_of_raw_tokens_and_what_is_expected_of_raw_tokens(samples, reference, order):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(reference=reference, order=order))
    batch = next(measured(detector, samples))
    with torch.inference_mode():
        numbers = photo_numbers(batch.views)
        out = detector.scorer(batch.tokens, detector.scorer.predicted(batch.views), numbers=numbers)
        again = residuals(detector.scorer, batch.tokens, batch.views)
    eps, half = torch.finfo(torch.float32).eps, torch.finfo(torch.float16).eps  # a bank's tokens come from a cache
    inside = energy = 0
    for index, (found, t) in enumerate(zip(batch.residuals, batch.tokens)):
        assert torch.equal(found, again[index])
        channels = t.shape[-1]
        if reference == "linear":
            # What PCA leaves over is off its components.
            assert float((found @ detector.scorer.reference[index].components).abs().max()) <= 8 * channels * eps
        else:
            assert float(((t - found).norm(dim=-1) - 1).abs().max()) <= half  # what was expected is a unit token
        assert float(found.norm(dim=-1).min()) > 100 * channels * eps  # there is something to measure
        inside = inside + (found @ detector.scorer.operator.bases[index]).square().sum(dim=(1, 2))
        energy = energy + found.square().sum(dim=(1, 2))
    if reference != "linear":  # whose expectation read_out makes unit first
        length = float((energy / (len(batch.tokens) * batch.tokens[0].shape[1])).sqrt().min())
        assert float((out.nuisance_fraction - inside / energy).abs().max()) <= 4 * half / length
