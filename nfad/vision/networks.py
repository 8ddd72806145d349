"""timm's networks with the attributes used here, of which its `create_model` promises nothing but an `nn.Module`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, overload

import timm
import torch
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models import vision_transformer
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    class Pretraining(TypedDict):
        """The normalisation the weights were trained with, among much else."""

        mean: tuple[float, float, float]
        std: tuple[float, float, float]

    class Stage(TypedDict):
        num_chs: int
        module: str

    class Patches(nn.Module):
        patch_size: tuple[int, int]

    class Vit(nn.Module):
        """By shape: timm's ViTs (VisionTransformer, Eva, Beit) have no base class in common."""

        pretrained_cfg: Pretraining
        blocks: nn.Sequential
        patch_embed: Patches
        embed_dim: int
        norm: nn.Module

        def forward_intermediates(
            self,
            x: Tensor,
            indices: list[int],
            return_prefix_tokens: Literal[True],
            norm: bool,
            stop_early: bool,
            output_fmt: Literal["NLC"],
            intermediates_only: Literal[True],
        ) -> list[tuple[Tensor, Tensor]]:
            """Patch tokens and prefix tokens of each block."""
            ...

    class Cnn(nn.Module):
        pretrained_cfg: Pretraining
        feature_info: list[Stage]

        def forward_intermediates(
            self, x: Tensor, indices: list[int], stop_early: bool, intermediates_only: Literal[True]
        ) -> list[Tensor]:
            """The map of each stage."""
            ...

    class Stages(nn.Module):
        """A network that returns maps of some stages."""

        model: Cnn  # whole, so that local files load by the names they were saved with

        def __call__(self, x: Tensor) -> list[Tensor]: ...
else:
    Vit = Cnn = Stages = nn.Module  # what they are nominally

Network = Vit | Cnn


@overload
def create(tag: Literal["tf_efficientnet_lite0"], pretrained: bool = False) -> Cnn: ...
@overload
def create(tag: str, pretrained: bool = False, **options: Any) -> Network: ...
def create(tag: str, pretrained: bool = False, **options: Any) -> nn.Module:
    """`options` are timm's. Whether it gives a ViT or a CNN depends on the tag; `is_vit` tells."""
    with timms_own_positions():
        return timm.create_model(tag, pretrained=pretrained, **options)


@contextmanager
def timms_own_positions() -> Iterator[None]:
    """Around what resizes a ViT's positions: anomalib's networks turn their antialiasing off for the whole process, and
    tokens would depend on whether one of them was made before."""
    used = vision_transformer.__dict__
    found, used["resample_abs_pos_embed"] = used["resample_abs_pos_embed"], resample_abs_pos_embed
    try:
        yield
    finally:
        used["resample_abs_pos_embed"] = found


def create_stages(tag: str, layers: Sequence[int], pretrained: bool = False, **options: Any) -> Stages:
    options |= {"features_only": True, "feature_cls": "getter", "out_indices": tuple(layers)}
    return cast("Stages", timm.create_model(tag, pretrained=pretrained, **options))


def is_vit(model: Network) -> TypeIs[Vit]:
    return hasattr(model, "blocks") and hasattr(model, "patch_embed")


def normalisation(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Mean and deviation the weights were trained with, (3, 1, 1) each (timm records them; lite0's are 0.5)."""
    config: Pretraining = vars(model)["pretrained_cfg"]
    return torch.tensor(config["mean"])[:, None, None], torch.tensor(config["std"])[:, None, None]
