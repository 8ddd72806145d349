"""Which deviations tell a defect: those that flaws cause, and not those that the strangest normal tokens have.

The nuisance operator is learned from pairs of a normal and the same in another light; here the pairs are a normal and
the same with a flaw. Both are of normals alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nfad.config import Config
from nfad.fitting.crossfit import FOLDS, ByPlace, FoldMoments, Look, normals_seen
from nfad.fitting.tokens import TokenCache
from nfad.fitting.views import FlawedViews
from nfad.reference.placed import by_token
from nfad.reference.scoring import where_shown
from nfad.system.progress import Progress
from nfad.vision.teacher import Teacher

FLAWED = 96  # views at most, twelve of each kind
STRANGEST, FEWEST = 0.02, 4  # of a view's tokens, and how many at the least
SHARE, ENOUGH = 0.5, 60  # of the spread that is theirs, and the photos for it: few say little of what is odd in others


@torch.inference_mode()
def flaw_moments(
    config: Config, views: FlawedViews, cache: TokenCache, teacher: Teacher, progress: Progress | None = None
) -> list[Tensor]:
    """Each block's second moment of how tokens move when a flaw is drawn; every flaw counts alike, large or small."""
    sums = [torch.zeros(c, c, dtype=torch.float64) for c in teacher.channels]
    for chosen in torch.arange(len(views)).split(config.at_once):
        before, _ = cache.read(views.images[chosen])
        for total, after, t in zip(sums, teacher.tokens(views(chosen)), before, strict=True):
            response = (after - t).flatten(1)
            response = (response / response.norm(dim=1, keepdim=True).clamp(min=1e-12)).reshape(-1, t.shape[-1])
            total += (response.T @ response).double()
        if progress:
            progress("learning flaws", int(chosen[-1]) + 1, len(views))
    return sums


class Strangest:
    """By evidence, fold and block: the second moment of the deviations of those tokens that a reference without the
    part finds strangest in each view of it."""

    def __init__(self, look: Look, moments: FoldMoments, channels: Sequence[int]) -> None:
        self._look, self._moments = look, moments
        self._images: set[int] = set()
        self._places = {fold: [each.float() for each in moments.places(fold)] for fold in range(FOLDS)}
        self._sums = {
            name: [[torch.zeros(c, c, dtype=torch.float64) for c in channels] for _ in range(FOLDS)]
            for name in look.placed[0]
        }

    @torch.inference_mode()
    def add(
        self, images: Tensor, tokens: list[Tensor], prior: Tensor, taken: bool, shown: Tensor | None = None
    ) -> None:
        """Views of these images, as taken or under an acquisition."""
        look, folds = self._look, self._look.folds[images]
        self._images.update(images.tolist())
        for fold in folds.unique().tolist():
            rows = folds == fold
            some, where = [t[rows] for t in tokens], prior[rows] if look.config.foreground else None
            off = [t - by_token(means, t.shape[1]) for t, means in zip(some, self._places[fold], strict=True)]
            for name, placed in look.placed[fold].items():
                scorer = look.scorers[fold]
                found = scorer.placed_map(placed, some, where)
                found = where_shown(found, None if shown is None else shown[rows], scorer.common_mode)
                top = found.topk(max(FEWEST, round(STRANGEST * found.shape[1])), dim=1).indices[..., None]
                for total, each in zip(self._sums[name][fold], off, strict=True):
                    odd = each.gather(1, top.expand(-1, -1, each.shape[-1])).flatten(0, 1)
                    total += (self._moments.weight if taken else 1.0) * (odd.T @ odd).double()

    @property
    def share(self) -> float:
        """What they count beside all normal tokens."""
        return SHARE * min(1.0, len(self._images) / ENOUGH)

    def of(self, name: str, without: int | None = None) -> list[Tensor]:
        """Of all folds, or of all but one."""
        kept = [blocks for fold, blocks in enumerate(self._sums[name]) if fold != without]
        return [torch.stack(block).sum(dim=0) for block in zip(*kept, strict=True)]


def strangest_tokens(
    look: Look, moments: FoldMoments, cache: TokenCache, acquired: TokenCache, teacher: Teacher, scored: Tensor
) -> Strangest:
    """Of every view of the scored images, from tokens that are there already."""
    found = Strangest(look, moments, teacher.channels)
    for source, chosen, images, taken in normals_seen(look, cache, acquired, scored):
        found.add(images, *source.read(chosen), taken, source.shown(chosen))
    return found


def telling(placed: ByPlace, strangest: Strangest, flaws: list[Tensor], without: int | None = None) -> ByPlace:
    """The evidence by place, each deviation by how well it tells."""
    return {
        name: tuple(
            each.telling(odd, flaw, strangest.share)
            for each, odd, flaw in zip(blocks, strangest.of(name, without), flaws, strict=True)
        )
        for name, blocks in placed.items()
    }
