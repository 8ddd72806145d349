"""anomalib's models as OpenVINO graphs, for `deploy.py`; untrained, which does not change what they cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

SIZE = 256  # of the peers beside the embedded models
BANK = 20_480  # patches PatchCore keeps of 200 images at 256²: a tenth of 32 × 32 each
Judge = Callable[[np.ndarray], object]


def peers() -> dict[str, Callable]:
    """anomalib's models, on networks of our size where they take one."""
    from anomalib.models import EfficientAd, Patchcore, ReverseDistillation

    def patchcore() -> Patchcore:
        made = Patchcore(
            "tf_efficientnet_lite0", ["blocks.2", "blocks.4"], pre_trained=False,
            pre_processor=Patchcore.configure_pre_processor((SIZE, SIZE)),
        )  # fmt: skip
        made.model.memory_bank = torch.randn(BANK, sum(made.model.feature_extractor.out_dims))
        return made

    return {
        "anomalib PatchCore (the same CNN)": patchcore,
        "anomalib ReverseDistillation (ResNet-18)": lambda: ReverseDistillation(
            "resnet18", pre_trained=False, pre_processor=ReverseDistillation.configure_pre_processor((SIZE, SIZE))
        ),
        "anomalib EfficientAD-S": lambda: EfficientAd(pre_processor=EfficientAd.configure_pre_processor((SIZE, SIZE))),
    }


def dinomaly() -> object:
    import timm
    from anomalib.models import Dinomaly

    def untrained(name: str, pretrained: bool = False, **options: object) -> torch.nn.Module:
        return create(name, pretrained=False, **options)

    create = timm.create_model
    with mock.patch("timm.create_model", untrained):  # it has no option to leave the hub alone
        return Dinomaly("vit_base_patch14_reg4_dinov2", pre_processor=Dinomaly.configure_pre_processor((224, 224), 224))


class _Plain(torch.nn.Module):
    """A peer without Lightning around it; its post-processing, which is nothing beside the rest, is left out."""

    def __init__(self, peer: torch.nn.Module) -> None:
        super().__init__()
        self.before, self.model = peer.pre_processor, peer.model

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(self.before(images))
        return found.pred_score, found.anomaly_map


def opened_peer(make: Callable, folder: Path, size: int) -> Judge:
    """Its OpenVINO export at f32, fed as its own inferencer does: floats in [0, 1], channels first."""
    import openvino

    graph = folder / "weights" / "openvino" / "model.xml"
    if not graph.exists():
        make().eval().to_openvino(folder, input_size=(size, size))
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    model = core.read_model(graph)
    try:
        model.reshape([1, 3, size, size])
    except RuntimeError:  # PatchCore's own export comes out for a batch of two: traced for one instead
        model = openvino.convert_model(_Plain(make().eval()), example_input=torch.rand(1, 3, size, size))
        model.reshape([1, 3, size, size])
    compiled = core.compile_model(model, "CPU", settings)
    return lambda pixels: compiled(pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255)
