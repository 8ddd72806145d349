"""A trained anomalib model among the hosts of `nfad.hosts`: measured, filtered and compared as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from anomalib.models.components import AnomalibModule
from anomalib.models.image.glass.torch_model import GlassModel
from anomalib.models.image.patchcore.torch_model import PatchcoreModel
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.anomalib.places import (
    PLACES,
    FilteredGlassModel,
    FilteredPatchcoreModel,
    features_of,
    filtered_bank,
    place_of,
    seen_through,
)
from nfad.anomalib.preparing import Step, whole
from nfad.errors import NfadError
from nfad.hosts.host import HostScores, Project, checked_images


@dataclass(frozen=True)
class AnomalibHost:
    """Raw scores, before any normalisation of anomalib's post-processor; the model's weights are shared, not copied."""

    model: nn.Module  # anomalib's torch model, trained, in eval mode
    prepared: Step  # its pre-processing, from images in [0, 1]
    mean: Tensor | None = None  # Glass: of normal embeddings, about which the filter acts
    bank: Tensor | None = None  # Patchcore: its entries as this host compares with them, where they differ from its own

    @classmethod
    def of(cls, model: AnomalibModule, normal_images: Tensor | None = None) -> AnomalibHost:
        """Patchcore, ReverseDistillation, Stfpm or Glass, put into eval mode; Glass needs images it was trained on."""
        if type(model.model) in {place.filtered for place in PLACES.values()} or hasattr(model, "unwrap"):
            raise NfadError(f"this {type(model).__name__} wears a filter already; give unwrap() of it")
        place_of(model.model)
        return cls.of_torch(model.model.eval(), whole(model), normal_images)

    @classmethod
    def of_torch(cls, model: nn.Module, prepared: Step, normal_images: Tensor | None = None) -> AnomalibHost:
        """The same of a bare torch model and what happens to images before it."""
        host = cls(model, prepared)
        if not isinstance(model, GlassModel):
            return host
        if normal_images is None:
            raise NfadError("a discriminator is filtered about the mean of normal embeddings: give Glass normal_images")
        each = (host.features(image[None])[0].mean(dim=(0, 2, 3)) for image in checked_images(normal_images))
        return replace(host, mean=sum(each, torch.zeros(())) / len(normal_images))

    @property
    def unit(self) -> bool:
        return place_of(self.model).unit

    @torch.no_grad()
    def features(self, images: Tensor) -> list[Tensor]:
        return features_of(self.model, self._seen(images))

    @torch.no_grad()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        model = self.model if project is None and self.bank is None else seen_through(self.model, project or list)
        if isinstance(model, FilteredPatchcoreModel) and self.bank is not None:
            model.memory_bank = self.bank
        if isinstance(model, FilteredGlassModel) and self.mean is not None:
            model.normal_mean = self.mean
        found = model(self._seen(images))
        maps = found.anomaly_map.reshape(len(images), 1, *found.anomaly_map.shape[-2:])
        if maps.shape[2:] != images.shape[2:]:
            maps = F.interpolate(maps, images.shape[2:], mode="bilinear", align_corners=False)
        return HostScores(found.pred_score.flatten(), maps[:, 0])

    def prepare(self, project: Project) -> AnomalibHost:
        if not isinstance(self.model, PatchcoreModel):
            return self  # the others hold nothing of normal images that is compared
        bank = self.model.memory_bank if self.bank is None else self.bank
        return replace(self, bank=filtered_bank(self.model, bank, project))

    def _seen(self, images: Tensor) -> Tensor:
        return self.prepared(checked_images(images)).to(next(self.model.parameters()).device)
