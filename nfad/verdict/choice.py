"""Which evidence a fit chose for its part, and what the filter buys and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """What synthetic defects on out-of-fold normals, half of them under acquisitions, said of each evidence."""

    evidence: str
    found: Mapping[str, float]  # candidate → share of defects found, mean over rates from 2 to 10 %
    rate: float  # the model's own, at which the rest was counted
    flagged: Mapping[str, float]  # unfiltered, filtered → share of normals flagged under acquisitions
    found_as_taken: Mapping[str, float]  # unfiltered, filtered → share of defects found in the light of the fit

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def told(self) -> str:
        """What each candidate found."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.found.items())

    def sentence(self) -> str:
        """What the filter buys and costs."""
        flagged, found = self.flagged, self.found_as_taken
        return (
            f"Under changed light {flagged['filtered']:.0%} of normal parts are flagged where the unfiltered detector "
            f"flags {flagged['unfiltered']:.0%}; in the fit's own light {found['filtered']:.0%} of synthetic defects "
            f"are found where it finds {found['unfiltered']:.0%}."
        )
