"""Estimate the nuisance subspace of a host's own features, and take it out of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.host import FeatureSource, Host, HostScores, Project, checked_images, features_and_prior
from nfad.operator import MomentFitter, nuisance_subspace
from nfad.operator.subspace import Rank
from nfad.system.files import replacing
from nfad.system.progress import Progress
from nfad.vision.interventions import SETS, Intervention, intervene

FORMAT = 1


@dataclass(frozen=True)
class NuisanceFilter:
    """An orthonormal basis a layer; `wrap` a host with it and its features lose what only the acquisition moves."""

    bases: tuple[Tensor, ...]  # (channel, k) each
    families: tuple[tuple[str, ...], ...]  # of each column
    interventions: str = "paper"

    @classmethod
    def fit(
        cls,
        host: FeatureSource,
        normal_images: Tensor,
        rank: Rank = 16,
        interventions: str = "paper",
        pairs: int | None = 64,
        seed: int = 54,
        batch: int = 8,
        progress: Progress | None = None,
    ) -> NuisanceFilter:
        """From matched responses features(F(x)) − features(x) of normal images, layer by layer.

        `rank` is the columns a family, a share of the channels (below 1), or either by family: 16 suits hundreds of
        channels, 1/16 a small network. `pairs` images, a seeded choice, are each seen once as they are and once under
        every intervention. The background family fills what is not the part: a host that offers no foreground
        prior (`features_and_prior`) gets the other families alone, as `families` then shows.
        """
        return cls.fit_ranks(host, normal_images, [rank], interventions, pairs, seed, batch, progress)[0]

    @classmethod
    def fit_ranks(
        cls,
        host: FeatureSource,
        normal_images: Tensor,
        ranks: Sequence[Rank],
        interventions: str = "paper",
        pairs: int | None = 64,
        seed: int = 54,
        batch: int = 8,
        progress: Progress | None = None,
    ) -> list[NuisanceFilter]:
        """A filter of each rank, all of the same families, from one look at the images: what `fit` gives for each."""
        images = checked_images(normal_images)
        rank = ranks[0]
        if pairs is not None and pairs < 1:
            raise NfadError(f"pairs must be at least 1 image, or None for all of them; got {pairs}")
        generator = torch.Generator().manual_seed(seed)
        chosen = images[torch.randperm(len(images), generator=generator)[:pairs]]
        responses: dict[tuple[int, str], MomentFitter] = defaultdict(MomentFitter)
        families: dict[str, dict[str, Intervention]] = {}
        clean: list[Tensor] = []
        done = 0
        for part in chosen.split(batch):
            features, prior = features_and_prior(host, part)
            clean = as_compared(host, features)
            families = families_of(interventions, rank, prior is not None)
            if any(families_of(interventions, other, prior is not None).keys() != families.keys() for other in ranks):
                raise NfadError(f"ranks of one fit must be of the same families; got {list(ranks)}: fit them apart")
            seen = torch.ones(len(part), 1) if prior is None else prior.cpu()
            for family, transforms in families.items():
                for transform in transforms.values():
                    # Made on the CPU, whose random numbers are the same on every machine.
                    changed = intervene(transform, part.cpu(), seen, generator).to(part.device)
                    moved = as_compared(host, host.features(changed))
                    for layer, (after, before) in enumerate(zip(moved, clean, strict=True)):
                        response = after - before
                        responses[layer, family].update(response.flatten(2).transpose(1, 2).cpu())
            done += len(part)
            if progress:
                progress("learning nuisance", done, len(chosen))
            if not families:
                break  # nothing to learn: one pass told the channels
        found = []
        for rank in ranks:
            subspaces = [
                _subspace(layer, maps.shape[1], {family: responses[layer, family] for family in families}, rank)
                for layer, maps in enumerate(clean)
            ]
            bases, names = zip(*subspaces, strict=True)
            found.append(cls(bases, names, interventions))
        return found

    def project(self, features: Sequence[Tensor]) -> list[Tensor]:
        """z − V(Vᵀz) at every position of every layer; maps are (image, channel, y, x)."""
        if len(features) != len(self.bases):
            raise NfadError(f"the filter was fitted on {len(self.bases)} layers; the host gave {len(features)}")
        return [
            remove(basis, maps, layer) for layer, (basis, maps) in enumerate(zip(self.bases, features, strict=True))
        ]

    def wrap(self, host: Host) -> Filtered:
        """The host with the filter on: the same interface, its weights untouched, `.unwrap()` gives it back."""
        if not (hasattr(host, "score") and hasattr(host, "prepare")):
            raise NfadError(
                f"{type(host).__name__} is no host: it needs features, score and prepare (nfad.hosts.Host); for a "
                "torch module use HookedFilter"
            )
        return Filtered(host, self, host.prepare(self.project))

    def save(self, path: str | Path) -> Path:
        """One safetensors file; no pickle."""
        tensors = {f"{layer}.basis": basis.contiguous() for layer, basis in enumerate(self.bases)}
        header = {"format": FORMAT, "families": self.families, "interventions": self.interventions}
        with replacing(path) as file:
            file.write(to_bytes(tensors, metadata={"nfad-filter": json.dumps(header, sort_keys=True)}))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> NuisanceFilter:
        """What `save` wrote, checked: a basis that is not orthonormal would distort instead of filter."""
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get("nfad-filter", "null"))
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError, ValueError) as error:
            raise NfadError(f"{path} cannot be read as a filter ({error}); save it again") from None
        if header is None or header["format"] != FORMAT:
            raise NfadError(f"{path} is not a filter this nfad reads (format {FORMAT}); fit it again and save it")
        families = tuple(tuple(names) for names in header["families"])
        names_of_bases = [f"{layer}.basis" for layer in range(len(families))]
        if set(tensors) != set(names_of_bases):
            raise NfadError(f"{path} was damaged: it holds {len(tensors)} bases for {len(families)} layers; fit again")
        bases = tuple(tensors[name] for name in names_of_bases)
        for basis, names in zip(bases, families, strict=True):
            gram = basis.double().T @ basis.double()
            rounding = 8 * len(basis) * torch.finfo(basis.dtype).eps
            if basis.shape[1] != len(names) or not torch.allclose(gram, torch.eye(len(gram)).double(), atol=rounding):
                raise NfadError(f"{path} was damaged: its bases are not orthonormal; copy it again or fit again")
        return cls(bases, families, header["interventions"])


@dataclass(frozen=True)
class Filtered:
    """A host wearing a filter, itself a host; filters may be worn one over another."""

    host: Host  # as it was given
    filter: NuisanceFilter
    prepared: Host  # the one that scores: what it holds of normal images is filtered too

    @property
    def unit(self) -> bool:
        return self.host.unit

    def features(self, images: Tensor) -> list[Tensor]:
        return self.filter.project(self.host.features(images))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
        features, prior = features_and_prior(self.host, images)
        return self.filter.project(features), prior

    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        first = self.filter.project
        return self.prepared.score(images, first if project is None else lambda features: project(first(features)))

    def prepare(self, project: Project) -> Filtered:
        return replace(self, prepared=self.prepared.prepare(project))

    def unwrap(self) -> Host:
        return self.host


def families_of(interventions: str, rank: Rank, sees_foreground: bool) -> dict[str, dict[str, Intervention]]:
    """The families in use: those given a rank, less the background's where the part cannot be told from it."""
    if interventions not in SETS:
        raise NfadError(f"interventions must be one of {', '.join(SETS)}; got {interventions!r}")
    known = SETS[interventions]
    ranks = rank if isinstance(rank, Mapping) else dict.fromkeys(known, rank)
    for family in ranks:
        if family not in known:
            raise NfadError(f"rank names family {family!r}; the {interventions} set has {', '.join(known)}")
    if isinstance(rank, Mapping) and rank.get("background") and not sees_foreground:
        raise NfadError(
            "rank asks for the background family, but this host cannot tell the part from its background: give it a "
            "features_and_prior method, or leave the family out"
        )
    blind = set() if sees_foreground else {"background"}
    return {family: known[family] for family in known if ranks.get(family) and family not in blind}


def as_compared(host: FeatureSource, features: Sequence[Tensor]) -> list[Tensor]:
    """The features as the host's distance sees them: by direction alone where it normalises them."""
    for layer, maps in enumerate(features):
        _check_maps(maps, layer)
    return [F.normalize(maps, dim=1) if host.unit else maps for maps in features]


def remove(basis: Tensor, maps: Tensor, layer: int = 0) -> Tensor:
    """Channel-wise: the same projection at every position, so that it passes through any pooling or resizing."""
    _check_maps(maps, layer)
    if maps.shape[1] != len(basis):
        raise NfadError(f"the filter has {len(basis)} channels at layer {layer}; the host gave {maps.shape[1]}")
    if basis.shape[1] == 0:
        return maps
    basis = basis.to(maps)
    return maps - torch.einsum("ck,nkyx->ncyx", basis, torch.einsum("ck,ncyx->nkyx", basis, maps))


def _check_maps(maps: Tensor, layer: int) -> None:
    if not isinstance(maps, Tensor) or maps.ndim != 4 or not maps.is_floating_point():
        found = f"{maps.dtype} {tuple(maps.shape)}" if isinstance(maps, Tensor) else type(maps).__name__
        raise NfadError(f"layer {layer} must be a float map (image, channel, y, x); the host gave {found}")


def _subspace(
    layer: int, channels: int, responses: Mapping[str, MomentFitter], rank: Rank
) -> tuple[Tensor, tuple[str, ...]]:
    moments = {family: fitter.freeze().second for family, fitter in responses.items()}
    if not moments:
        return torch.zeros(channels, 0), ()
    if not all(bool(moment.isfinite().all()) for moment in moments.values()):
        raise NfadError(f"the host's features at layer {layer} are not all finite; check its weights and its input")
    try:
        found = nuisance_subspace(moments, rank)
    except ValueError as error:
        raise NfadError(f"layer {layer}: {error}") from None
    if found.basis.shape[1] == channels:
        raise NfadError(
            f"rank {rank} takes all {channels} channels of layer {layer} and leaves nothing to score; lower it, "
            "for instance to 1/16"
        )
    return found.basis.float(), found.families
