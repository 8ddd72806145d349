"""What out-of-fold references said of normals × acquisitions and of synthetic defects: thresholds are made of it, and
several looks at the same views become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor

from nfad.config import Config
from nfad.fitting.crossfit import as_acquired, joined_by, mean_map_scores
from nfad.reference.scoring import mean_of
from nfad.verdict.choice import LOOSE, Choice
from nfad.verdict.threshold import Threshold

TokenMaps = Mapping[str, Tensor]  # "detection" and "control", in the same units as the scores; none of tiles
RATES = (0.02, 0.04, 0.06, 0.08, 0.10)  # at which candidates are compared: those an inspection runs at


@dataclass(frozen=True)
class Damaged:
    """Views of normals with a synthetic defect, one row each."""

    taken: Tensor  # bool: not under an acquisition
    scores: Tensor
    unfiltered: Tensor
    token_maps: TokenMaps


@dataclass(frozen=True)
class Seen:
    """Views of normals, one row each; scores in units of the fit's normal maps."""

    images: Tensor
    taken: Tensor  # bool: not under an acquisition
    scores: Tensor
    unfiltered: Tensor
    token_maps: TokenMaps
    spread: Mapping[str, Tensor]  # participation, nuisance_fraction, nuisance:FAMILY
    strangeness: Tensor  # over its limit; NaN of what may be another part
    damaged: Damaged | None
    limit: float = 1.0  # of strangeness, above which a view is not judged

    @property
    def told(self) -> Tensor:
        """The views that the threshold is made of."""
        return as_acquired(self.taken)

    def held_out(self) -> Threshold:
        told, unfiltered = self.told, self.unfiltered[self.taken]
        judged = ~(self.strangeness[told] > self.limit)
        rows = (self.scores[told], self.images[told], unfiltered, judged)
        return Threshold.of_views(*(each.numpy() for each in rows))

    def normals(self) -> dict[str, tuple[float, ...]]:
        """Of every normal as taken: what drift is told by."""
        numbers = {"score": self.scores, "unfiltered_score": self.unfiltered, **self.spread}
        return {name: tuple(values[self.taken].tolist()) for name, values in numbers.items()}

    def found(self) -> float | None:
        """Share of the synthetic defects above the threshold, mean over the rates that there are normals for; None
        without any."""
        if self.damaged is None:
            return None
        held_out = self.held_out()
        limits = [held_out.at(rate)[0] for rate in RATES]
        return float(np.mean([(self.damaged.scores.numpy() > limit).mean() for limit in limits]))

    def choice(self, evidence: str, found: Mapping[str, float], rate: float) -> Choice | None:
        """What is known of this evidence at the rate asked for; None without synthetic defects."""
        bad = self.damaged
        if bad is None:
            return None
        held_out = self.held_out()
        rate = held_out.supported(rate)
        as_taken = bad.scores[bad.taken], bad.unfiltered[bad.taken]
        return Choice(
            evidence,
            found,
            rate,
            flagged=_above(held_out.at(rate), self.scores[~self.taken], self.unfiltered[~self.taken]),
            found_as_taken=_above(held_out.at(rate), *as_taken),
            defects=len(bad.taken),
            found_loosely=_above(held_out.at(LOOSE), *as_taken)["filtered"],
        )

    @staticmethod
    def joined(looks: Sequence[Seen], config: Config) -> Seen:
        """All looks at the same views, in the same units: the scores of their mean maps (of tiles the mean of their
        scores) and of what they find strange. The rest is told by the first."""
        hurt = [look.damaged for look in looks if look.damaged is not None]
        damaged = _together(hurt, config) if len(hurt) == len(looks) else None
        strangeness = mean_of([look.strangeness for look in looks])
        return dataclasses.replace(_together(looks, config), strangeness=strangeness, damaged=damaged)


Looks = TypeVar("Looks", Seen, Damaged)


def _together(looks: Sequence[Looks], config: Config) -> Looks:
    if joined_by(config) == "scores":
        scores, unfiltered = (mean_of([getattr(look, name) for look in looks]) for name in ("scores", "unfiltered"))
    else:
        scores, unfiltered = (
            mean_map_scores(config, [look.token_maps[name] for look in looks]) for name in ("detection", "control")
        )
    return dataclasses.replace(looks[0], scores=scores, unfiltered=unfiltered, token_maps={})


def _above(limits: tuple[float, float], filtered: Tensor, unfiltered: Tensor) -> dict[str, float]:
    shares = zip(("filtered", "unfiltered"), limits, (filtered, unfiltered), strict=True)
    return {name: float((scores > limit).double().mean()) for name, limit, scores in shares}
