from dataclasses import dataclass

import torch
from torch.nn import functional as F

from nfad.hosts import HostScores


@dataclass
class Watched:
    """A host that counts the images it was asked for, compares with a fixed normal, and may see a foreground."""

    backbone: object
    normal: list
    unit: bool = False
    sees: bool = False
    passes: int = 0

    def features(self, images):
        self.passes += len(images)
        return self.backbone(images)

    def features_and_prior(self, images):
        prior = (torch.arange(16).repeat(len(images), 1) >= 8).float() if self.sees else None
        return self.features(images), prior

    def score(self, images, project=None):
        features = self.features(images)
        return self.judge(project(features) if project else features, images)

    def judge(self, features, images):
        gaps = [(maps - normal).square().sum(dim=1) for maps, normal in zip(features, self.normal)]
        maps = sum(F.interpolate(gap[:, None], images.shape[2:])[:, 0] for gap in gaps)
        return HostScores(maps.flatten(1).amax(dim=1), maps)

    def prepare(self, project):
        return Watched(self.backbone, project(self.normal), self.unit, self.sees)
