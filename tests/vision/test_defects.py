import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.vision.defects import ALL_KINDS, KINDS, SMALLEST, STRUCTURAL, with_defect, with_defects

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 2**31)


def images_(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@given(kinds, st.integers(SMALLEST, 100), st.integers(SMALLEST, 100), seeds)
def test_a_defect_is_local_inside_the_image_and_changes_nothing_else(kind, height, width, seed):
    view = images_(3, height, width, seed=seed % 7)
    before = view.clone()
    changed, mask = with_defect(view, kind, np.random.default_rng(seed))
    assert torch.equal(view, before)
    assert changed.shape == view.shape and changed.min() >= 0 and changed.max() <= 1
    moved = (changed != view).any(dim=0).numpy()
    assert mask.any() and mask.mean() < 0.1
    assert not moved[~mask].any()
    assert moved[mask].mean() > 0.9  # a texture copied onto itself is the only way not to


@given(kinds, seeds)
def test_a_defect_depends_on_its_seed_alone(kind, seed):
    images = images_(2, 3, 64, 64)
    first, again, other = (with_defects(images, kind, s) for s in (seed, seed, seed + 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[1][0], first[1][1])  # each image has its own


def test_kinds_differ_in_shape():
    images = images_(40, 3, 128, 128)

    def boxes(kind):
        masks = with_defects(images, kind, 0)[1]
        return torch.stack([masks.any(dim=2).sum(dim=1), masks.any(dim=1).sum(dim=1)]).sort(dim=0).values, masks

    (short, long), scars = boxes("scar")
    assert (long > 3 * short).all()
    (high, wide), pastes = boxes("cut-paste")
    assert (pastes.sum(dim=(1, 2)) == high * wide).all() and (scars.sum(dim=(1, 2)) == short * long).all()
    (high, wide), stains = boxes("stain")
    assert stains.sum() < 0.9 * (high * wide).sum()  # ellipses


def test_a_stain_lets_the_surface_through():
    images = images_(10, 3, 128, 128)
    changed, masks = with_defects(images, "stain", 0)
    for image, stained, mask in zip(images, changed, masks):
        x, y = image[0][mask], stained[0][mask]
        slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        assert float(slope) == pytest.approx(0.4, abs=1e-3)


def test_sizes_go_with_the_view():
    small, large = (with_defects(images_(30, 3, side, side), "cut-paste", 0)[1] for side in (64, 256))
    ratio = float(large.float().mean() / small.float().mean())
    assert 0.7 < ratio < 1.6


def test_what_is_wrong_is_said_in_a_sentence():
    with pytest.raises(NfadError, match="kind must be one of cut-paste, scar, stain; got 'dent'"):
        with_defects(images_(1, 3, 64, 64), "dent", 0)
    with pytest.raises(NfadError, match="at least 64×64; got 64×63"):
        with_defects(images_(1, 3, 64, 63), "scar", 0)
    with pytest.raises(NfadError, match="large, missing, moved, doubled; got 'dent'"):
        with_defect(images_(3, 64, 64), "dent", np.random.default_rng(0))


@example("large", 64, 64, 2444)
@given(st.sampled_from(ALL_KINDS[len(KINDS) :]), st.integers(SMALLEST, 140), st.integers(SMALLEST, 140), seeds)
def test_a_large_defect_is_inside_the_image_and_changes_nothing_else(kind, height, width, seed):
    view = images_(3, height, width, seed=seed % 7)
    before = view.clone()
    changed, mask = with_defect(view, kind, np.random.default_rng(seed))
    again, same = with_defect(view, kind, np.random.default_rng(seed))
    assert torch.equal(view, before) and torch.equal(changed, again) and np.array_equal(mask, same)
    assert changed.shape == view.shape and changed.min() >= 0 and changed.max() <= 1
    moved = (changed != view).any(dim=0).numpy()
    assert not moved[~mask].any() and moved[mask].mean() > 0.6
    side = min(height, width)
    ellipse = np.pi / 4 * (side * 60 // 256 - 2) ** 2  # the least one, within its rim
    assert (ellipse if kind == "large" else 0.07 * side**2) < mask.sum() < 0.6 * side**2


def numbered(side):
    """A view whose every pixel says where it is from."""
    rows, columns = torch.meshgrid(torch.arange(side) / side, torch.arange(side) / side, indexing="ij")
    return torch.stack([rows, columns, torch.zeros(side, side)])


def box(mask):
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_missing_shows_a_corner_of_the_photo_in_its_place(seed):
    view = numbered(128)
    changed, mask = with_defect(view, "missing", np.random.default_rng(seed))
    rows, columns = box(mask)
    assert mask[rows, columns].all() and mask[64 - 4 : 64 + 4, 64 - 4 : 64 + 4].all()  # about the middle
    high, wide = mask[rows, columns].shape
    corners = [view[:, r, c] for r in (slice(high), slice(-high, None)) for c in (slice(wide), slice(-wide, None))]
    assert any(torch.equal(changed[:, rows, columns], corner) for corner in corners)


@pytest.mark.parametrize("kind", ["moved", "doubled"])
@pytest.mark.parametrize("seed", range(8))
def test_a_piece_appears_elsewhere_and_stays_too_where_it_is_doubled(kind, seed):
    view = numbered(128)
    changed, mask = with_defect(view, kind, np.random.default_rng(seed))
    steps = ((changed - view) * 128).round()[:2].reshape(2, -1)
    shifts, counts = torch.unique(steps[:, (steps != 0).any(dim=0)], dim=1, return_counts=True)
    far = shifts.norm(dim=0) / 128
    # The piece, all of it by the same way; and where it was moved from, a corner of the photo.
    assert bool(((far > 0.1) & (far < 0.31)).any()) and len(counts) == (1 if kind == "doubled" else 2)
    if kind == "doubled":
        rows, columns = box(mask)
        back = shifts[:, 0].long()
        taken = view[:, rows.start + back[0] : rows.stop + back[0], columns.start + back[1] : columns.stop + back[1]]
        assert mask[rows, columns].all() and torch.equal(changed[:, rows, columns], taken)
        elsewhere = torch.from_numpy(~mask)
        assert torch.equal(changed[:, elsewhere], view[:, elsewhere])


def test_a_large_blot_is_larger_than_a_stain():
    draw = np.random.default_rng(0)
    large, stain = (
        np.mean([with_defect(images_(3, 128, 128), kind, draw)[1].mean() for _ in range(30)])
        for kind in ("large", "stain")
    )
    assert large > 4 * stain
    assert STRUCTURAL == ("missing", "moved", "doubled") and set(KINDS) < set(ALL_KINDS)
