"""The detector as one of anomalib's models: trained, tested, predicted with and exported by its engine."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
from anomalib import LearningType
from anomalib.data import Batch, InferenceBatch
from anomalib.metrics import Evaluator
from anomalib.models.components import AnomalibModule, MemoryBankMixin
from anomalib.post_processing import PostProcessor
from anomalib.pre_processing import PreProcessor
from anomalib.visualization import Visualizer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor, nn
from torchvision.transforms.v2 import CenterCrop, Compose, Resize, Transform

from nfad.config import Config
from nfad.deploy.graph import ViewGraph
from nfad.detector import Detector
from nfad.errors import NfadError


class NfadModel(nn.Module):
    """Keeps the views it is shown in training, and judges the next ones once `fit` has seen them.

    In a checkpoint it is the detector's artifact, which names the teacher instead of repeating its weights.
    """

    artifact: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        # Views come cut: a centre crop has been made before, and must not be made again.
        self.config = dataclasses.replace(config, resize=None)
        self.detector: Detector | None = None
        self.graph: ViewGraph | None = None
        self.register_buffer("artifact", torch.zeros(0, dtype=torch.uint8))
        self._views: list[np.ndarray] = []
        self._register_state_dict_hook(_without_networks)
        self.register_load_state_dict_post_hook(_read_artifact)

    def fit(self) -> None:
        detector = Detector.fit(self._views, self.config, device="cpu")  # as Lightning is told
        self._views = []
        with tempfile.TemporaryDirectory(prefix="nfad-") as directory:
            content = detector.save(Path(directory) / "detector.nfad").read_bytes()
        self.artifact = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        self.become(detector)

    def forward(self, images: Tensor) -> InferenceBatch | None:
        if self.training:
            self._views += list((images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy())
            return None
        if self.graph is None:
            raise NfadError("Nfad has seen no normal image yet; train it with Engine.fit or load a checkpoint first")
        found = dict(zip(self.graph.read_outs.outputs, self.graph(images), strict=True))
        return InferenceBatch(pred_score=found["score"], anomaly_map=found["map"][:, None])

    def become(self, detector: Detector) -> None:
        self.detector, self.graph = detector, ViewGraph(detector)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """An artifact is as long as it is; the networks are not in the checkpoint and must not be missed."""
        self.detector = self.graph = None
        self.artifact = torch.empty_like(state_dict[f"{prefix}artifact"])
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _without_networks(_: nn.Module, state: dict[str, Tensor], prefix: str, __: object) -> None:
    for name in [name for name in state if name.startswith(f"{prefix}graph.")]:
        del state[name]


def _read_artifact(model: NfadModel, _: object) -> None:
    if len(model.artifact):
        with tempfile.TemporaryDirectory(prefix="nfad-") as directory:
            path = Path(directory) / "detector.nfad"
            path.write_bytes(model.artifact.numpy().tobytes())
            model.become(Detector.load(path, device="cpu"))


class Nfad(MemoryBankMixin, AnomalibModule):
    """NFAD by anomalib's conventions: fitted at the end of its one epoch, on the CPU.

    `preset` and `settings` are those of `nfad.Config`, e.g. `Nfad("embedded-fast", {"size": 224})`. The detector
    keeps its own threshold from held-out normals, `model.detector.threshold`; anomalib's post-processor sets another
    from the validation set, as for every model of it.
    """

    def __init__(
        self,
        preset: str = "embedded",
        settings: dict[str, object] | None = None,
        pre_processor: nn.Module | bool = True,
        post_processor: nn.Module | bool = True,
        evaluator: Evaluator | bool = True,
        visualizer: Visualizer | bool = True,
    ) -> None:
        config = Config.preset(preset, **(settings or {}))
        if pre_processor is True:
            pre_processor = self.configure_pre_processor((config.size, config.size), config.resize)
        super().__init__(
            pre_processor=pre_processor, post_processor=post_processor, evaluator=evaluator, visualizer=visualizer
        )
        # anomalib declares an nn.Module, and a variable may not be narrowed
        self.model: NfadModel = NfadModel(config)  # pyright: ignore[reportIncompatibleVariableOverride]

    @staticmethod
    def configure_pre_processor(image_size: tuple[int, int] | None = None, resize: int | None = None) -> PreProcessor:
        """The model's view of an image, in [0, 1]: teachers normalise inside."""
        image_size = image_size or (Config().size, Config().size)
        steps: list[Transform] = [Resize(image_size, antialias=True)]
        if resize is not None:
            steps = [Resize(resize, antialias=True), CenterCrop(image_size)]
        return PreProcessor(Compose(steps))

    def configure_post_processor(self) -> PostProcessor:
        return PostProcessor()

    def configure_optimizers(self) -> None:
        """Nothing is trained by gradient here; a student trains inside the fit."""

    def training_step(self, batch: Batch, *_: object) -> Tensor:
        self.model(batch.image)
        return torch.tensor(0.0, requires_grad=True)  # Lightning wants a loss

    def fit(self) -> None:
        self.model.fit()

    def validation_step(self, batch: Batch, *_: object) -> STEP_OUTPUT:
        return self.test_step(batch, 0)

    @property
    def trainer_arguments(self) -> dict[str, str | int]:
        return {
            "gradient_clip_val": 0, "max_epochs": 1, "num_sanity_val_steps": 0, "devices": 1, "accelerator": "cpu",
        }  # fmt: skip

    @property
    def learning_type(self) -> LearningType:
        return LearningType.ONE_CLASS
