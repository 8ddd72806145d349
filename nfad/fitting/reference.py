"""The reference of a fit, and the one place where it, the operator and their order are put together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from nfad.config import Config
from nfad.fitting.tokens import TokenCache
from nfad.operator import MomentFitter, Moments
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest, choose_entries
from nfad.reference.scoring import Operator, Scorer, scorer_settings
from nfad.reference.training import train_student
from nfad.system.progress import Progress
from nfad.vision.nudging import nudged
from nfad.vision.teacher import Teacher


def normal_moments(store: TokenCache, teacher: Teacher, fit: Tensor, progress: Progress | None) -> list[Moments]:
    fitters = [MomentFitter() for _ in teacher.channels]
    for indices, tokens, _ in store.fill(progress):
        chosen = torch.isin(indices, fit)
        if chosen.any():
            for fitter, block in zip(fitters, tokens, strict=True):
                fitter.update(block[chosen])
    return [fitter.freeze() for fitter in fitters]


def build_scorer(
    config: Config,
    operator: Operator,
    normal: list[Moments],
    store: TokenCache,
    teacher: Teacher,
    fit: Tensor,
    progress: Progress | None,
    workdir: Path | None,
) -> Scorer:
    """The one place where a reference and an order are put together."""
    kept = scorer_settings(config)
    if config.reference == "student":

        def batch_of(positions: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
            tokens, prior = store.read(fit[positions])
            return store.views(fit[positions]), tokens, prior

        def report(epoch: int, epochs: int, loss: float) -> None:
            if progress:
                progress(f"training the student (loss {loss:.4f})", epoch, epochs)

        checkpoint = workdir / "student.safetensors" if workdir else None
        student = train_student(
            config, teacher.channels, len(fit), batch_of, checkpoint, report, teacher.grid, device=teacher.device
        )
        return Scorer(operator, student, **kept)
    if config.reference == "nearest":
        reference = _banks(config, store, teacher, fit, progress)
        filtered = tuple(Nearest.filtered(bank, basis) for bank, basis in zip(reference, operator.bases, strict=True))
        reference, filtered = (tuple(bank.to(teacher.device) for bank in banks) for banks in (reference, filtered))
    else:
        if config.nudges and not config.cross_fitted:  # which adds them fold by fold
            normal = _with_nudged(normal, nudged_copies(config, store, teacher, fit, progress))
        reference = tuple(Linear.fit(moments, config.variance) for moments in normal)
        filtered = tuple(
            Linear.fit(moments, config.variance, basis) for moments, basis in zip(normal, operator.bases, strict=True)
        )
    return Scorer(operator, reference, None if config.order == "fit-then-filter" else filtered, **kept)


Copies = Iterator[tuple[Tensor, list[Tensor]]]  # images and their tokens, batch by batch


def nudged_copies(
    config: Config, store: TokenCache, teacher: Teacher, fit: Tensor, progress: Progress | None
) -> Copies:
    """Every fitted image as a nudged camera would see it, all of them once, then again."""
    generator = torch.Generator().manual_seed(config.seed)
    done = 0
    for chosen in (batch for _ in range(config.nudges) for batch in fit.split(config.at_once)):
        yield chosen, teacher.tokens(nudged(store.views(chosen), generator))
        done += len(chosen)
        if progress:
            progress("nudging the camera", done, config.nudges * len(fit))


def _with_nudged(normal: list[Moments], copies: Copies) -> list[Moments]:
    fitters = [MomentFitter() for _ in normal]
    for _, tokens in copies:
        for fitter, block in zip(fitters, tokens, strict=True):
            fitter.update(block)
    return [moments.pooled(fitter.freeze()) for moments, fitter in zip(normal, fitters, strict=True)]


def _banks(
    config: Config, store: TokenCache, teacher: Teacher, fit: Tensor, progress: Progress | None
) -> tuple[Nearest, ...]:
    """The cap is spread over the images and their nudged copies alike; a copy's tokens are its image's own."""
    entries = choose_entries((1 + config.nudges) * len(fit), teacher.grid**2, config.bank, config.seed)
    rows: list[list[Tensor]] = [[] for _ in teacher.channels]
    seen = ((chosen, store.read(chosen)[0]) for chosen in fit.split(config.at_once))
    place = 0
    for chosen, tokens in chain(seen, nudged_copies(config, store, teacher, fit, progress)):
        for position in range(len(chosen)):
            picked = entries[entries[:, 0] == place, 1]
            for block, t in enumerate(tokens):
                rows[block].append(t[position, picked])
            place += 1
    return tuple(Nearest(torch.cat(block), fit[entries[:, 0] % len(fit)]) for block in rows)
