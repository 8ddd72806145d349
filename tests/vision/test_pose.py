"""Parts that lie anyhow are found and turned to lie alike, whatever the lamp."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nails import nail
from scipy.ndimage import uniform_filter
from torch.nn import functional as F

from nfad.fitting.posing import drawn, part_of, unlikeness
from nfad.vision.acquisitions import KINDS
from nfad.vision.images import to_view
from nfad.vision.pose import AROUND, DRAWN, Pose, _around, cut_out

SIZE = 128


def views_of(*photos, size=SIZE):
    return torch.stack([to_view(photo, size, None)[0] for photo in photos])


@pytest.fixture(scope="module")
def views():
    return views_of(*(nail(seed) for seed in range(12)))


@pytest.fixture(scope="module")
def pose(views):
    return drawn(views, 1.0)


def test_turned_parts_lie_alike(pose, views):
    turned, _ = pose.turned(views)
    assert unlikeness(turned) < 0.25 * unlikeness(views)


@settings(max_examples=25, deadline=None)
@given(angle=st.floats(0, 2 * math.pi), right=st.floats(-0.15, 0.15), down=st.floats(-0.15, 0.15))
def test_however_a_part_lies_its_turned_view_is_the_same(pose, angle, right, down):
    seen = pose.turned(views_of(nail(3, angle=0.3, at=(0, 0)), nail(3, angle=angle, at=(right, down))))[0]
    assert float((seen[0] - seen[1]).abs().mean()) < 0.03


@pytest.mark.parametrize("ratio", [0.6, 1.8])
def test_a_photo_that_is_not_square_is_turned_by_its_own_angles(ratio):
    """Its view is stretched: a box that is right in the view would be askew in the photo."""
    views = views_of(*(nail(seed, ratio=ratio) for seed in range(12)))
    pose = drawn(views, ratio)
    assert unlikeness(pose.turned(views)[0]) < 0.25 * unlikeness(views)
    for angle in (0.3, 1.2, 2.8, 4.4):
        along = pose.found(views_of(nail(3, angle=angle, ratio=ratio, at=(0, 0))))[0, :, 0] * torch.tensor([ratio, 1.0])
        off = math.atan2(float(along[1]), float(along[0])) - angle
        assert abs((off + math.pi / 2) % math.pi - math.pi / 2) < math.radians(3)


@pytest.mark.parametrize(("kind", "strength"), [("gain", 0.4), ("ramp", 0.4), ("contrast", 0.4), ("noise", 0.1)])
def test_a_lamp_does_not_turn_a_part(pose, views, kind, strength):
    _, before = pose.turned(views)
    if kind == "noise":
        lit = views + strength * torch.randn(views.shape, generator=torch.Generator().manual_seed(0))
    else:
        generator = torch.Generator().manual_seed(0)
        lit = torch.stack([KINDS[kind](view, strength, generator) for view in views])
    _, after = pose.turned(lit.clamp(0, 1))
    corners = torch.tensor([[x, y, 1.0] for x in (-1, 1) for y in (-1, 1)])
    off = (corners @ (after - before).mT).norm(dim=2).amax(dim=1) * SIZE / 2
    assert float(off.median()) < 2 and float(off.max()) < 8  # pixels of the box's corners


def test_a_part_that_is_too_short_stays_too_short(pose):
    """The box is the fit's, not the photo's: a wrong size is a defect."""
    seen = part_of(pose.turned(views_of(nail(5), nail(5, length=0.7)))[0])
    long, short = (seen.amax(dim=1) > 0.5).sum(dim=1).tolist()
    assert short < 0.85 * long


def test_maps_go_back_to_where_the_photo_has_it(pose, views):
    turned, where = pose.turned(views)
    found = pose.back({"maps": turned.mean(dim=1), "ones": torch.ones(len(views), SIZE, SIZE)}, where)
    maps, inside = found["maps"], found["ones"] > 0.999
    off = (maps - views.mean(dim=1)).abs()[inside]
    assert float(inside.float().mean()) > 0.1 and float(off.mean()) < 0.02
    assert float(maps[found["ones"] == 0].abs().max()) == 0


@pytest.mark.parametrize("photo", ["black", "white", "noise"])
def test_a_photo_without_a_part_is_turned_somehow_and_finitely(pose, photo):
    view = torch.full((1, 3, SIZE, SIZE), float(photo == "white"))
    if photo == "noise":
        view = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    turned, where = pose.turned(view)
    assert turned.isfinite().all() and where.isfinite().all()
    assert pose.back({"map": turned[:, 0]}, where)["map"].isfinite().all()


def test_a_batch_is_turned_as_its_views_are_one_by_one(pose, views):
    one_by_one = torch.cat([pose.turned(view[None])[0] for view in views[:4]])
    torch.testing.assert_close(pose.turned(views[:4])[0], one_by_one, atol=1e-4, rtol=0)


def test_a_larger_view_shows_the_same(pose):
    small, large = (pose.found(views_of(nail(2), size=size)) for size in (SIZE, 2 * SIZE))
    assert float((small - large).abs().max()) < 0.03
    assert F.cosine_similarity(small[:, :, 0], large[:, :, 0]).item() > 0.999


@pytest.mark.parametrize("side", [9, 32, 64, 68])
def test_the_surroundings_are_the_mean_of_the_nearest_pixels(side):
    grey = torch.rand(2, 1, side, side, generator=torch.Generator().manual_seed(side))
    wanted = [uniform_filter(each[0].double().numpy(), AROUND, mode="nearest") for each in grey]
    np.testing.assert_allclose(_around(grey)[:, 0].numpy(), wanted, atol=1e-6)


def test_the_drawing_is_matched_at_every_step_as_one_by_one():
    draw = torch.Generator().manual_seed(3)
    pose = Pose.steady(1.0, torch.randn(DRAWN, DRAWN, generator=draw))
    seen, steps = torch.randn(2, 1, 64, 64, generator=draw), 2 * pose._steps + 1
    boxes = torch.tensor([[[1.0, 0.0, 0.1], [0.0, 1.0, 0.0]], [[0.9, 0.1, 0.0], [-0.1, 0.9, 0.05]]])
    wider = torch.cat([boxes[:, :, :2] * (1 + (steps - 1) / DRAWN), boxes[:, :, 2:]], dim=2)
    shown = cut_out(seen, wider, DRAWN + steps - 1)[:, 0].double()
    drawing = pose.drawing.double()
    wanted = [
        [float((each[down : down + DRAWN, right : right + DRAWN] * drawing).mean()) for right in range(steps)]
        for each in shown
        for down in range(steps)
    ]
    found = pose._match(seen, boxes).reshape(2 * steps, steps).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
