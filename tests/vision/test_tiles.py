import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from nfad.vision.region import Region
from nfad.vision.teacher import load_teacher
from nfad.vision.tiles import RIM, STEP, Tiled, looking_at, rim, spans, starts, tiled_teacher

EPS = torch.finfo(torch.float32).eps
RESNET, TINY = "resnet18", "vit_tiny_patch16_224"


def images_(size, count=1, seed=0):
    """Smooth, as photos are: noise would make every token alike."""
    coarse = torch.rand(count, 3, size // 8, size // 8, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, (size, size), mode="bilinear")


def gaps(one, other):
    return [1 - (a * b).sum(dim=-1) for a, b in zip(one, other, strict=True)]


@given(st.integers(1, 40).map(lambda n: 128 * n), st.integers(1, 16).map(lambda n: 64 * n))
def test_every_pixel_is_kept_of_one_tile_and_none_near_an_inner_edge(size, tile):
    found = spans(size, min(tile, size))
    assert found[0][1] == 0 and found[-1][2] == size
    for (_, _, end), (_, begin, _) in itertools.pairwise(found):
        assert end == begin
    for start, first, last in found:
        assert start % STEP == first % STEP == last % STEP == 0 and first < last
        assert start >= 0 and start + min(tile, size) <= size
        assert first == 0 or first - start >= rim(tile) - STEP  # cuts lie on whole tokens
        assert last == size or start + tile - last >= rim(tile)


def test_there_are_as_few_tiles_as_overlap_enough():
    assert starts(512, 512) == [0] and rim(512) == RIM and rim(64) == 16
    assert starts(1024, 512) == [0, 256, 512]  # two would not overlap
    assert len(starts(3072, 512)) == 8


@pytest.mark.parametrize(("name", "blocks", "prior"), [(RESNET, (1, 2), ()), (TINY, (1, 3), (4, 6))])
def test_one_tile_is_the_teacher_itself(name, blocks, prior):
    whole = load_teacher(name, "untrained", blocks, prior, 64)
    assert type(tiled_teacher(name, "untrained", blocks, prior, 64, 64)) is type(whole)
    tiled, images = Tiled(whole, 64, 64), images_(64)
    assert all(torch.equal(a, b) for a, b in zip(tiled.tokens(images), whole.tokens(images), strict=True))


def test_tiles_of_a_cnn_are_its_untiled_tokens_where_the_rim_covers_what_it_sees():
    """Stage 2 of a ResNet-18 sees 99 pixels, less than a rim of 64 on either side: not a bit of the seams is left."""
    tiled = tiled_teacher(RESNET, "untrained", (1, 2), (), 512, 256)
    whole = load_teacher(RESNET, "untrained", (1, 2), (), 512)
    assert tiled.count == 9 and tiled.grid == whole.grid
    for gap in gaps(tiled.tokens(images_(512)), whole.tokens(images_(512))):
        assert gap.abs().max() <= 64 * EPS


def test_without_a_rim_the_seams_would_show():
    whole, images = load_teacher(RESNET, "untrained", (1, 2), (), 256), images_(256)
    tile = load_teacher(RESNET, "untrained", (1, 2), (), 128)
    quarters = [tile.tokens(images[..., :128, left : left + 128])[1].unflatten(1, (16, 16)) for left in (0, 128)]
    beside = torch.cat(quarters, dim=2)
    wanted = whole.tokens(images)[1].unflatten(1, (32, 32))[:, :16]
    assert (1 - (beside * wanted).sum(dim=-1)).max() > 1e4 * EPS


def test_across_a_seam_the_embedded_cnn_changes_less_than_between_neighbours():
    """Its deepest block sees further than any rim: what is left of the seams is bounded."""
    tiled = tiled_teacher("embedded-cnn", None, (2, 3), (), 512, 256)
    whole = load_teacher("embedded-cnn", None, (2, 3), (), 512)
    images = images_(512)
    for found, wanted in zip(tiled.tokens(images), whole.tokens(images), strict=True):
        square = wanted.unflatten(1, (64, 64))
        natural = (1 - (square[:, 1:] * square[:, :-1]).sum(dim=-1)).mean()
        assert (1 - (found * wanted).sum(dim=-1)).mean() < 0.2 * natural


def test_a_blot_on_a_seam_is_as_strange_as_in_the_middle_of_a_tile():
    """On a ground that repeats every 64 pixels, so that both lie on the same: the cut is at 192, no edge near 256."""
    tiled = tiled_teacher("embedded-cnn", None, (2, 3), (), 512, 256)
    ground = images_(64).repeat(1, 1, 8, 8)
    plain, deviations = tiled.tokens(ground), {}
    for left in (192, 256):
        image = ground.clone()
        image[..., 251:261, left - 5 : left + 5] = 0
        deviations[left] = [gap.topk(12).values.mean() for gap in gaps(tiled.tokens(image), plain)]
    for on_seam, inside in zip(deviations[192], deviations[256], strict=True):
        assert inside > 0.05 and abs(on_seam / inside - 1) < 0.1


@pytest.mark.parametrize(("name", "blocks", "prior"), [(RESNET, (1, 2), ()), (TINY, (1, 3), (4, 6))])
def test_a_graph_can_cut_and_lay_them_as_the_teacher_does(name, blocks, prior):
    tiled, images = tiled_teacher(name, "untrained", blocks, prior, 256, 128), images_(256, 2)
    stacked = tiled.stacked(images)
    assert stacked.shape == (tiled.count, 2, 3, 128, 128)
    each = [tiled.teacher.tokens(tiles) for tiles in stacked]
    for block, wanted in enumerate(tiled.tokens(images)):
        every = torch.stack([tokens[block] for tokens in each], dim=1).flatten(1, 2)
        assert (every[:, tiled.kept] - wanted).abs().max() <= 64 * EPS


def test_the_prior_is_that_of_the_whole_part():
    tiled = tiled_teacher(RESNET, "untrained", (1, 2), (), 256, 128)
    tokens, prior = tiled.tokens_and_prior(images_(256, 2))
    assert prior.shape == (2, 32 * 32) == tokens[0].shape[:2]
    small = F.interpolate(images_(256, 2), (128, 128), mode="bilinear", antialias=True)
    coarse = tiled.teacher.tokens_and_prior(small)[1].unflatten(1, (16, 16))
    pooled = F.avg_pool2d(prior.unflatten(1, (32, 32)), 2)
    assert (pooled - coarse).abs().mean() < 0.05


def test_what_is_not_looked_at_moves_no_token():
    seen = torch.ones(256, 256, dtype=torch.bool)
    seen[:, 192:] = False
    tiled = looking_at(tiled_teacher(RESNET, "untrained", (1, 2), (), 256, 128), Region(seen))
    image = images_(256)
    defaced = image.clone()
    defaced[..., 192:] = 1.0
    for gap in gaps(tiled.tokens(image), tiled.tokens(defaced)):
        assert gap.abs().max() <= 64 * EPS
