"""Teacher tokens → read-outs, in either order of filtering and fitting the reference.

fit-then-filter (the paper): one reference of raw tokens, the operator afterwards, in closed form.
filter-then-fit (ours, for closed-form references): detection filters the tokens first and has a reference fitted to
filtered normals, which then spends nothing on describing nuisance and cannot put it back. Control and the gated V_g
stay the paper's, over the raw reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nfad.config import Config
from nfad.operator import ReadOut, discrepancy
from nfad.operator.gate import magnitude
from nfad.operator.readout import Coefficients, coefficients, read_coefficients
from nfad.reference.foreground import on_foreground
from nfad.reference.linear import Linear, compare_both
from nfad.reference.nearest import Nearest
from nfad.reference.placed import Placed
from nfad.reference.reading import Reading, coordinates
from nfad.reference.student import Student
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.prior import foreground_tokens, foreground_weights

Tokens = Sequence[Float[Tensor, "image token _"]]
Blocks = tuple[Nearest, ...] | tuple[Linear, ...]  # a closed-form reference, one a block
MAPS = ("control", "detection", "localization")
UNDONE = ("sensor", "photometric")  # the families of what developing undoes


@dataclass(frozen=True)
class Operator:
    """The nuisance subspace V of every block and, where localization is gated, its image-wide columns V_g."""

    bases: tuple[Float[Tensor, "_ _"], ...]
    families: tuple[tuple[str, ...], ...]
    keep: tuple[Bool[Tensor, " _"], ...] | None = None

    @property
    def family_names(self) -> tuple[str, ...]:
        """Each family once, in the order of its columns."""
        return tuple(dict.fromkeys(name for block in self.families for name in block))


def without_common_mode(token_map: Float[Tensor, "image token"]) -> Float[Tensor, "image token"]:
    """What deviates from the image's own median token.

    Acquisition lifts a whole map, a defect only its place: the paper's spatial-incidence argument, applied to what
    the projection leaves over.
    """
    return token_map - token_map.sort(dim=1).values[:, (token_map.shape[1] - 1) // 2, None]  # median() has no export


def where_shown(
    token_map: Float[Tensor, "image token"], shown: Float[Tensor, "image token"] | None, centred: bool = False
) -> Float[Tensor, "image token"]:
    """What a moved photo does not show is as ordinary as its median token; of a `centred` map that is 0."""
    if shown is None:
        return token_map
    off = token_map if centred else without_common_mode(token_map)
    return token_map + off * (shown - 1)


def with_undone(out: ReadOut, undone: Float[Tensor, "image 2"]) -> ReadOut:
    """Of all that deviates, developing undoes its shares first, noise and light; V has its own of what is left."""
    left = 1 - undone.sum(dim=1)
    first: dict[str, Tensor] = dict(zip(UNDONE, undone.unbind(dim=1), strict=True))
    families = {name: left * share + first.get(name, 0.0) for name, share in out.nuisance_by_family.items()}
    fraction = 1 - left * (1 - out.nuisance_fraction)
    return dataclasses.replace(out, nuisance_fraction=fraction, nuisance_by_family=families)


@dataclass(frozen=True)
class Scorer:
    """The raw tokens' reference (a student, or a bank or linear model a block); filter-then-fit adds filtered ones."""

    operator: Operator
    reference: Student | Blocks
    filtered: Blocks | None = None
    tau: float = 1.0  # the gate's: what φ is for the median normal
    gate_by: str = "participation"
    common_mode: bool = False  # subtract each filtered map's own median
    placed: tuple[Placed, ...] | None = None  # whose map is then the detection's, in place of the filtered one
    reading: Reading | None = None  # reads the filtered maps in their own light
    split: str = "soft"  # or (before format 13) "hard": of part and background

    @property
    def maps(self) -> tuple[str, ...]:
        """The read-outs there are: localization is one of its own only where V_g says what it removes."""
        return MAPS if self.operator.keep is not None else MAPS[:2]

    def __call__(
        self,
        tokens: Tokens,
        predicted: Tokens | None = None,
        exclude: Int[Tensor, " image"] | None = None,
        prior: Float[Tensor, "image token"] | None = None,
        numbers: Float[Tensor, "image 8"] | None = None,
        shown: Float[Tensor, "image token"] | None = None,
        undone: Float[Tensor, "image 2"] | None = None,
    ) -> ReadOut:
        """`predicted` are the student's tokens; other references need only the tokens themselves.

        `exclude` gives the images' own places in a bank of normals, `prior` says what is part and what background, and
        `shown` how much each token counts. The photo's `numbers` are asked for by a reading. What developing has
        `undone` is nuisance, too.
        """
        operator = self.operator
        blocks, filtered = self._compare(tokens, predicted, exclude)
        out = read_coefficients(blocks, operator.keep, self.tau, operator.families, self.gate_by)
        if filtered is not None:
            out = dataclasses.replace(out, detection=torch.stack(filtered).mean(dim=0))
        kept = [name for name in self.maps if name != "detection" or self.placed is None]
        if prior is not None:
            part = self.part(prior)
            out = dataclasses.replace(out, **{name: on_foreground(getattr(out, name), part) for name in kept})
        if self.common_mode:
            out = dataclasses.replace(out, **{name: without_common_mode(getattr(out, name)) for name in kept[1:]})
        if self.placed is not None:
            out = dataclasses.replace(out, detection=self.placed_map(self.placed, tokens, prior))
        if shown is not None:
            centred = dict.fromkeys(self.maps[1:], self.common_mode)
            each = {name: where_shown(getattr(out, name), shown, centred.get(name, False)) for name in self.maps}
            out = dataclasses.replace(out, **each)
        if self.reading is not None:
            assert numbers is not None
            light = coordinates(tokens, operator.bases), numbers
            read = {name: self.reading(getattr(out, name), *light) for name in self.maps[1:]}
            out = dataclasses.replace(out, **read)
        return out if undone is None else with_undone(out, undone)

    def placed_map(
        self, placed: Sequence[Placed], tokens: Tokens, prior: Float[Tensor, "image token"] | None = None
    ) -> Float[Tensor, "image token"]:
        """What placed references say of these tokens, before they are read in their light."""
        found = torch.stack([each(block) for each, block in zip(placed, tokens, strict=True)]).mean(dim=0)
        found = found if prior is None else on_foreground(found, self.part(prior))
        return without_common_mode(found) if self.common_mode else found

    def part(self, prior: Float[Tensor, "image token"]) -> Float[Tensor, "image token"] | Bool[Tensor, "image token"]:
        """How much of each token lies on the part, or whether it does."""
        return foreground_weights(prior) if self.split == "soft" else foreground_tokens(prior)

    def predicted(self, views: Float[Tensor, "image 3 size size"]) -> list[Tensor] | None:
        """What a student, if it is one, expects of these views."""
        return self.reference.expected(views) if isinstance(self.reference, Student) else None

    def _compare(
        self, tokens: Tokens, predicted: Tokens | None, exclude: Tensor | None
    ) -> tuple[list[Coefficients], list[Tensor] | None]:
        """Every block's coefficients over the raw reference; with a filtered one also its map."""
        bases, off = self.operator.bases, self.filtered if self.placed is None else None
        blocks = () if isinstance(self.reference, Student) else self.reference
        linear = [each for each in blocks if isinstance(each, Linear)]
        if linear:
            filtered = [each for each in off or () if isinstance(each, Linear)] or [None] * len(tokens)
            both = [compare_both(*each) for each in zip(linear, filtered, tokens, bases, strict=True)]
            found = [by_filtered for _, by_filtered in both if by_filtered is not None]
            return [raw for raw, _ in both], found if off is not None else None
        expected = self.expect(tokens, None, exclude) if predicted is None else predicted
        by_raw = [coefficients(t, s, basis) for t, s, basis in zip(tokens, expected, bases, strict=True)]
        if off is None:
            return by_raw, None
        return by_raw, [_filtered_discrepancy(*each, exclude) for each in zip(off, tokens, bases, strict=True)]

    def expect(
        self, tokens: Tokens, images: Tensor | None, exclude: Int[Tensor, " image"] | None = None
    ) -> list[Tensor]:
        """What a normal image would have for these raw tokens."""
        if isinstance(self.reference, Student):
            assert images is not None  # a student sees nothing else
            return self.reference.expected(images)
        return [_expect(reference, t, exclude) for reference, t in zip(self.reference, tokens, strict=True)]


@dataclass(frozen=True)
class Scores:
    """What a batch of views gives, as tensors: z-scored pixel maps by read-out, and one number an image."""

    maps: dict[str, Float[Tensor, "image size size"]]
    score: Float[Tensor, " image"]
    unfiltered_score: Float[Tensor, " image"]
    participation: Float[Tensor, " image"]
    nuisance_fraction: Float[Tensor, " image"]
    nuisance_by_family: dict[str, Float[Tensor, " image"]]
    gate: Float[Tensor, " image"] | None = None
    strangeness: Float[Tensor, " image"] | None = None  # None where the model cannot tell
    outside: Float[Tensor, "image 9"] | None = None  # why, in numbers: see `Judgeable`
    moved: Float[Tensor, " image"] | None = None  # share of its side, of a photo that was steadied

    def numbers(self) -> dict[str, Float[Tensor, " image"]]:
        """The numbers an image that drift is told by, by name."""
        families = {f"nuisance:{family}": share for family, share in self.nuisance_by_family.items()}
        names = ("score", "unfiltered_score", "participation", "nuisance_fraction")
        return {name: getattr(self, name) for name in names} | families


MapStatistics = Mapping[str, tuple[float, float]]  # read-out → mean and spread over the fit's pixel maps


@dataclass(frozen=True)
class Sighting:
    """One look at a batch of views: its read-outs, the units of its maps, and how strange and why, if it can tell."""

    out: ReadOut
    units: MapStatistics
    strange: tuple[Float[Tensor, " image"], Float[Tensor, "image 9"]] | None = None

    def maps(self, size: int, sigma: float) -> dict[str, Float[Tensor, "image size size"]]:
        """In units."""
        return {
            name: (pixel_maps(getattr(self.out, name), size, sigma) - mean) / spread
            for name, (mean, spread) in self.units.items()
        }


def z_scored(
    looks: Sequence[Sighting],
    size: int,
    sigma: float,
    top_fraction: float,
    joined: str = "maps",
    strange_to: str = "all",
) -> Scores:
    """Token maps → pixel maps in units of the fit's normals, the mean of all looks' → one score an image. With
    joined="scores" each look has a score first, and their mean counts; so it does of how strange a photo is, or with
    strange_to="any" that of the look that finds it strangest. What was removed is told by the first look."""
    each = [look.maps(size, sigma) for look in looks]
    maps = {name: mean_of([found[name] for found in each]) for name in each[0]}
    scored = [maps] if joined == "maps" else each
    first = looks[0].out
    strange = [look.strange for look in looks if look.strange is not None]
    strangeness = outside = None
    if strange:
        strangeness, outside = reduce(_strangest, strange) if strange_to == "any" else _mean(strange)
    return Scores(
        maps=maps,
        score=mean_of([image_score(found["detection"], top_fraction) for found in scored]),
        unfiltered_score=mean_of([image_score(found["control"], top_fraction) for found in scored]),
        participation=first.participation,
        nuisance_fraction=first.nuisance_fraction,
        nuisance_by_family=first.nuisance_by_family,
        gate=first.gate,
        strangeness=strangeness,
        outside=outside,
    )


def mean_of(tensors: Sequence[Tensor]) -> Tensor:
    """Of one, itself: a graph has no node for it."""
    return tensors[0] if len(tensors) == 1 else reduce(torch.add, tensors) / len(tensors)


def _mean(each: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    strangeness, outside = zip(*each, strict=True)
    return mean_of(strangeness), mean_of(outside)


def _strangest(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    stranger = (other[0] > one[0])[:, None]
    return torch.maximum(one[0], other[0]), torch.where(stranger, other[1], one[1])


def scorer_settings(config: Config) -> dict[str, Any]:
    """What a config says of a scorer beside its parts."""
    return {"gate_by": config.gate or "participation", "common_mode": config.common_mode}


def residuals(
    scorer: Scorer, tokens: Tokens, images: Float[Tensor, "image 3 h w"] | None = None
) -> list[Float[Tensor, "image token _"]]:
    """t − s of every block before any filtering."""
    return [t - s for t, s in zip(tokens, scorer.expect(tokens, images), strict=True)]


def _filtered_discrepancy(
    reference: Linear | Nearest, tokens: Tensor, basis: Tensor, exclude: Tensor | None
) -> Float[Tensor, "image token"]:
    """1 − cos of the tokens off V and what a reference fitted off V expects of them."""
    filtered = tokens - (tokens @ basis) @ basis.T
    return discrepancy(filtered, _expect(reference, filtered, exclude))


def _expect(reference: Linear | Nearest, tokens: Tensor, exclude: Tensor | None) -> Tensor:
    return reference(tokens, exclude) if isinstance(reference, Nearest) else reference(tokens)


@torch.inference_mode()
def calibrate(scorer: Scorer, batches: Callable[[], Iterable]) -> Scorer:
    """τ = median φ over training normals (Eq. 11), from one pass over the scorer's inputs; no pass without a gate."""
    if scorer.operator.keep is None:
        return scorer
    statistics = []
    for inputs in batches():
        out = scorer(*inputs)
        statistics.append(magnitude(out.control) if scorer.gate_by == "magnitude" else out.participation)
    return dataclasses.replace(scorer, tau=max(float(torch.cat(statistics).quantile(0.5)), 1e-12))
