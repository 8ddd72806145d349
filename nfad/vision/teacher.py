"""Frozen teachers: unit patch tokens of chosen blocks, and the foreground prior, from images in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.devices import CPU, computing, frozen_precision, is_close
from nfad.vision.named import Identity, cannot_tap, named_network
from nfad.vision.networks import Cnn, Vit, is_vit, normalisation
from nfad.vision.prior import foreground_prior
from nfad.vision.region import Region, looked_at
from nfad.vision.weights import EMBEDDED_ARCHITECTURE


@runtime_checkable
class Teacher(Protocol):
    """What the rest of the package knows of a backbone."""

    identity: Identity
    channels: tuple[int, ...]  # one per block
    grid: int  # tokens a side at the configured size
    device: torch.device  # it runs on; images come from anywhere, tokens and prior are given on the CPU
    region: Region | None  # that it looks at; None: the whole image

    def tokens(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        """Unit tokens of each block; nothing deeper than the deepest block is computed."""
        ...

    def tokens_and_prior(
        self, images: Float[Tensor, "image 3 h w"]
    ) -> tuple[list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]]:
        """The same with the foreground prior, which needs deeper blocks."""
        ...


class VitTeacher:
    """Any timm ViT. CLS and register tokens are prefix tokens there and never among the patches."""

    region: Region | None = None

    def __init__(
        self,
        model: Vit,
        identity: Identity,
        blocks: Sequence[int],
        prior_blocks: Sequence[int],
        size: int,
        device: torch.device = CPU,
    ) -> None:
        depth = len(model.blocks)
        for name, chosen in (("blocks", blocks), ("prior_blocks", prior_blocks)):
            if not chosen or min(chosen) < 0 or max(chosen) >= depth:
                raise NfadError(f"{name} must lie in 0..{depth - 1} for {identity.architecture}; got {list(chosen)}")
        if getattr(model, "cls_token", None) is None:
            raise NfadError(f"{identity.architecture} has no CLS token, which the foreground prior needs")
        self.identity, self.network = identity, model.to(device)
        self.device, self.precision = device, frozen_precision(device)
        self._blocks, self._prior_blocks = list(blocks), list(prior_blocks)
        self.channels = (model.embed_dim,) * len(blocks)
        self.grid = size // 16
        self._patch = model.patch_embed.patch_size[0]
        self._mean, self._std = (each.to(device) for each in normalisation(model))

    def tokens(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        patches, _ = self._run(images, self._blocks)
        return [F.normalize(patches[block], dim=-1) for block in self._blocks]

    def tokens_and_prior(
        self, images: Float[Tensor, "image 3 h w"]
    ) -> tuple[list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]]:
        patches, summaries = self._run(images, self._blocks + self._prior_blocks)
        prior = foreground_prior([patches[b] for b in self._prior_blocks], [summaries[b] for b in self._prior_blocks])
        return [F.normalize(patches[block], dim=-1) for block in self._blocks], prior

    @torch.inference_mode()
    def normed(
        self, images: Float[Tensor, "image 3 h w"], last: bool
    ) -> tuple[list[Float[Tensor, "image token _"]], list[Float[Tensor, "image _"]]]:
        """Tokens of each block and its CLS token as they are, or (`last`) through the network's last norm; not unit."""
        patches, summaries = self._run(images, self._blocks)
        if last:
            patches, summaries = (
                {block: self.network.norm(each.to(self.device)).cpu() for block, each in tokens.items()}
                for tokens in (patches, summaries)
            )
        return [patches[block] for block in self._blocks], [summaries[block] for block in self._blocks]

    @torch.inference_mode()
    def _run(self, images: Tensor, blocks: list[int]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        # The grid is always image/16, so a patch-14 teacher sees 196² where the student sees 224².
        images, side = looked_at(self.region, images).to(self.device), images.shape[-1] // 16 * self._patch
        if images.shape[-1] != side:
            images = F.interpolate(images, (side, side), mode="bilinear", antialias=True, align_corners=False)
        indices = sorted(set(blocks))
        with computing(self.device, self.precision):
            outputs = self.network.forward_intermediates(
                (images - self._mean) / self._std,
                indices=indices,
                return_prefix_tokens=True,
                norm=False,
                stop_early=True,
                output_fmt="NLC",
                intermediates_only=True,
            )
        patches = {index: patch.float().cpu() for index, (patch, _) in zip(indices, outputs, strict=True)}
        summaries = {index: prefix[:, 0].float().cpu() for index, (_, prefix) in zip(indices, outputs, strict=True)}
        return patches, summaries


class CnnTeacher:
    """Any timm CNN by stage (0 is the stem's output). Stages meet on a grid of image/8.

    There is no CLS token: the prior is the cosine of the last stage's positions with their global mean.
    """

    region: Region | None = None

    def __init__(
        self, model: Cnn, identity: Identity, blocks: Sequence[int], size: int, device: torch.device = CPU
    ) -> None:
        stages = len(model.feature_info)
        if not blocks or min(blocks) < 0 or max(blocks) >= stages:
            raise NfadError(
                f"blocks must lie in 0..{stages - 1} for {identity.architecture}; got {list(blocks)}: set others, or "
                "take a preset of this teacher (embedded-fast is the embedded CNN's)"
            )
        # Channels last: the layout in which a CPU's convolutions are fastest, and a GPU's in fp16.
        self.network = model.to(device).to(memory_format=torch.channels_last)
        self.device, self.precision = device, frozen_precision(device)
        self.identity, self._blocks, self._last = identity, list(blocks), stages - 1
        self.channels = tuple(model.feature_info[block]["num_chs"] for block in blocks)
        self.grid = size // 8
        self._mean, self._std = (each.to(device) for each in normalisation(model))

    def tokens(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        stages = self._run(images, self._blocks)
        return [self._to_tokens(stages[block], images.shape[-1] // 8) for block in self._blocks]

    def tokens_and_prior(
        self, images: Float[Tensor, "image 3 h w"]
    ) -> tuple[list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]]:
        stages, grid = self._run(images, [*self._blocks, self._last]), images.shape[-1] // 8
        last = stages[self._last]
        coarse = foreground_prior([last.flatten(2).transpose(1, 2)], [last.mean(dim=(2, 3))])
        coarse = coarse.reshape(len(last), 1, *last.shape[2:])
        prior = F.interpolate(coarse, (grid, grid), mode="bilinear", align_corners=False)
        return [self._to_tokens(stages[block], grid) for block in self._blocks], prior.flatten(1)

    @torch.inference_mode()
    def _run(self, images: Tensor, blocks: list[int]) -> dict[int, Tensor]:
        indices = sorted(set(blocks))
        images = looked_at(self.region, images).to(self.device)
        images = ((images - self._mean) / self._std).contiguous(memory_format=torch.channels_last)
        with computing(self.device, self.precision):
            outputs = self.network.forward_intermediates(
                images, indices=indices, stop_early=True, intermediates_only=True
            )
        return {index: stage.float().cpu() for index, stage in zip(indices, outputs, strict=True)}

    def _to_tokens(self, stage: Tensor, grid: int) -> Tensor:
        if stage.shape[-1] != grid:
            stage = F.interpolate(
                stage, (grid, grid), mode="bilinear", antialias=stage.shape[-1] > grid, align_corners=False
            )
        # By one permutation of what lies channels last already: a graph would lay it out anew, and then once more.
        return F.normalize(stage.permute(0, 2, 3, 1).flatten(1, 2), dim=-1)


def load_teacher(
    name: str,
    weights: str | None,
    blocks: Sequence[int],
    prior_blocks: Sequence[int],
    size: int,
    device: torch.device = CPU,
) -> VitTeacher | CnnTeacher:
    """The teacher by name (an alias of FOUNDATIONS, embedded-vit, embedded-cnn, resnet50-v1, any timm tag), frozen.

    `weights`: None (embedded or from the hub), a local file or folder, or "untrained".
    """
    if size % 16:
        raise NfadError(f"size must be a multiple of 16; got {size}")
    model, identity = named_network(name, weights, size)
    try:
        teacher = (
            VitTeacher(model, identity, blocks, prior_blocks, size, device)
            if is_vit(model)
            else CnnTeacher(model, identity, blocks, size, device)
        )
        if name not in EMBEDDED_ARCHITECTURE:  # timm has many networks: find out now whether this one can be tapped
            teacher.tokens_and_prior(torch.zeros(1, 3, size, size))
    except NfadError:
        raise
    except Exception as error:
        raise cannot_tap(identity.architecture, error) from None
    if teacher.precision is not None and not is_close(teacher, size):
        teacher.precision = None
    return teacher
