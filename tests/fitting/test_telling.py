from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import tiny

from nfad.fitting.crossfit import FOLDS, Look, placed_from
from nfad.fitting.telling import ENOUGH, FEWEST, SHARE, Strangest, flaw_moments, telling
from nfad.fitting.views import FlawedViews, ViewCache
from nfad.reference.scoring import Operator, Scorer

from .test_crossfit import IMAGES, TEACHER, looked_at

seeds = st.integers(0, 2**31)


def strangest_of(seen, tokens=None):
    operator = Operator(tuple(torch.zeros(c, 0) for c in TEACHER.channels), ((), ()))
    scorer, config = Scorer(operator, (), common_mode=True), tiny()
    placed = {fold: placed_from(config, seen.moments, fold) for fold in range(FOLDS)}
    look = Look(config, seen.folds, dict.fromkeys(range(FOLDS), scorer), placed)
    found = Strangest(look, seen.moments, TEACHER.channels)
    for chosen in [*torch.arange(IMAGES).split(4), *torch.arange(IMAGES, len(seen.views)).split(4)]:
        some = [block[chosen] for block in tokens or seen.tokens]
        prior = torch.zeros(len(chosen), TEACHER.grid**2)
        found.add(seen.views[chosen], some, prior, taken=bool(seen.taken[chosen][0]))
    return found


def test_all_tokens_of_a_small_view_are_its_strangest():
    """Four there are, and four count: the spread about the places' means, each without the image's own fold."""
    assert TEACHER.grid**2 == FEWEST
    seen = looked_at(3)
    found = strangest_of(seen)
    for block, tokens in enumerate(seen.tokens):
        wanted = np.zeros((tokens.shape[-1],) * 2)
        for view, image in zip(tokens.double().numpy(), seen.views.tolist(), strict=True):
            off = view - seen.moments.places(int(seen.folds[image]))[block].numpy()
            wanted += off.T @ off
        np.testing.assert_allclose(found.of("placed")[block].numpy(), wanted, rtol=1e-4)


def test_few_photos_say_little_of_what_others_have_that_is_odd():
    assert strangest_of(looked_at(0)).share == pytest.approx(SHARE * IMAGES / ENOUGH)


@given(seeds, st.integers(0, FOLDS - 1))
def test_without_a_fold_its_images_move_nothing(seed, without):
    seen = looked_at(seed)
    own = seen.folds[seen.views] == without
    changed = [torch.where(own[:, None, None], 3 - block, block) for block in seen.tokens]
    before, after = strangest_of(seen), strangest_of(seen, changed)
    for name in ("placed", "regional"):
        for one, other in zip(before.of(name, without), after.of(name, without), strict=True):
            assert torch.equal(one, other)
        assert not torch.equal(before.of(name)[0], after.of(name)[0])
    flaws = [torch.eye(c, dtype=torch.float64) for c in TEACHER.channels]
    placed = placed_from(tiny(), seen.moments, without)
    each = [telling(placed, found, flaws, without)["regional"][1].white for found in (before, after)]
    assert torch.equal(*each)


@pytest.mark.parametrize("at_once", [3, 16])
def test_every_flaw_counts_alike(at_once, tmp_path):
    """Against the sum by hand: the outer product of what each flaw does to every token, its own size taken out."""
    random = np.random.default_rng(0)
    photos = [random.integers(60, 200, (64, 64, 3)).astype(np.uint8) for _ in range(8)]
    views = ViewCache.read(photos, 64, None, tmp_path)

    def tokens(views):
        return [torch.nn.functional.avg_pool2d(views, 16).flatten(2).mT]

    flaws = FlawedViews(views, torch.tensor([4, 0, 1, 2, 3, 4, 0]), seed=5)
    cache = SimpleNamespace(read=lambda indices: (tokens(views(indices)), None))
    teacher = SimpleNamespace(channels=(3,), tokens=tokens)
    [found] = flaw_moments(SimpleNamespace(at_once=at_once), flaws, cache, teacher)
    wanted = np.zeros((3, 3))
    for index, image in enumerate(flaws.images.tolist()):
        [after], [before] = (tokens(each) for each in (flaws(torch.tensor([index])), views(torch.tensor([image]))))
        off = (after - before)[0].double().numpy()
        wanted += off.T @ off / np.square(off).sum()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)
    assert np.trace(wanted) == pytest.approx(7, rel=1e-6)
