"""What out-of-fold references said of normals × acquisitions and of synthetic defects: thresholds are made of it, and
two looks at the same views become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nfad.fitting.crossfit import as_acquired
from nfad.stats.conformal import conformal_threshold, smallest_rate
from nfad.verdict.choice import LOOSE, Choice
from nfad.verdict.threshold import Threshold

RATES = (0.02, 0.04, 0.06, 0.08, 0.10)  # at which candidates are compared: those an inspection runs at


@dataclass(frozen=True)
class Damaged:
    """Views of normals with a synthetic defect, one row each."""

    taken: Tensor  # bool: not under an acquisition
    scores: Tensor
    unfiltered: Tensor


@dataclass(frozen=True)
class Seen:
    """Views of normals, one row each; scores in units of the fit's normal maps."""

    images: Tensor
    taken: Tensor  # bool: not under an acquisition
    scores: Tensor
    unfiltered: Tensor
    spread: Mapping[str, Tensor]  # participation, nuisance_fraction, nuisance:FAMILY
    strangeness: Tensor  # over its limit; NaN of what may be another part
    damaged: Damaged | None

    @property
    def told(self) -> Tensor:
        """The views that the threshold is made of."""
        return as_acquired(self.taken)

    def held_out(self) -> Threshold:
        order = torch.where(self.told)[0]
        order = order[self.scores[order].argsort(stable=True)]
        return Threshold(
            filtered=tuple(self.scores[order].tolist()),
            unfiltered=tuple(self.unfiltered[self.taken].sort().values.tolist()),
            images=tuple(self.images[order].tolist()),
        )

    def normals(self) -> dict[str, tuple[float, ...]]:
        """Of every normal as taken: what drift is told by."""
        numbers = {"score": self.scores, "unfiltered_score": self.unfiltered, **self.spread}
        return {name: tuple(values[self.taken].tolist()) for name, values in numbers.items()}

    def found(self) -> float | None:
        """Share of the synthetic defects; None where there were none."""
        if self.damaged is None:
            return None
        return share_found(self.scores[self.told], self.images[self.told], self.damaged.scores)

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

    def joined(self, other: Seen) -> Seen:
        """Both looks at the same views, in the same units: the mean of their scores, and whatever either finds strange.
        The rest is told by the first."""
        damaged = None
        if self.damaged is not None and other.damaged is not None:
            damaged = _mean(self.damaged, other.damaged)
        strangeness = torch.fmax(self.strangeness, other.strangeness)
        return dataclasses.replace(_mean(self, other), strangeness=strangeness, damaged=damaged)


Looks = TypeVar("Looks", Seen, Damaged)


def _mean(first: Looks, second: Looks) -> Looks:
    return dataclasses.replace(
        first,
        scores=(first.scores + second.scores) / 2,
        unfiltered=(first.unfiltered + second.unfiltered) / 2,
    )


def share_found(scores: Tensor, images: Tensor, damaged: Tensor) -> float:
    """Of synthetic defects, above the threshold of normals' scores: mean over the rates that there are normals for."""
    least = smallest_rate(len(images.unique()))
    limits = [conformal_threshold(scores.numpy(), max(rate, least), images.numpy()) for rate in RATES]
    return float(np.mean([(damaged.numpy() > limit).mean() for limit in limits]))


def _above(limits: tuple[float, float], filtered: Tensor, unfiltered: Tensor) -> dict[str, float]:
    shares = zip(("filtered", "unfiltered"), limits, (filtered, unfiltered), strict=True)
    return {name: float((scores > limit).double().mean()) for name, limit, scores in shares}
