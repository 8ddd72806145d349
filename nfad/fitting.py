"""The steps of a fit, in order: readable images, the split, moments of normals, the scorer, its maps' statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nfad.config import Config
from nfad.errors import NfadError
from nfad.operator import MomentFitter, Moments
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest, choose_entries
from nfad.scoring import MAPS, Operator, Scorer
from nfad.tokens import Progress, TokenStore
from nfad.training import train_student
from nfad.vision.images import ImageLike, load_part
from nfad.vision.maps import pixel_maps
from nfad.vision.nudging import nudged
from nfad.vision.teacher import Teacher

Skip = Callable[[ImageLike, str], None]
Inputs = tuple[list[Tensor], Tensor | None, Tensor | None, Tensor | None]  # tokens, views, own index, prior


def readable(images: Sequence[ImageLike], skip: Skip | None, progress: Progress | None) -> list[ImageLike]:
    """Every image is opened once before the long work begins: a bad one shows up now, not in an hour."""
    good: list[ImageLike] = []
    images = list(images)
    for index, image in enumerate(images):
        try:
            load_part(image)
            good.append(image)
        except NfadError as error:
            if skip is None:
                raise
            skip(image, str(error))
        if progress and (index % 16 == 15 or index + 1 == len(images)):
            progress("checking images", index + 1, len(images))
    if len(good) < 8:
        raise NfadError(f"a fit needs at least 8 readable normal images; got {len(good)}")
    return good


def split(count: int, config: Config) -> tuple[Tensor, Tensor]:
    """Held-out and fitted images, at random by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    held = min(max(1, round(config.holdout * count)), count - 4)
    return order[:held].sort().values, order[held:].sort().values


def normal_moments(store: TokenStore, teacher: Teacher, fit: Tensor, progress: Progress | None) -> list[Moments]:
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
    store: TokenStore,
    teacher: Teacher,
    fit: Tensor,
    progress: Progress | None,
    workdir: Path | None,
) -> Scorer:
    """The one place where a reference and an order are put together."""
    kept = {"gate_by": config.gate, "common_mode": config.common_mode, "localization": config.localization}
    if config.reference == "student":

        def batch_of(positions: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
            tokens, prior = store.read(fit[positions])
            return store.views(fit[positions]), tokens, prior

        def report(epoch: int, epochs: int, loss: float) -> None:
            if progress:
                progress(f"training the student (loss {loss:.4f})", epoch, epochs)

        checkpoint = workdir / "student.safetensors" if workdir else None
        student = train_student(
            config, teacher.channels, len(fit), batch_of, checkpoint=checkpoint, progress=report, grid=teacher.grid
        )
        return Scorer(operator, student, **kept)
    if config.reference == "nearest":
        reference = _banks(config, store, teacher, fit, progress)
        filtered = tuple(Nearest.filtered(bank, basis) for bank, basis in zip(reference, operator.bases, strict=True))
    else:
        if config.nudges:
            normal = _with_nudged(normal, _nudged(config, store, teacher, fit, progress))
        reference = tuple(Linear.fit(moments, config.variance) for moments in normal)
        filtered = tuple(
            Linear.fit(moments, config.variance, basis) for moments, basis in zip(normal, operator.bases, strict=True)
        )
    return Scorer(operator, reference, None if config.order == "fit-then-filter" else filtered, **kept)


Copies = Iterator[tuple[Tensor, list[Tensor]]]  # images and their tokens, batch by batch


def _nudged(config: Config, store: TokenStore, teacher: Teacher, fit: Tensor, progress: Progress | None) -> Copies:
    """Every fitted image as a nudged camera would see it, all of them once, then again."""
    generator = torch.Generator().manual_seed(config.seed)
    done = 0
    for chosen in (batch for _ in range(config.nudges) for batch in fit.split(config.batch)):
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
    config: Config, store: TokenStore, teacher: Teacher, fit: Tensor, progress: Progress | None
) -> tuple[Nearest, ...]:
    """The cap is spread over the images and their nudged copies alike; a copy's tokens are its image's own."""
    entries = choose_entries((1 + config.nudges) * len(fit), teacher.grid**2, config.bank, config.seed)
    rows: list[list[Tensor]] = [[] for _ in teacher.channels]
    seen = ((chosen, store.read(chosen)[0]) for chosen in fit.split(config.batch))
    place = 0
    for chosen, tokens in chain(seen, _nudged(config, store, teacher, fit, progress)):
        for position in range(len(chosen)):
            picked = entries[entries[:, 0] == place, 1]
            for block, t in enumerate(tokens):
                rows[block].append(t[position, picked])
            place += 1
    return tuple(Nearest(torch.cat(block), fit[entries[:, 0] % len(fit)]) for block in rows)


def map_statistics(config: Config, scorer: Scorer, batches: Iterable[Inputs]) -> dict[str, tuple[float, float]]:
    """Scalar mean and spread over all pixels of each read-out's training maps."""
    sums = {name: np.zeros(3) for name in MAPS}
    with torch.inference_mode():
        for inputs in batches:
            out = scorer(*inputs)
            for name in MAPS:
                maps = pixel_maps(getattr(out, name), config.size, config.sigma).double()
                sums[name] += np.array([maps.numel(), maps.sum(), maps.square().sum()])
    statistics = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        statistics[name] = (float(mean), float(max(np.sqrt(max(squares / count - mean**2, 0)), 1e-12)))
    return statistics
