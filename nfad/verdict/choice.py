"""Which candidate and which evidence a fit chose for its part, and what the filter buys and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LOOSE = 0.10  # a rate at which a person may want to know what else would be found
WORTH = 0.05  # so many more of the defects, at least


@dataclass(frozen=True)
class Candidate:
    """One way to look at a part, as `nfad fit --preset auto` tried it; what it finds is None if it is too slow."""

    name: str
    milliseconds: float  # of its network, a photo, on the machine of the fit
    evidence: str | None = None
    found: float | None = None  # share of synthetic defects, mean over rates from 2 to 10 %


@dataclass(frozen=True)
class Choice:
    """What synthetic defects on out-of-fold normals, half of them under acquisitions, said of each evidence."""

    evidence: str
    found: Mapping[str, float]  # candidate → share of defects found, mean over rates from 2 to 10 %
    rate: float  # the model's own, at which the rest was counted
    flagged: Mapping[str, float]  # unfiltered, filtered → share of normals flagged under acquisitions
    found_as_taken: Mapping[str, float]  # unfiltered, filtered → share of defects found in the light of the fit
    defects: int = 0  # how many there were; 0 where an older fit does not say
    found_loosely: float | None = None  # as taken, filtered, at a rate of 10 %
    candidates: tuple[Candidate, ...] = ()  # of `--preset auto`, in the order of its preference
    chosen: str = ""  # among them

    @property
    def found_by_evidence(self) -> float:
        """Share of defects that the model itself finds, mean over those rates."""
        return self.found[self.evidence]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Choice:
        return cls(**{**values, "candidates": tuple(Candidate(**each) for each in values.get("candidates", ()))})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def told(self) -> str:
        """What each candidate found."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.found.items())

    def why_chosen(self) -> str:
        """Of the candidates that were tried."""
        return (
            f"{self.chosen} is kept: the first that finds as many of {self.defects} synthetic defects, half of them in "
            "changed light, as the best one, within a standard error."
        )

    def sentence(self) -> str:
        """What the filter buys and costs."""
        flagged, found = self.flagged, self.found_as_taken
        more = self.found_loosely
        worth = more is not None and self.rate < LOOSE and more >= found["filtered"] + WORTH
        return (
            f"At a rate of {self.rate:.1%}, under changed light {flagged['filtered']:.0%} of normal parts are flagged "
            f"where the unfiltered detector flags {flagged['unfiltered']:.0%}; in the fit's own light "
            f"{found['filtered']:.0%} of synthetic defects are found where it finds {found['unfiltered']:.0%}."
            + (f" At a rate of {LOOSE:.0%} it would be {more:.0%} of them." if worth else "")
        )


def first_of_the_best(candidates: Sequence[Candidate], defects: int) -> str:
    """The first that finds as much as the best one, less a standard error: so few defects tell no more apart."""
    tried = [(each.name, each.found) for each in candidates if each.found is not None]
    best = max(found for _, found in tried)
    enough = best - math.sqrt(best * (1 - best) / defects)
    return next(name for name, found in tried if found >= enough)
