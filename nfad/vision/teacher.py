"""Frozen teachers: unit patch tokens of chosen blocks, and the foreground prior, from images in [0, 1]."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict, runtime_checkable

import timm
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision import weights as weight_files
from nfad.vision.devices import CPU, TOLERANCE, computing, frozen_precision
from nfad.vision.networks import Cnn, Network, Vit, create, is_vit, normalisation
from nfad.vision.prior import foreground_prior
from nfad.vision.region import Region, looked_at
from nfad.vision.weights import KERAS_RESNET, UNTRAINED

# The eight foundations of the paper as exact timm tags (all ViT-B).
FOUNDATIONS = {
    "dinov3": "vit_base_patch16_dinov3.lvd1689m",
    "dinov2": "vit_base_patch14_dinov2.lvd142m",
    "dinov2r": "vit_base_patch14_reg4_dinov2.lvd142m",
    "dino": "vit_base_patch16_224.dino",
    "clip": "vit_base_patch16_clip_224.openai",
    "beitv2": "beitv2_base_patch16_224.in1k_ft_in22k_in1k",
    "deit": "deit_base_patch16_224.fb_in1k",
    "augreg": "vit_base_patch16_224.augreg_in21k_ft_in1k",
}
EMBEDDED_ARCHITECTURE = {"embedded-vit": "vit_small_patch14_dinov2", "embedded-cnn": "tf_efficientnet_lite0"}


@dataclass(frozen=True)
class Identity:
    """Which network with which weights: stored with a model and checked when it is loaded."""

    name: str
    architecture: str
    weights: str  # "embedded", "hub", "untrained" or a file's name
    sha256: str  # of the weight file; of the tensors where there is no file at hand (hub, untrained)


class Options(TypedDict, total=False):
    """Those of timm that a teacher is made with."""

    num_classes: int
    img_size: int
    dynamic_img_size: bool


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
            raise NfadError(f"blocks must lie in 0..{stages - 1} for {identity.architecture}; got {list(blocks)}")
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
        return F.normalize(stage.flatten(2).transpose(1, 2), dim=-1)


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
    if name in EMBEDDED_ARCHITECTURE and weights is None:
        model, source, digest = _embedded(name, size)
        architecture = EMBEDDED_ARCHITECTURE[name]
    elif name == KERAS_RESNET:
        model, source, digest = _keras_resnet(weights)
        architecture = "resnet50"
    else:
        architecture = FOUNDATIONS.get(name, EMBEDDED_ARCHITECTURE.get(name, name))
        model, source, digest = _timm(name, architecture, weights, size)
    model.eval().requires_grad_(False)
    identity = Identity(name, architecture, source, digest)
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
        raise _cannot_tap(architecture, error) from None
    if teacher.precision is not None and not _is_close(teacher, size):
        teacher.precision = None
    return teacher


def _is_close(teacher: VitTeacher | CnnTeacher, size: int) -> bool:
    """Whether the tokens of a probe are those of full precision within the tolerance; what overflows is not."""
    probe = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    lower, precision = teacher.tokens(probe), teacher.precision
    teacher.precision = None
    full = teacher.tokens(probe)
    teacher.precision = precision
    gaps = [float((1 - (a * b).sum(dim=-1)).max()) for a, b in zip(lower, full, strict=True)]
    return all(gap <= TOLERANCE for gap in gaps)  # put so that NaN is refused too


def looking_at(teacher: Teacher, region: Region) -> VitTeacher | CnnTeacher:
    """The same network for photos of which only a region counts."""
    if not isinstance(teacher, (VitTeacher, CnnTeacher)):
        raise NfadError(f"a mask needs a teacher of its own, not {type(teacher).__name__}")
    other = copy.copy(teacher)
    other.region = region
    return other


def _cannot_tap(architecture: str, error: Exception) -> NfadError:
    return NfadError(
        f"{architecture} cannot be used as a teacher ({type(error).__name__}: {' '.join(str(error).split())[:120]}); "
        "choose a plain ViT or a CNN"
    )


def _embedded(name: str, size: int) -> tuple[Network, str, str]:
    path = weight_files.embedded_file(name)
    if name == "embedded-vit":
        side = size // 16 * 14
        model = create(EMBEDDED_ARCHITECTURE[name], num_classes=0, img_size=side, dynamic_img_size=True)
        model.load_state_dict(weight_files.embedded_vit_state(side))
    else:
        model = weight_files.embedded_cnn()
    return model, "embedded", weight_files.sha256(path)


def _keras_resnet(weights: str | None) -> tuple[Network, str, str]:
    if weights is None:
        raise NfadError(f"{KERAS_RESNET} is read from a file: give its weights (--weights FILE)")
    model, path = create("resnet50", num_classes=0), weight_files.local_file(weights)
    weight_files.load_keras_resnet(model, path)
    return model, path.name, weight_files.sha256(path)


def _timm(name: str, tag: str, weights: str | None, size: int) -> tuple[Network, str, str]:
    architecture = tag.split(".")[0]
    if architecture not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{architecture.split('_')[0]}*")[:3])
        raise NfadError(
            f"teacher {name!r} is neither embedded-vit, embedded-cnn, {', '.join(FOUNDATIONS)} nor a timm model"
            + (f" (similar: {near})" if near else "")
        )
    options: Options = {"num_classes": 0}
    patch = re.search(r"patch(\d+)", architecture)
    if patch:
        options["img_size"] = size // 16 * int(patch[1])
        if not architecture.startswith("beit"):  # BEiT's relative positions are tied to one size
            options["dynamic_img_size"] = True
    if weights == UNTRAINED:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that "untrained" is one network, not a lottery
            model = _create(tag, options)
        return model, UNTRAINED, weight_files.state_digest(model.state_dict())
    if weights is not None:
        path = weight_files.local_file(weights)
        model = _create(tag, options)
        weight_files.load_into(model, path, tag)
        return model, path.name, weight_files.sha256(path)
    ways_out = (
        "pass weights=FILE_OR_FOLDER (--weights)",
        "use a teacher whose weights come with the installation: embedded-vit or embedded-cnn",
    )
    model = weight_files.from_hub(tag, ways_out, **options)
    return model, "hub", weight_files.state_digest(model.state_dict())


def _create(tag: str, options: Options) -> Network:
    try:
        return create(tag, **options)
    except Exception as error:
        raise _cannot_tap(tag, error) from None
