"""The qualitative figure of an evaluation: typical test images of its shifted domains as triplets."""

from __future__ import annotations

from pathlib import Path

from nfad.evaluation.session import Finding
from nfad.paper.triplets import choose, triplets
from nfad.report.pictures import full_at
from nfad.report.results import picture_of
from nfad.vision.pixels import photo_of

SHOWN = 2  # defects and normals of each domain


def draw_qualitative(finding: Finding, path: Path) -> Path:
    """Photo, control map and filtered map of images chosen by rule, not by eye (`triplets.choose`)."""
    pictures = []
    sources = {sample.domain for sample in finding.dataset.train} or {"same"}
    # A defect without a mask has nothing to draw round, and must not pass for a normal.
    images = finding.evaluation.images
    shown = [i for i, image in enumerate(images) if not image.sample.anomalous or image.sample.mask is not None]
    for place in choose([images[i] for i in shown], SHOWN, source=next(iter(sources))):
        index = shown[place]
        picture = picture_of(finding, index)
        sample = picture.sample
        photo = photo_of(sample.path) if picture.photo is None else picture.photo
        mask = picture.mask if sample.anomalous else None
        label = str(finding.corruption or sample.domain)
        pictures.append((photo, picture.prediction, mask, f"{label}, {sample.kind}"))
    return triplets(pictures, path, high=full_at(finding.detector.threshold))
