from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import tiny

from nfad.fitting.crossfit import (
    ACQUIRED,
    FOLDS,
    MOST,
    FoldMoments,
    as_acquired,
    folds_of,
    placed_from,
    scorer_from,
    shared_out,
)
from nfad.operator import MomentFitter
from nfad.reference.linear import Linear
from nfad.reference.placed import Placed, by_region
from nfad.reference.scoring import Operator

seeds = st.integers(0, 2**31)
TEACHER = SimpleNamespace(channels=(3, 5), grid=2)
IMAGES = 13


def tokens_(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return [1 + torch.randn(count, TEACHER.grid**2, c, generator=generator) for c in TEACHER.channels]


def looked_at(seed, acquisitions=ACQUIRED * IMAGES):
    """Every image as taken, then acquisitions of them, in batches: the moments, and the same kept whole."""
    folds = folds_of(IMAGES, seed)
    views = torch.cat([torch.arange(IMAGES), shared_out(acquisitions, torch.arange(IMAGES))])
    moments = FoldMoments(folds, TEACHER, IMAGES, len(views) - IMAGES)
    taken, tokens = torch.arange(len(views)) < IMAGES, tokens_(len(views), seed)
    for chosen in [*torch.arange(IMAGES).split(4), *torch.arange(IMAGES, len(views)).split(4)]:
        moments.add(views[chosen], [block[chosen] for block in tokens], taken=bool(taken[chosen][0]))
    return SimpleNamespace(folds=folds, moments=moments, views=views, taken=taken, tokens=tokens)


def slow(tokens):
    """Mean and second moment, token by token."""
    flat = tokens.double().numpy().reshape(-1, tokens.shape[-1])
    return flat.mean(axis=0), sum(np.outer(token, token) for token in flat) / len(flat)


@given(seeds, st.sampled_from([None, *range(FOLDS)]))
def test_moments_without_a_fold_are_those_of_the_other_images(seed, without):
    seen = looked_at(seed)
    inside = torch.ones(len(seen.views), dtype=torch.bool) if without is None else seen.folds[seen.views] != without
    for found, rows in ((seen.moments.taken(without), inside & seen.taken), (seen.moments.seen(without), inside)):
        for block, tokens in zip(found, seen.tokens, strict=True):
            mean, second = slow(tokens[rows])
            assert block.images == int(rows.sum()) and block.tokens == int(rows.sum()) * TEACHER.grid**2
            np.testing.assert_allclose(block.mean.numpy(), mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(block.second.numpy(), second, rtol=1e-9, atol=1e-12)
    for found, tokens in zip(seen.moments.places(without), seen.tokens, strict=True):
        np.testing.assert_allclose(found.numpy(), tokens[inside].double().numpy().mean(axis=0), rtol=1e-9, atol=1e-12)


@given(seeds, st.integers(IMAGES, ACQUIRED * IMAGES))
def test_photos_as_taken_are_never_most_of_what_is_seen(seed, acquisitions):
    """Of few acquisitions each counts as much as all but a sixth allows those as taken."""
    seen = looked_at(seed, acquisitions)
    weights = torch.where(seen.taken, acquisitions / (ACQUIRED * IMAGES), 1.0).double()
    for block, tokens in enumerate(seen.tokens):
        wide = tokens.double()
        means = torch.einsum("v,vtc->tc", weights, wide) / weights.sum()
        second = torch.einsum("v,vtc,vtd->cd", weights, wide, wide) / (weights.sum() * wide.shape[1])
        torch.testing.assert_close(seen.moments.places()[block], means, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(seen.moments.regions()[block].mean(dim=0), second, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(seen.moments.seen()[block].second, second, atol=0.05, rtol=0.05)  # whole tokens


@given(st.integers(1, 40), st.integers(1, 40))
def test_views_that_stand_for_acquisitions_are_all_of_these_and_few_as_taken(images, each):
    taken = torch.arange(images * (1 + each)) < images
    chosen = as_acquired(taken)
    assert bool(chosen[~taken].all())
    assert int(chosen[taken].sum()) == min(images, -(-images * each // ACQUIRED))


def test_leaving_a_fold_out_changes_them():
    seen = looked_at(0)
    for every, without in ((seen.moments.taken(), seen.moments.taken(2)), (seen.moments.seen(), seen.moments.seen(2))):
        assert not torch.allclose(every[0].mean, without[0].mean)


def test_arguments_are_not_modified():
    tokens, images = tokens_(4, 0), torch.arange(4)
    before = [block.clone() for block in tokens]
    FoldMoments(folds_of(IMAGES, 0), TEACHER, 4, 4).add(images, tokens, taken=True)
    assert all(torch.equal(a, b) for a, b in zip(tokens, before)) and torch.equal(images, torch.arange(4))


@given(seeds, st.sampled_from([None, 0, 3]))
def test_a_scorer_without_a_fold_is_fitted_to_the_other_images_alone(seed, without):
    """The raw reference to them as taken, the filtered and the placed ones to all their views."""
    seen, config = looked_at(seed), tiny()
    bases = tuple(
        torch.linalg.qr(torch.randn(c, c, generator=torch.Generator().manual_seed(c)))[0][:, :1] for c in (3, 5)
    )
    scorer = scorer_from(config, Operator(bases, (("photometric",),) * 2), seen.moments, without)
    by_place = placed_from(config, seen.moments, without)
    assert [len(each.white) for each in by_place["regional"]] == [TEACHER.grid**2] * 2
    inside = torch.ones(len(seen.views), dtype=torch.bool) if without is None else seen.folds[seen.views] != without
    for block, tokens in enumerate(seen.tokens):

        def moments(rows, tokens=tokens):
            fitter = MomentFitter()
            fitter.update(tokens[rows])
            return fitter.freeze()

        wanted = Linear.fit(moments(inside & seen.taken), config.variance)
        torch.testing.assert_close(scorer.reference[block](tokens), wanted(tokens), atol=1e-4, rtol=1e-4)
        filtered = Linear.fit(moments(inside), config.variance, bases[block])
        torch.testing.assert_close(scorer.filtered[block](tokens), filtered(tokens), atol=1e-4, rtol=1e-4)
        means = tokens[inside].double().mean(dim=0)
        placed = Placed.fit(moments(inside).second[None], means)
        torch.testing.assert_close(by_place["placed"][block](tokens), placed(tokens), atol=1e-3, rtol=1e-3)
        each = by_region(tokens[inside].double(), len(by_place["regional"][block].white)).flatten(1, 2)
        regional = Placed.fit(each.mT @ each / each.shape[1], means)
        torch.testing.assert_close(by_place["regional"][block](tokens), regional(tokens), atol=1e-3, rtol=1e-3)


@given(st.integers(8, 200), seeds)
def test_folds_are_even_and_follow_from_the_seed(count, seed):
    folds = folds_of(count, seed)
    sizes = torch.bincount(folds, minlength=FOLDS)
    assert len(folds) == count == int(sizes.sum()) and len(sizes) == FOLDS
    assert int(sizes.max() - sizes.min()) <= 1
    assert torch.equal(folds, folds_of(count, seed))


def test_another_seed_is_another_split():
    assert not torch.equal(folds_of(50, 0), folds_of(50, 1))


@given(st.integers(0, 500), st.integers(1, 60))
def test_views_are_shared_out_evenly_each_image_once_at_least_and_eight_times_at_most(views, count):
    images = torch.randperm(count, generator=torch.Generator().manual_seed(count)) * 2
    found = shared_out(views, images)
    names, counts = found.unique(return_counts=True)
    assert torch.equal(names, images.sort().values)
    assert len(found) == min(max(views, count), MOST * count)
    assert int(counts.max() - counts.min()) <= 1 and int(counts.max()) <= MOST
    assert len(shared_out(views, images, most=None)) == max(views, count)
