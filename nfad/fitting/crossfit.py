"""Normals × acquisitions: every view of a normal is scored by a reference that has not seen the part.

Moments are additive, so that leaving a tenth of the normals out costs an eigendecomposition and no pass. The scores so
found set the threshold, the reading and the limit of what is judged; the final reference is fitted to all normals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from nfad.config import PLACED, Config
from nfad.fitting.tokens import TokenCache, look_at
from nfad.fitting.views import AcquiredViews, DamagedViews
from nfad.operator import MomentFitter, Moments
from nfad.reference.judgeable import quarter_tokens
from nfad.reference.linear import Linear
from nfad.reference.placed import Placed, by_region, by_square, places_a_side, regions_a_side
from nfad.reference.reading import coordinates
from nfad.reference.scoring import Operator, Scorer, mean_of, scorer_settings, where_shown
from nfad.system.progress import Progress
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.photo import photo_numbers
from nfad.vision.pose import shown_by
from nfad.vision.region import looked_at
from nfad.vision.teacher import Teacher

FOLDS = 10
MOST = 8  # acquisitions of one normal
ACQUIRED = 5  # acquisitions for one photo as taken, at the least: of many photos the latter would else be most
AT_ONCE = 2**22  # pixels of maps
DAMAGED = 84  # synthetic defects at most, half of them as taken: six of each of the seven kinds in either light


def folds_of(count: int, seed: int) -> Tensor:
    """Each image's fold, at random by the seed, as even as can be."""
    folds = torch.empty(count, dtype=torch.long)
    folds[torch.randperm(count, generator=torch.Generator().manual_seed(seed))] = torch.arange(count) % FOLDS
    return folds


def fold_by_fold(views: Tensor, folds: Tensor) -> Tensor:
    """These views, those of one fold together: every batch then asks few scorers, whose matrices are larger than it."""
    return views[folds.argsort(stable=True)]


def shared_out(views: int, images: Tensor, most: int | None = MOST) -> Tensor:
    """Which image each of this many views is of: all alike, each at least once and at most so often."""
    count = max(views, len(images))
    return images.repeat(-(-count // len(images)))[: count if most is None else min(count, most * len(images))]


def as_acquired(taken: Tensor) -> Tensor:
    """The views that stand for normals × acquisitions: all of these, and of those as taken one for so many."""
    count = -(-int((~taken).sum()) // ACQUIRED)
    chosen, here = ~taken, taken.nonzero()[:, 0]
    chosen[here[torch.linspace(0, len(here) - 1, min(count, len(here))).round().long()]] = True
    return chosen


ByPlace = dict[str, tuple[Placed, ...]]  # evidence → one a block


class FoldMoments:
    """Per fold and block: moments of tokens as taken and of all views, and the sums over each place and region."""

    def __init__(self, folds: Tensor, teacher: Teacher, taken: int, acquired: int) -> None:
        """`taken` and `acquired` views will be added."""
        views, self.weight = taken + acquired, min(1.0, acquired / (ACQUIRED * taken))  # of one as taken
        self._folds, self._blocks = folds, range(len(teacher.channels))
        self._taken = [[MomentFitter() for _ in self._blocks] for _ in range(FOLDS)]
        self._acquired = [[MomentFitter() for _ in self._blocks] for _ in range(FOLDS)]
        self._tokens, places = teacher.grid**2, places_a_side(teacher.grid) ** 2
        self._places = [[torch.zeros(places, c, dtype=torch.float64) for c in teacher.channels] for _ in range(FOLDS)]
        regions = [regions_a_side(teacher.grid, c, views) ** 2 for c in teacher.channels]
        self._regions = [
            [torch.zeros(count, c, c) for count, c in zip(regions, teacher.channels, strict=True)] for _ in range(FOLDS)
        ]
        self._views = [0.0] * FOLDS

    def add(self, images: Tensor, tokens: list[Tensor], taken: bool) -> None:
        """Views of these images, as taken or under an acquisition."""
        folds, weight = self._folds[images], self.weight if taken else 1.0
        for fold in folds.unique().tolist():
            chosen = folds == fold
            self._views[fold] += weight * int(chosen.sum())
            fitters = (self._taken if taken else self._acquired)[fold]
            sums = zip(fitters, self._places[fold], self._regions[fold], tokens, strict=True)
            for block, places, regions, t in sums:
                block.update(t[chosen])
                places += weight * by_square(t[chosen].double().sum(dim=0))
                grouped = by_region(t[chosen], len(regions)).flatten(1, 2)
                regions.baddbmm_(grouped.mT, grouped, alpha=weight)

    def taken(self, without: int | None = None) -> list[Moments]:
        """Of the normals as taken, of all folds but one."""
        return [self._pooled([self._taken[fold][block] for fold in self._all_but(without)]) for block in self._blocks]

    def seen(self, without: int | None = None) -> list[Moments]:
        """Of all their views, those as taken by their weight."""
        acquired = [
            self._pooled([self._acquired[fold][block] for fold in self._all_but(without)]) for block in self._blocks
        ]
        return [
            taken.weighing(self.weight).pooled(lit) for taken, lit in zip(self.taken(without), acquired, strict=True)
        ]

    def places(self, without: int | None = None) -> list[Tensor]:
        """Every place's mean token, of all views."""
        views, sums = self._sums(self._places, without)
        return [each / views for each in sums]

    def regions(self, without: int | None = None) -> list[Tensor]:
        """Every region's second moment, of all views."""
        views, sums = self._sums(self._regions, without)
        return [each * len(each) / (self._tokens * views) for each in sums]

    def _sums(self, by_fold: list[list[Tensor]], without: int | None) -> tuple[float, list[Tensor]]:
        """Views, and each block's sum over them, of all folds but one."""
        folds = self._all_but(without)
        sums = [torch.zeros_like(block, dtype=torch.float64) for block in by_fold[0]]
        for fold in folds:
            for total, block in zip(sums, by_fold[fold], strict=True):
                total += block
        return sum(self._views[fold] for fold in folds), sums

    def _all_but(self, without: int | None) -> list[int]:
        return [fold for fold in range(FOLDS) if fold != without and self._views[fold]]

    @staticmethod
    def _pooled(fitters: list[MomentFitter]) -> Moments:
        return reduce(Moments.pooled, (fitter.freeze() for fitter in fitters))


def scorer_from(
    config: Config, operator: Operator, moments: FoldMoments, without: int | None = None, banks: Scorer | None = None
) -> Scorer:
    """The closed-form scorer of all folds, or of all but one; `banks` is a scorer over banks, which know their images.

    The raw reference is of normals as taken: what a detector without any of this would be. The filtered one sees
    their acquisitions, too.
    """
    if banks is not None:
        return banks
    filtered = None
    if config.order == "filter-then-fit":
        each = zip(moments.seen(without), operator.bases, strict=True)
        filtered = tuple(Linear.fit(block, config.variance, basis) for block, basis in each)
    raw = tuple(Linear.fit(block, config.variance) for block in moments.taken(without))
    return Scorer(operator, raw, filtered, **scorer_settings(config))


def placed_from(config: Config, moments: FoldMoments, without: int | None = None) -> ByPlace:
    """The evidence by place that is asked for, of all views of all folds, or of all but one."""
    wanted = [name for name in PLACED if name in config.candidates]
    if not wanted:
        return {}
    blocks = list(zip(moments.regions(without), moments.places(without), strict=True))
    each = {
        "placed": lambda second, means: Placed.fit(second.mean(dim=0, keepdim=True), means),
        "regional": Placed.fit,
    }
    return {name: tuple(each[name](*block) for block in blocks) for name in wanted}


@dataclass(frozen=True)
class Looked:
    """What was found of some views, one row a view: numbers of their maps by name, unread, and of themselves."""

    images: Tensor
    taken: Tensor  # bool: not under an acquisition
    # unfiltered, filtered, evidence by place; localization, where it is a map of its own: see `map_numbers`
    maps: dict[str, Tensor]
    token_maps: dict[str, Tensor]  # the same maps as they were, where they are wanted: see `joined_by`
    coordinates: Tensor
    content: Tensor  # mean tokens
    numbers: Tensor  # of the photo
    spread: dict[str, Tensor]  # participation, nuisance_fraction, nuisance:FAMILY

    @staticmethod
    def joined(parts: list[Looked]) -> Looked:
        def cat(name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        def by_name(name: str) -> dict[str, Tensor]:
            return {key: torch.cat([getattr(part, name)[key] for part in parts]) for key in getattr(parts[0], name)}

        return Looked(
            cat("images"), cat("taken"), by_name("maps"), by_name("token_maps"), cat("coordinates"), cat("content"),
            cat("numbers"), by_name("spread"),
        )  # fmt: skip


def joined_by(config: Config) -> str:
    """What of two looks is averaged: of tiles, whose maps a fit cannot hold all at once, their scores."""
    return "scores" if config.tiled else "maps"


@torch.inference_mode()
def mean_map_scores(config: Config, looks: Sequence[Tensor]) -> Tensor:
    """Of the mean of several looks' maps, each by its tokens."""
    some = zip(*(tokens.split(max(1, AT_ONCE // config.size**2)) for tokens in looks), strict=True)
    means = (mean_of([pixel_maps(tokens, config.size, config.sigma) for tokens in each]) for each in some)
    return torch.cat([image_score(maps, config.scored_fraction) for maps in means]).double()


@torch.inference_mode()
def map_numbers(config: Config, token_maps: Tensor) -> Tensor:
    """All that a fit keeps of an image's pixel map, a row each: its score, mean and mean square. What reading
    does to the map can be done to them: the first two are linear in it, the last is quadratic."""
    some = token_maps.split(max(1, AT_ONCE // config.size**2))
    found = []
    for maps in (pixel_maps(each, config.size, config.sigma) for each in some):
        flat = maps.flatten(1).double()
        score = image_score(maps, config.scored_fraction).double()
        found.append(torch.stack([score, flat.mean(dim=1), flat.square().mean(dim=1)], dim=1))
    return torch.cat(found)


@dataclass(frozen=True)
class Look:
    """Views → what each evidence says of them, by the scorer of their fold."""

    config: Config
    folds: Tensor
    scorers: dict[int, Scorer]
    placed: dict[int, ByPlace]

    @torch.inference_mode()
    def __call__(
        self,
        images: Tensor,
        taken: Tensor,
        tokens: list[Tensor],
        prior: Tensor,
        numbers: Tensor,
        predicted: list[Tensor] | None,
        shown: Tensor | None = None,
        undone: Tensor | None = None,
    ) -> Iterator[Looked]:
        for fold in self.folds[images].unique().tolist():
            rows = self.folds[images] == fold
            scorer = self.scorers[fold]
            some = [block[rows] for block in tokens]
            inputs = (
                some,
                None if predicted is None else [block[rows] for block in predicted],
                images[rows] if self.config.reference == "nearest" else None,
                prior[rows] if self.config.foreground else None,
            )
            counts, first = (None if each is None else each[rows] for each in (shown, undone))
            out = scorer(*inputs, shown=counts, undone=first)
            maps = {"unfiltered": out.control, "filtered": out.detection}
            if out.localization is not None:
                maps["localization"] = out.localization
            for name, placed in self.placed[fold].items():
                maps[name] = where_shown(scorer.placed_map(placed, some, inputs[-1]), counts, scorer.common_mode)
            spread = {"participation": out.participation, "nuisance_fraction": out.nuisance_fraction}
            spread |= {f"nuisance:{family}": share for family, share in out.nuisance_by_family.items()}
            told = {name: map_numbers(self.config, each) for name, each in maps.items()}
            yield Looked(
                images[rows], taken[rows], told, maps if joined_by(self.config) == "maps" else {},
                coordinates(some, scorer.operator.bases), quarter_tokens(some), numbers[rows], spread,
            )  # fmt: skip


def normals_seen(
    look: Look, cache: TokenCache, acquired: TokenCache, scored: Tensor
) -> Iterator[tuple[TokenCache, Tensor, Tensor, bool]]:
    """Every view of the scored images, some at a time: where its tokens are and at which places, of which images, and
    whether they are as taken."""
    lit, batch = acquired.views, look.config.at_once
    assert isinstance(lit, AcquiredViews)
    for chosen in fold_by_fold(scored, look.folds[scored]).split(batch):
        yield cache, chosen, chosen, True
    for chosen in fold_by_fold(torch.arange(len(lit)), look.folds[lit.images]).split(batch):
        yield acquired, chosen, lit.images[chosen], False


def look_at_normals(look: Look, cache: TokenCache, acquired: TokenCache, scored: Tensor) -> Looked:
    """Every view of the scored images, from tokens that are there already."""
    found = []
    for source, chosen, images, taken in normals_seen(look, cache, acquired, scored):
        tokens, prior = source.read(chosen)
        student = look.scorers[0].predicted(source.views(chosen)) if look.config.reference == "student" else None
        of = torch.full((len(chosen),), taken), tokens, prior, source.numbers[chosen], student, source.shown(chosen)
        found += look(images, *of, source.undone(chosen))
    return Looked.joined(found)


def look_at_damaged(look: Look, views: DamagedViews, teacher: Teacher, progress: Progress | None = None) -> Looked:
    """Synthetic defects on out-of-fold normals: one more teacher pass each."""
    found, done = [], 0
    for chosen in fold_by_fold(torch.arange(len(views)), look.folds[views.images]).split(look.config.at_once):
        seen, boxes = views.placed(chosen)
        tokens, prior = look_at(teacher, seen, look.config.foreground)
        student = look.scorers[0].predicted(seen)
        taken = views.as_taken[chosen]
        numbers = photo_numbers(looked_at(teacher.region, seen))
        shown = shown_by(views.pose, boxes, teacher.grid)
        found += look(views.images[chosen], taken, tokens, prior, numbers, student, shown)
        done += len(chosen)
        if progress:
            progress("trying synthetic defects", done, len(views))
    return Looked.joined(found)
