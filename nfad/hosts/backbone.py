"""Networks that give layer maps: timm's by stage, or one of this package's teachers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn

from nfad.errors import NfadError
from nfad.vision import weights as weight_files
from nfad.vision.teacher import Teacher, load_teacher


class TeacherMaps:
    """A teacher's unit tokens laid out as maps, with its foreground prior from the same pass."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def __call__(self, images: Tensor) -> list[Tensor]:
        return [_as_map(tokens) for tokens in self.teacher.tokens(images)]

    def maps_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        tokens, prior = self.teacher.tokens_and_prior(images)
        return [_as_map(block) for block in tokens], prior


class TimmMaps:
    """The stages of a frozen timm network, not normalised, each at its own resolution."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network.eval().requires_grad_(False)
        config = network.model.pretrained_cfg  # the normalisation the weights were trained with
        self._mean, self._std = (torch.tensor(config[key])[:, None, None] for key in ("mean", "std"))

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> list[Tensor]:
        return self._network((images - self._mean) / self._std)


def embedded_maps(layers: Sequence[int] = (2, 3)) -> TeacherMaps:
    """The embedded CNN (1/8 and 1/16 of the image, laid on 1/8): real weights without a download."""
    return TeacherMaps(load_teacher("embedded-cnn", None, layers, (), 256))


def timm_maps(tag: str, layers: Sequence[int] = (2, 3), weights: str | None = None, **options: Any) -> TimmMaps:
    """Any timm network; (2, 3) are the stages PatchCore reads of a ResNet.

    `weights`: None (from the hub), a local file or folder, or "untrained"; `options` go to `timm.create_model`.
    """
    # The getter keeps the network whole inside, so that local files load by the names they were saved with.
    options |= {"features_only": True, "feature_cls": "getter", "out_indices": tuple(layers)}
    if weights is None:
        ways_out = ("pass weights=FILE_OR_FOLDER", "use embedded_maps(), whose weights come with the installation")
        return TimmMaps(weight_files.from_hub(tag, ways_out, **options))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that "untrained" is one network, not a lottery
            network = timm.create_model(tag, pretrained=False, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NfadError(f"{tag} gives no maps of layers {list(layers)} ({reason}); choose others") from None
    if weights != weight_files.UNTRAINED:
        weight_files.load_into(network.model, weight_files.local_file(weights), tag)
    return TimmMaps(network)


def _as_map(tokens: Tensor) -> Tensor:
    side = round(tokens.shape[1] ** 0.5)
    return tokens.transpose(1, 2).reshape(len(tokens), -1, side, side)
