"""Networks by their names: embedded, from the hub, from a local file, or untrained; and who they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

import timm
import torch

from nfad.errors import NfadError
from nfad.vision import weights as weight_files
from nfad.vision.folding import folded
from nfad.vision.networks import Network, create
from nfad.vision.weights import EMBEDDED_ARCHITECTURE, KERAS_RESNET, UNTRAINED

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


@dataclass(frozen=True)
class Identity:
    """Which network with which weights: stored with a model and checked when it is loaded."""

    name: str
    architecture: str
    weights: str  # "embedded", "hub", "untrained" or a file's name
    sha256: (
        str  # of the weight file; of the tensors where there is no file at hand (hub), roughly where drawn (untrained)
    )


class Options(TypedDict, total=False):
    """Those of timm that a teacher is made with."""

    num_classes: int
    img_size: int
    dynamic_img_size: bool


def named_network(name: str, weights: str | None, size: int) -> tuple[Network, Identity]:
    """Frozen, for views of this size; `load_teacher` says which names and weights there are."""
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
    return model, Identity(name, architecture, source, digest)


def cannot_tap(architecture: str, error: Exception) -> NfadError:
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
        model = folded(weight_files.embedded_cnn(name).eval())
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
    if architecture.startswith("swin"):  # its patch is only the first of its strides, its windows are laid at one size
        options["img_size"] = size
    elif patch:
        options["img_size"] = size // 16 * int(patch[1])
        if not architecture.startswith("beit"):  # BEiT's relative positions are tied to one size
            options["dynamic_img_size"] = True
    if weights == UNTRAINED:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that "untrained" is one network, not a lottery
            model = _create(tag, options)
        return model, UNTRAINED, weight_files.drawn_digest(model.state_dict())
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
        raise cannot_tap(tag, error) from None
