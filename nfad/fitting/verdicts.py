"""From what cross-fitting saw to a verdict: which evidence, how it is read, its threshold, and what is not judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nfad.config import PLACED, Config
from nfad.fitting.calibration import Calibrated, Inputs, statistics_of
from nfad.fitting.crossfit import (
    DAMAGED,
    FOLDS,
    ByPlace,
    FoldMoments,
    Look,
    Looked,
    as_acquired,
    fold_by_fold,
    folds_of,
    look_at_damaged,
    look_at_normals,
    placed_from,
    scorer_from,
    shared_out,
)
from nfad.fitting.doubts import doubts_of_scores, foreign
from nfad.fitting.reference import nudged_copies
from nfad.fitting.seen import Damaged, Seen
from nfad.fitting.telling import FLAWED, flaw_moments, strangest_tokens, telling
from nfad.fitting.tokens import TokenCache
from nfad.fitting.views import AcquiredViews, DamagedViews, FlawedViews, ViewCache
from nfad.reference.judgeable import Judgeable
from nfad.reference.reading import Reading
from nfad.reference.scoring import Scorer, calibrate
from nfad.system.progress import Progress
from nfad.vision.defects import SMALLEST
from nfad.vision.teacher import Teacher

LEAST = 1e-6  # a score this small is as good as none


def in_all_lights(
    config: Config,
    scorer: Scorer,
    cache: TokenCache,
    teacher: Teacher,
    held: Tensor,
    fit: Tensor,
    directory: Path,
    progress: Progress | None = None,
) -> Calibrated:
    """Everything from normals × acquisitions: of all normals where the reference is cross-fitted, else of those held
    out of it. `scorer` is a student's or of banks; linear references are made anew for each fold."""
    views = cache.views
    assert isinstance(views, ViewCache)
    folds = folds_of(len(views), config.seed)
    shuffled = held[torch.randperm(len(held), generator=torch.Generator().manual_seed(config.seed))]
    nudges = config.nudges > 0 or config.pose == "steadied"  # what bears a nudged camera tries it under acquisitions
    lit = AcquiredViews(views, shared_out(config.acquisitions, shuffled), config.seed, config.tile, nudges)
    (folder := directory / "acquired").mkdir()
    acquired = TokenCache(teacher, lit, config.at_once, folder, config.foreground, config.room)
    moments = FoldMoments(folds, teacher, len(fit) * (1 + config.nudges), len(lit))
    for chosen in fold_by_fold(fit, folds[fit]).split(config.at_once):
        moments.add(chosen, cache.read(chosen)[0], taken=True)
    for chosen, tokens in nudged_copies(config, cache, teacher, fit, progress):
        moments.add(chosen, tokens, taken=True)
    together = fold_by_fold(torch.arange(len(lit)), folds[lit.images])
    for indices, tokens, _ in acquired.fill(progress, "trying acquisitions", together):
        moments.add(lit.images[indices], tokens, taken=False)
    banks = None if config.reference == "linear" else scorer
    whole = scorer if config.reference == "student" else scorer_from(config, scorer.operator, moments, None, banks)
    whole = calibrate(whole, lambda: _inputs(config, whole, cache, fit))
    scorers, placed = dict.fromkeys(range(FOLDS), whole), dict.fromkeys(range(FOLDS), ByPlace())
    if config.cross_fitted:
        each = {fold: scorer_from(config, scorer.operator, moments, fold, banks) for fold in range(FOLDS)}
        scorers = {fold: dataclasses.replace(other, tau=whole.tau) for fold, other in each.items()}
        placed = {fold: placed_from(config, moments, fold) for fold in range(FOLDS)}
    look, by_place = Look(config, folds, scorers, placed), placed_from(config, moments)
    if by_place and config.size >= SMALLEST and not config.tiled:
        count = min(FLAWED, config.acquisitions)
        flaws = FlawedViews(views, shared_out(count, shuffled, most=None)[:count], config.seed)
        response = flaw_moments(config, flaws, cache, teacher, progress)
        strangest = strangest_tokens(look, moments, cache, acquired, teacher, held)
        by_place = telling(by_place, strangest, response)
        for fold, each in placed.items():  # of the look; one at a time, for all of them twice would not fit everywhere
            placed[fold] = telling(each, strangest, response, fold)
    normals = look_at_normals(look, cache, acquired, held)
    damaged = None
    if config.size >= SMALLEST:
        count = min(DAMAGED, config.acquisitions)
        chosen = shared_out(count, shuffled, most=None)[:count]
        hurt = DamagedViews(views, chosen, config.seed, teacher.region, config.tile, nudges)
        damaged = look_at_damaged(look, hurt, teacher, progress)
    return learn(config, whole, by_place, folds, normals, damaged)


def _inputs(config: Config, scorer: Scorer, cache: TokenCache, indices: Tensor) -> Iterator[Inputs]:
    for chosen in indices.split(config.at_once):
        tokens, prior = cache.read(chosen)
        exclude = chosen if config.reference == "nearest" else None
        where = prior if config.foreground else None
        yield tokens, scorer.predicted(cache.views(chosen)), exclude, where, None, cache.shown(chosen)


def learn(
    config: Config, scorer: Scorer, by_place: ByPlace, folds: Tensor, normals: Looked, damaged: Looked | None
) -> Calibrated:
    """Of what the folds' scorers saw: which evidence, how it is read, its threshold, and what is not judged."""
    clean, told = normals.taken, as_acquired(normals.taken)
    own = told & ~torch.isin(normals.images, foreign(normals.images[clean], normals.content[clean]))
    judgeable, strangeness = Judgeable.fit(normals.content[own], normals.numbers[own], folds[normals.images][own])
    strangeness = torch.full((len(own),), torch.nan).masked_scatter(own, strangeness)
    reads = {name: _Read.of(name, folds, normals) for name in config.candidates}
    each = {name: _seen_by(read, folds, normals, damaged, strangeness) for name, read in reads.items()}
    found = {name: share for name, (_, seen) in each.items() if (share := seen.found()) is not None}
    evidence = max(found, key=found.__getitem__) if found else config.candidates[0]
    read, (normal_maps, seen) = reads[evidence], each[evidence]
    chosen = {"placed": by_place[evidence], "filtered": None} if evidence in PLACED else {}
    return Calibrated(
        scorer=dataclasses.replace(scorer, reading=read.whole, **chosen),
        normal_maps=normal_maps,
        held_out=seen.held_out(),
        normals=seen.normals(),
        judgeable=judgeable,
        choice=seen.choice(evidence, found, config.false_alarm_rate),
        doubts=tuple(doubts_of_scores(normals.images[clean], read.log_scores[clean], normals.content[clean])),
        seen=seen,
    )


def _seen_by(
    read: _Read, folds: Tensor, normals: Looked, damaged: Looked | None, strangeness: Tensor
) -> tuple[dict[str, tuple[float, float]], Seen]:
    """The units of an evidence's maps, and in them what it says of all views."""
    clean = normals.taken
    maps = {"control": normals.maps["unfiltered"][clean], "detection": read.maps(normals.maps[read.name])[clean]}
    if "localization" in normals.maps:
        maps["localization"] = read.maps(normals.maps["localization"])[clean]
    normal_maps = {name: statistics_of(each) for name, each in maps.items()}

    def in_units(values: Tensor, name: str) -> Tensor:
        return (values - normal_maps[name][0]) / normal_maps[name][1]

    def token_maps(looked: Looked, expected: Tensor) -> dict[str, Tensor]:
        if not looked.token_maps:
            return {}
        factor = torch.exp(-expected).float()[:, None]
        each = {"detection": looked.token_maps[read.name] * factor, "control": looked.token_maps["unfiltered"]}
        return {name: in_units(maps, name) for name, maps in each.items()}

    bad = None
    if damaged is not None:
        expected = read.of_damaged(folds, damaged)
        bad = Damaged(
            damaged.taken,
            scores=in_units((log_scores_of(damaged.maps[read.name]) - expected).exp(), "detection"),
            unfiltered=in_units(damaged.maps["unfiltered"][:, 0], "control"),
            token_maps=token_maps(damaged, expected),
        )
    return normal_maps, Seen(
        normals.images,
        clean,
        scores=in_units(read.log_scores.exp(), "detection"),
        unfiltered=in_units(normals.maps["unfiltered"][:, 0], "control"),
        token_maps=token_maps(normals, read.expected),
        spread=normals.spread,
        strangeness=strangeness,
        damaged=bad,
    )


def log_scores_of(numbers: Tensor) -> Tensor:
    """Of maps by their numbers, before any z-score."""
    return numbers[:, 0].clamp(min=LEAST).log()


@dataclass(frozen=True)
class _Read:
    """One evidence of normals × acquisitions, read out of fold."""

    name: str
    whole: Reading | None  # of all folds; None where nothing is removed and so nothing can tell the light
    by_fold: dict[int, Reading]
    expected: Tensor  # of each view, by the reading of the other folds
    log_scores: Tensor  # read

    @classmethod
    def of(cls, name: str, folds: Tensor, looked: Looked) -> _Read:
        log_scores = log_scores_of(looked.maps[name])
        if not looked.coordinates.shape[1]:
            return cls(name, None, {}, torch.zeros_like(log_scores), log_scores)
        of_view = folds[looked.images]

        def reading(rows: Tensor) -> Reading:
            found = looked.coordinates[rows], looked.numbers[rows], log_scores[rows]
            return Reading.fit(*found, looked.images[rows], looked.taken[rows])

        by_fold = {fold: reading(of_view != fold) for fold in of_view.unique().tolist()}
        expected = _expected(by_fold, of_view, looked)
        return cls(name, reading(of_view >= 0), by_fold, expected, log_scores - expected)

    def maps(self, numbers: Tensor) -> Tensor:
        """Numbers of the read maps."""
        factor = torch.exp(-self.expected)
        return numbers * torch.stack([factor, factor, factor.square()], dim=1)

    def of_damaged(self, folds: Tensor, looked: Looked) -> Tensor:
        """What is expected of each of these views, by the reading of the other folds."""
        return _expected(self.by_fold, folds[looked.images], looked)


def _expected(by_fold: dict[int, Reading], folds: Tensor, looked: Looked) -> Tensor:
    expected = torch.zeros(len(folds), dtype=torch.float64)
    for fold, reading in by_fold.items():
        rows = folds == fold
        expected[rows] = reading.expected(looked.coordinates[rows], looked.numbers[rows]).double()
    return expected
