"""Networks that give layer maps: timm's by stage, a ViT's by block, or one of this package's teachers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts.host import checked_images
from nfad.vision import weights as weight_files
from nfad.vision.devices import CPU
from nfad.vision.networks import Cnn, Stages, create_stages, normalisation
from nfad.vision.prior import foreground_prior
from nfad.vision.teacher import Teacher, VitTeacher, load_teacher

Backbone = Callable[[Tensor], list[Tensor]]


class TeacherMaps:
    """A teacher's unit tokens laid out as maps, with its foreground prior from the same pass."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def __call__(self, images: Tensor) -> list[Tensor]:
        return [as_map(tokens).to(images.device) for tokens in self.teacher.tokens(images)]

    def maps_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        tokens, prior = self.teacher.tokens_and_prior(images)
        return [as_map(block).to(images.device) for block in tokens], prior.to(images.device)


class VitMaps:
    """A ViT's tokens of some blocks laid out as maps, not unit; `last` puts them through its last norm.

    Hosts that read a ViT take these: they normalise, average or reconstruct tokens each in its own way.
    """

    def __init__(self, teacher: VitTeacher, last: bool = True) -> None:
        self.teacher, self.last = teacher, last

    def __call__(self, images: Tensor) -> list[Tensor]:
        return self.maps_and_summary(images)[0]

    def maps_and_summary(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """The maps, and the CLS token of the last of these blocks."""
        maps, summaries = self.maps_and_summaries(images)
        return maps, summaries[-1]

    def maps_and_summaries(self, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The maps, and the CLS token of each of these blocks."""
        tokens, summaries = self.teacher.normed(images, self.last)
        return [as_map(block).to(images.device) for block in tokens], [each.to(images.device) for each in summaries]

    def maps_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        return self(images), self.teacher.tokens_and_prior(images)[1].to(images.device)


class TimmMaps(nn.Module):
    """The stages of a timm network, not normalised, each at its own resolution.

    Frozen, but not under inference mode: a copy whose weights are set free again can be trained (ReContrast).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: Stages) -> None:
        super().__init__()
        self.network = network
        for key, value in zip(("mean", "std"), normalisation(network.model), strict=True):
            self.register_buffer(key, value)
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> list[Tensor]:
        return self.network((images - self.mean) / self.std)


class EmbeddedStages(nn.Module):
    """The embedded CNN's stages like those of `TimmMaps`, and the prior its teacher has."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: Cnn, layers: Sequence[int]) -> None:
        super().__init__()
        self.last = len(model.feature_info) - 1
        if not layers or min(layers) < 0 or max(layers) > self.last:
            raise NfadError(f"layers must lie in 0..{self.last} for the embedded CNN; got {list(layers)}")
        # Channels last: the layout a CPU's convolutions are fastest in.
        self.model, self.layers = model.to(memory_format=torch.channels_last), list(layers)
        for key, value in zip(("mean", "std"), normalisation(model), strict=True):
            self.register_buffer(key, value)
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> list[Tensor]:
        stages = self._run(images, self.layers)
        return [stages[layer] for layer in self.layers]

    def maps_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """The prior of `nfad.vision.teacher.CnnTeacher`: the cosine of the last stage with its own mean, on image/8."""
        stages, grid = self._run(images, [*self.layers, self.last]), images.shape[-1] // 8
        last = stages[self.last]
        prior = foreground_prior([last.flatten(2).transpose(1, 2)], [last.mean(dim=(2, 3))])
        prior = prior.reshape(len(last), 1, *last.shape[2:])
        prior = F.interpolate(prior, (grid, grid), mode="bilinear", align_corners=False)
        return [stages[layer] for layer in self.layers], prior.flatten(1)

    def _run(self, images: Tensor, layers: list[int]) -> dict[int, Tensor]:
        indices = sorted(set(layers))
        images = ((images - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        outputs = self.model.forward_intermediates(images, indices=indices, stop_early=True, intermediates_only=True)
        return dict(zip(indices, outputs, strict=True))


def embedded_maps(layers: Sequence[int] = (2, 3), device: torch.device = CPU) -> TeacherMaps:
    """The embedded CNN (1/8 and 1/16 of the image, laid on 1/8): real weights without a download."""
    return TeacherMaps(load_teacher("embedded-cnn", None, layers, (), 256, device))


def embedded_stages(layers: Sequence[int] = (1, 2, 3)) -> EmbeddedStages:
    """The embedded CNN's raw stages (0 to 4 lie at 1/2 to 1/32 of the image), for hosts that reconstruct them."""
    return EmbeddedStages(weight_files.embedded_cnn(), layers)


def vit_maps(
    name: str = "embedded-vit",
    blocks: Sequence[int] = (11,),
    weights: str | None = None,
    last: bool = True,
    device: torch.device = CPU,
) -> VitMaps:
    """A ViT by the names that teachers have; the embedded one comes with the installation."""
    teacher = load_teacher(name, weights, blocks, (9, 11), 256, device)
    if not isinstance(teacher, VitTeacher):
        raise NfadError(f"this host reads the tokens of a ViT; {name} is none: name one, e.g. embedded-vit")
    return VitMaps(teacher, last)


def timm_maps(tag: str, layers: Sequence[int] = (2, 3), weights: str | None = None, **options: Any) -> TimmMaps:
    """Any timm network, or resnet50-v1 with its file; (2, 3) are the stages PatchCore reads of a ResNet.

    `weights`: None (from the hub), a local file or folder, or "untrained"; `options` go to `timm.create_model`.
    """
    if tag == weight_files.KERAS_RESNET and weights is not None:
        network = create_stages("resnet50", layers, **options)
        weight_files.load_keras_resnet(network.model, weight_files.local_file(weights))
        return TimmMaps(network)
    if weights is None:
        ways_out = ("pass weights=FILE_OR_FOLDER", "use embedded_maps(), whose weights come with the installation")
        with weight_files.reaching_hub(tag, ways_out):
            network = create_stages(tag, layers, pretrained=True, **options)
        return TimmMaps(network)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that "untrained" is one network, not a lottery
            network = create_stages(tag, layers, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NfadError(f"{tag} gives no maps of layers {list(layers)} ({reason}); choose others") from None
    if weights != weight_files.UNTRAINED:
        weight_files.load_into(network.model, weight_files.local_file(weights), tag)
    return TimmMaps(network)


def square_images(images: Tensor, who: str) -> Tensor:
    """Images as a host named `who` takes them."""
    images = checked_images(images)
    if images.shape[2] != images.shape[3]:
        raise NfadError(f"{who} takes square images; got {images.shape[2]}×{images.shape[3]}: resize or crop them")
    return images


def maps_and_prior(backbone: Backbone, images: Tensor) -> tuple[list[Tensor], Tensor | None]:
    """Layer maps and, where the backbone offers one, the foreground prior, in one pass."""
    together = getattr(backbone, "maps_and_prior", None)
    return together(images) if together else (backbone(images), None)


def as_map(tokens: Tensor) -> Tensor:
    """(image, token, channel) → (image, channel, y, x) on a square grid."""
    side = round(tokens.shape[1] ** 0.5)
    return tokens.transpose(1, 2).reshape(len(tokens), -1, side, side)
