"""Teacher tokens → read-outs, in either order of filtering and fitting the reference.

fit-then-filter (the paper): one reference of raw tokens, the operator afterwards, in closed form.
filter-then-fit (ours, for closed-form references): detection filters the tokens first and has a reference fitted to
filtered normals, which then spends nothing on describing nuisance and cannot put it back. Control and the gated V_g
stay the paper's, over the raw reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nfad.operator import ReadOut, discrepancy
from nfad.operator.gate import magnitude
from nfad.operator.readout import Coefficients, coefficients, read_coefficients
from nfad.reference.linear import Linear, compare_both
from nfad.reference.nearest import Nearest
from nfad.reference.student import Student
from nfad.vision.prior import foreground_tokens

Tokens = Sequence[Float[Tensor, "image token _"]]
MAPS = ("control", "detection", "localization")


@dataclass(frozen=True)
class Operator:
    """The nuisance subspace of every block and its image-wide columns."""

    bases: tuple[Float[Tensor, "_ _"], ...]
    families: tuple[tuple[str, ...], ...]
    keep: tuple[Bool[Tensor, " _"], ...]


def without_common_mode(token_map: Float[Tensor, "image token"]) -> Float[Tensor, "image token"]:
    """What deviates from the image's own median token.

    Acquisition lifts a whole map, a defect only its place: the paper's spatial-incidence argument, applied to what
    the projection leaves over.
    """
    return token_map - token_map.sort(dim=1).values[:, (token_map.shape[1] - 1) // 2, None]  # median() has no export


def on_foreground(
    token_map: Float[Tensor, "image token"], prior: Float[Tensor, "image token"]
) -> Float[Tensor, "image token"]:
    """Only the part counts: background tokens take the median of the image's foreground."""
    part = foreground_tokens(prior)
    ordered = token_map.masked_fill(~part, torch.inf).sort(dim=1).values
    middle = (part.sum(dim=1, keepdim=True) - 1).clamp(min=0) // 2
    return torch.where(part, token_map, ordered.gather(1, middle))


@dataclass(frozen=True)
class Scorer:
    """The raw tokens' reference (a student, or a bank or linear model a block); filter-then-fit adds filtered ones."""

    operator: Operator
    reference: Student | tuple[Nearest, ...] | tuple[Linear, ...]
    filtered: tuple[Nearest, ...] | tuple[Linear, ...] | None = None
    tau: float = 1.0  # the gate's: what φ is for the median normal
    gate_by: str = "participation"
    common_mode: bool = False  # subtract each filtered map's own median
    localization: str = "global"  # the map of the gated V_g, or that of "detection"

    def __call__(
        self,
        tokens: Tokens,
        images: Tensor | None = None,
        own: Int[Tensor, " image"] | None = None,
        prior: Float[Tensor, "image token"] | None = None,
    ) -> ReadOut:
        predicted = self.reference(images) if isinstance(self.reference, Student) else None
        return self.read(tokens, predicted, own, prior)

    def read(
        self,
        tokens: Tokens,
        predicted: Tokens | None = None,
        own: Int[Tensor, " image"] | None = None,
        prior: Float[Tensor, "image token"] | None = None,
    ) -> ReadOut:
        """The same once a student has predicted the tokens; other references need only the tokens themselves."""
        operator = self.operator
        blocks, filtered = self._compare(tokens, predicted, own)
        out = read_coefficients(blocks, operator.keep, self.tau, operator.families, self.gate_by)
        if filtered is not None:
            out = dataclasses.replace(out, detection=torch.stack(filtered).mean(dim=0))
        if self.localization == "detection":
            out = dataclasses.replace(out, localization=out.detection, gate=torch.ones_like(out.gate))
        if prior is not None:
            out = dataclasses.replace(out, **{name: on_foreground(getattr(out, name), prior) for name in MAPS})
        if self.common_mode:
            out = dataclasses.replace(out, **{name: without_common_mode(getattr(out, name)) for name in MAPS[1:]})
        return out

    def _compare(
        self, tokens: Tokens, predicted: Tokens | None, own: Tensor | None
    ) -> tuple[list[Coefficients], list[Tensor] | None]:
        """Every block's coefficients over the raw reference; with a filtered one also its map."""
        bases, off = self.operator.bases, self.filtered or (None,) * len(tokens)
        if predicted is None and isinstance(self.reference[0], Linear):
            both = [compare_both(*each) for each in zip(self.reference, off, tokens, bases, strict=True)]
            return [found for found, _ in both], None if self.filtered is None else [found for _, found in both]
        expected = self.expect(tokens, None, own) if predicted is None else predicted
        blocks = [coefficients(t, s, basis) for t, s, basis in zip(tokens, expected, bases, strict=True)]
        if self.filtered is None:
            return blocks, None
        return blocks, [_filtered_discrepancy(*each, own) for each in zip(off, tokens, bases, strict=True)]

    def expect(self, tokens: Tokens, images: Tensor | None, own: Int[Tensor, " image"] | None = None) -> list[Tensor]:
        """What a normal image would have for these raw tokens."""
        if isinstance(self.reference, Student):
            return self.reference(images)
        return [_expect(reference, t, own) for reference, t in zip(self.reference, tokens, strict=True)]


def residuals(
    scorer: Scorer, tokens: Tokens, images: Float[Tensor, "image 3 h w"] | None = None
) -> list[Float[Tensor, "image token _"]]:
    """t − s of every block before any filtering."""
    return [t - s for t, s in zip(tokens, scorer.expect(tokens, images), strict=True)]


def _filtered_discrepancy(
    reference: Nearest, tokens: Tensor, basis: Tensor, own: Tensor | None
) -> Float[Tensor, "image token"]:
    """1 − cos of the tokens off V and what a reference fitted off V expects of them."""
    filtered = tokens - (tokens @ basis) @ basis.T
    return discrepancy(filtered, reference(filtered, own))


def _expect(reference: Linear | Nearest, tokens: Tensor, own: Tensor | None) -> Tensor:
    return reference(tokens, own) if isinstance(reference, Nearest) else reference(tokens)


@torch.inference_mode()
def calibrate(scorer: Scorer, batches: Callable[[], Iterable]) -> Scorer:
    """τ = median φ over training normals (Eq. 11), from one pass over the scorer's inputs."""
    statistics = []
    for inputs in batches():
        out = scorer(*inputs)
        statistics.append(magnitude(out.control) if scorer.gate_by == "magnitude" else out.participation)
    return dataclasses.replace(scorer, tau=max(float(torch.cat(statistics).quantile(0.5)), 1e-12))
