"""NFAD's own teacher and reference as a host, so that one table can hold it beside the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.hosts.backbone import TeacherMaps, as_map, square_images
from nfad.hosts.filter import NuisanceFilter
from nfad.hosts.host import HostScores, Project
from nfad.operator.readout import discrepancy
from nfad.reference.foreground import on_foreground
from nfad.vision.maps import image_score, pixel_maps


@dataclass(frozen=True)
class Pair:
    """A fitted detector without its operator: bare it gives the control read-out, before any z-score.

    Wearing `own_filter()` it gives the detection read-out of fit-then-filter, unread. The common mode is not
    subtracted: that would be a second operator.
    """

    detector: Detector

    @property
    def unit(self) -> bool:
        return True  # cosines compare directions

    def own_filter(self) -> NuisanceFilter:
        """The detector's own subspaces."""
        operator = self.detector.scorer.operator
        return NuisanceFilter(operator.bases, operator.families, self.detector.config.interventions)

    def features(self, images: Tensor) -> list[Tensor]:
        return TeacherMaps(self.detector.seeing)(self._views(images))

    def features_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        return TeacherMaps(self.detector.seeing).maps_and_prior(self._views(images))

    @torch.inference_mode()
    def score(self, images: Tensor, project: Project | None = None) -> HostScores:
        config, teacher = self.detector.config, self.detector.seeing
        views = self._views(images)
        tokens, prior = teacher.tokens_and_prior(views) if config.foreground else (teacher.tokens(views), None)
        expected = self.detector.scorer.expect(tokens, views)
        if project:
            tokens, expected = (_through(project, blocks) for blocks in (tokens, expected))
        gaps = torch.stack([discrepancy(t, s) for t, s in zip(tokens, expected, strict=True)]).mean(dim=0)
        if prior is not None:
            gaps = on_foreground(gaps, self.detector.scorer.part(prior))
        maps = pixel_maps(gaps, config.size, config.sigma)
        return HostScores(image_score(maps, config.scored_fraction).to(images.device), maps.to(images.device))

    def prepare(self, project: Project) -> Pair:
        return self

    def _views(self, images: Tensor) -> Tensor:
        images, size = square_images(images, type(self).__name__), self.detector.config.size
        if images.shape[-1] != size:
            raise NfadError(f"the detector was fitted at {size}²; got images of {images.shape[-1]}²: resize them")
        return images


def _through(project: Project, blocks: list[Tensor]) -> list[Tensor]:
    """Tokens laid out as the maps a projection takes, and back."""
    return [maps.flatten(2).transpose(1, 2) for maps in project([as_map(tokens) for tokens in blocks])]
