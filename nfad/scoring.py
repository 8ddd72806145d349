"""Teacher tokens → read-outs, in either order of filtering and fitting the reference.

fit-then-filter (the paper): one reference of raw tokens, the operator afterwards, in closed form.
filter-then-fit (ours, for closed-form references): tokens are filtered first and each filtered view has a reference
of its own, which then spends nothing on describing nuisance and cannot put it back. Localization keeps the paper's
idea: the view without V_g, blended with the control view by γ, each in units of its own normal spread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nfad.operator import ReadOut, discrepancy, gate, participation_ratio, read_out
from nfad.operator.gate import magnitude
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest
from nfad.reference.student import Student
from nfad.vision.prior import foreground_tokens

Tokens = Sequence[Float[Tensor, "image token _"]]
VIEWS = ("control", "detection", "global")


@dataclass(frozen=True)
class Operator:
    """The nuisance subspace of every block and its image-wide columns."""

    bases: tuple[Float[Tensor, "_ _"], ...]
    families: tuple[tuple[str, ...], ...]
    keep: tuple[Bool[Tensor, " _"], ...]

    def removed(self, view: str, block: int) -> Float[Tensor, "channel k"]:
        """The columns a view does without."""
        basis = self.bases[block]
        return {"control": basis[:, :0], "detection": basis, "global": basis[:, self.keep[block]]}[view]


@dataclass(frozen=True)
class Calibration:
    """What training normals look like: the gate's τ, and each view's mean and spread of token discrepancies."""

    tau: float = 1.0
    level: tuple[float, float] = (0.0, 0.0)  # control, global
    spread: tuple[float, float] = (1.0, 1.0)


def without_common_mode(token_map: Float[Tensor, "image token"]) -> Float[Tensor, "image token"]:
    """What deviates from the image's own median token.

    Acquisition lifts a whole map, a defect only its place: the paper's spatial-incidence argument, applied to what
    the projection leaves over.
    """
    return token_map - token_map.median(dim=1, keepdim=True).values


def on_foreground(
    token_map: Float[Tensor, "image token"], prior: Float[Tensor, "image token"]
) -> Float[Tensor, "image token"]:
    """Only the part counts: background tokens take the median of the image's foreground."""
    part = foreground_tokens(prior)
    median = token_map.masked_fill(~part, torch.nan).nanmedian(dim=1, keepdim=True).values
    return torch.where(part, token_map, median)


@dataclass(frozen=True)
class FitThenFilter:
    """The paper's order; the reference is a student, a bank a block, or a linear model a block."""

    operator: Operator
    reference: Student | tuple[Nearest, ...] | tuple[Linear, ...]
    calibration: Calibration = Calibration()
    gate_by: str = "participation"

    def __call__(
        self,
        tokens: Tokens,
        images: Tensor | None = None,
        own: Int[Tensor, " image"] | None = None,
        prior: Float[Tensor, "image token"] | None = None,
    ) -> ReadOut:
        expected = (
            self.reference(images)
            if isinstance(self.reference, Student)
            else [_expect(reference, t, own) for reference, t in zip(self.reference, tokens, strict=True)]
        )
        out = read_out(
            tokens,
            expected,
            self.operator.bases,
            self.operator.keep,
            self.calibration.tau,
            self.operator.families,
            self.gate_by,
        )
        if prior is None:
            return out
        names = ("control", "detection", "localization")
        return dataclasses.replace(out, **{name: on_foreground(getattr(out, name), prior) for name in names})


@dataclass(frozen=True)
class FilterThenFit:
    """A reference for each view (control, detection, global) and block, fitted to that view's filtered normals."""

    operator: Operator
    references: dict[str, tuple[Nearest, ...] | tuple[Linear, ...]]
    calibration: Calibration = Calibration()
    gate_by: str = "participation"
    common_mode: bool = False  # subtract each filtered map's own median

    def __call__(
        self,
        tokens: Tokens,
        images: Tensor | None = None,
        own: Int[Tensor, " image"] | None = None,
        prior: Float[Tensor, "image token"] | None = None,
    ) -> ReadOut:
        maps: dict[str, Tensor] = {}
        nuisance: dict[str, Tensor] = {}
        energy = inside = 0.0
        for view in VIEWS:
            blocks = []
            for index, t in enumerate(tokens):
                reference, removed = self.references[view][index], self.operator.removed(view, index)
                basis = self.operator.bases[index] if view == "control" else None
                compared, residual, coefficients = _compare(reference, t, removed, own, basis)
                blocks.append(compared)
                if view == "control":
                    energy = energy + residual
                    inside = inside + coefficients.sum(dim=1)
                    families = self.operator.families[index]
                    for family in dict.fromkeys(families):
                        chosen = torch.tensor([name == family for name in families])
                        nuisance[family] = nuisance.get(family, 0.0) + coefficients[:, chosen].sum(dim=1)
            maps[view] = torch.stack(blocks).mean(dim=0)
            if prior is not None:
                maps[view] = on_foreground(maps[view], prior)
        control = maps["control"]
        spread = participation_ratio(control)
        strength = gate(magnitude(control) if self.gate_by == "magnitude" else spread, self.calibration.tau)
        (level_c, level_g), (spread_c, spread_g) = self.calibration.level, self.calibration.spread
        plain = self.centred(control, level_c) / spread_c
        diffuse = self.centred(maps["global"], level_g) / spread_g
        localization = (1 - strength[:, None]) * plain + strength[:, None] * diffuse
        whole = energy.clamp(min=1e-12)
        return ReadOut(
            control=control,
            detection=without_common_mode(maps["detection"]) if self.common_mode else maps["detection"],
            localization=localization,
            participation=spread,
            gate=strength,
            nuisance_fraction=(inside / whole).clamp(0, 1),
            nuisance_by_family={family: (value / whole).clamp(0, 1) for family, value in nuisance.items()},
        )

    def centred(self, token_map: Float[Tensor, "image token"], level: float) -> Float[Tensor, "image token"]:
        """About the image's own median, or about the normals' level."""
        return without_common_mode(token_map) if self.common_mode else token_map - level


Scorer = FitThenFilter | FilterThenFit


def _compare(
    reference: Linear | Nearest, tokens: Tensor, removed: Tensor, own: Tensor | None, basis: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Filtered tokens against their expectation: 1 − cos; the residual's energy, and that within each column of V."""
    if isinstance(reference, Linear):
        found = reference.compare(tokens, removed)
        inside = None if basis is None else reference.residual_inside(tokens, found.coordinates, basis)
        compared, energy = found.discrepancy, found.energy.sum(dim=1)
    else:
        filtered = tokens - (tokens @ removed) @ removed.T
        expected = reference(filtered, own)
        inside = None if basis is None else (filtered - expected) @ basis
        compared, energy = discrepancy(filtered, expected), (filtered - expected).square().sum(dim=(1, 2))
    return compared, energy, None if inside is None else inside.square().sum(dim=1)


def _expect(reference: Linear | Nearest, tokens: Tensor, own: Tensor | None) -> Tensor:
    return reference(tokens, own) if isinstance(reference, Nearest) else reference(tokens)


@torch.inference_mode()
def calibrate(scorer: Scorer, batches: Callable[[], object]) -> Scorer:
    """τ = median φ over training normals (Eq. 11), and the views' levels, from one pass over the scorer's inputs."""
    statistics, sums = [], torch.zeros(2, 2, dtype=torch.float64)
    count = 0
    # With τ at its smallest the gate is open everywhere, and localization is the global view alone.
    probe = dataclasses.replace(scorer, calibration=Calibration(tau=1e-12))
    for inputs in batches():
        out = probe(*inputs)
        statistics.append(magnitude(out.control) if scorer.gate_by == "magnitude" else out.participation)
        control = scorer.centred(out.control, 0.0) if isinstance(scorer, FilterThenFit) else out.control
        for row, values in enumerate((control, out.localization)):
            sums[row] += torch.stack([values.double().sum(), values.double().square().sum()])
        count += out.control.numel()
    mean = sums[:, 0] / count
    spread = (sums[:, 1] / count - mean**2).clamp(min=0).sqrt().clamp(min=1e-12)
    tau = float(torch.cat(statistics).quantile(0.5))
    calibration = Calibration(max(tau, 1e-12), tuple(mean.tolist()), tuple(spread.tolist()))
    return dataclasses.replace(scorer, calibration=calibration)
