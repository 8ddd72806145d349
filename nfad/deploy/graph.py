"""The detector as torch modules, cut where an export wants them cut: pixels → views → networks → read-outs."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from nfad.deploy.resizing import MatrixResizing
from nfad.detector import Detector
from nfad.reference.student import Student
from nfad.scoring import MAPS
from nfad.vision.images import to_view
from nfad.vision.maps import image_score, pixel_maps

# What every graph gives, in this order. Maps are (n, size, size), the rest (n,), families (n, family).
OUTPUTS = (
    "score", "control_score", "map", "detection_map", "control_map", "gate", "participation", "nuisance_fraction",
    "nuisance_by_family",
)  # fmt: skip


def family_names(detector: Detector) -> tuple[str, ...]:
    """The columns of `nuisance_by_family`."""
    return tuple(dict.fromkeys(name for block in detector.scorer.operator.families for name in block))


def token_shapes(detector: Detector) -> dict[str, tuple[int, ...]]:
    """What passes from the networks to the read-outs, by name, of one image."""
    teacher, tokens = detector.teacher, detector.teacher.grid**2
    blocks = {str(block): (tokens, channels) for block, channels in enumerate(teacher.channels)}
    shapes: dict[str, tuple[int, ...]] = {f"tokens_{block}": shape for block, shape in blocks.items()}
    if detector.config.foreground:
        shapes["prior"] = (tokens,)
    if isinstance(detector.scorer.reference, Student):
        shapes |= {f"predicted_{block}": shape for block, shape in blocks.items()}
    return shapes


class Networks(nn.Module):
    """Views → teacher tokens a block, then the foreground prior and the student's tokens where they are used."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.teacher = detector.teacher
        self.network = detector.teacher._model  # registered, so that an exporter finds parameters rather than literals
        reference = detector.scorer.reference
        self.student = reference if isinstance(reference, Student) else None
        self.prior = detector.config.foreground
        # Once for real: an export runs on stand-ins without values, and could not compute the resizing weights.
        self(torch.zeros(1, 3, detector.config.size, detector.config.size))

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> tuple[Tensor, ...]:
        with MatrixResizing():
            if self.prior:
                tokens, prior = self.teacher.tokens_and_prior(views)
                found = (*tokens, prior)
            else:
                found = tuple(self.teacher.tokens(views))
            return found if self.student is None else (*found, *self.student(views))


class ReadOuts(nn.Module):
    """What `Networks` gives → OUTPUTS."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.scorer, self.config, self.normal_maps = detector.scorer, detector.config, detector.normal_maps
        self.families = family_names(detector)
        pixel_maps(torch.zeros(1, detector.teacher.grid**2), self.config.size, self.config.sigma)  # once for real, too

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        blocks = len(self.config.blocks)
        tokens, rest = inputs[:blocks], list(inputs[blocks:])
        prior = rest.pop(0) if self.config.foreground else None
        out = self.scorer.read(tokens, rest or None, None, prior)
        maps = {}
        for name in MAPS:
            mean, spread = self.normal_maps[name]
            maps[name] = (pixel_maps(getattr(out, name), self.config.size, self.config.sigma) - mean) / spread
        shares = [out.nuisance_by_family[family] for family in self.families]
        return (
            image_score(maps["detection"], self.config.top),
            image_score(maps["control"], self.config.top),
            maps["localization"],
            maps["detection"],
            maps["control"],
            out.gate,
            out.participation,
            out.nuisance_fraction,
            torch.stack(shares, dim=1) if shares else out.gate.new_zeros(len(out.gate), 0),
        )


class ViewGraph(nn.Module):
    """Views (n, 3, size, size) in [0, 1] → OUTPUTS, plain torch on the CPU; `torch.onnx.export` takes it as it is."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.networks, self.read_outs = Networks(detector), ReadOuts(detector)
        self.eval().requires_grad_(False)

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> tuple[Tensor, ...]:
        return self.read_outs(*self.networks(views))


class Graph(nn.Module):
    """RGB pixels (n, h, w, 3), uint8, of any height and width → OUTPUTS: what an exported file must equal."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.size, self.resize = detector.config.size, detector.config.resize
        self.views = ViewGraph(detector)

    def forward(self, pixels: UInt8[Tensor, "image height width 3"]) -> tuple[Tensor, ...]:
        views = [to_view(np.asarray(image), self.size, self.resize)[0] for image in pixels]
        return self.views(torch.stack(views))
