"""ResNet-50 v1 with the strides, ε and colours that its weights presume."""

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts import timm_maps
from nfad.vision.teacher import load_teacher


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    torch.manual_seed(3)
    state = timm.create_model("resnet50", num_classes=0).state_dict()
    path = tmp_path_factory.mktemp("weights") / "v1.safetensors"
    save_file({key: value.half() for key, value in state.items() if not key.endswith("tracked")}, path)
    return path


def test_it_computes_what_keras_would(file):
    """The first stages by hand, from BGR pixels of 0 to 255 less the mean."""
    images = torch.rand(1, 3, 64, 64)
    teacher = load_teacher("resnet50-v1", str(file), (1, 2), (), 64)
    state = {key: value.float() for key, value in load_file(file).items()}

    def normed(x, name):
        keys = (f"{name}.running_mean", f"{name}.running_var", f"{name}.weight", f"{name}.bias")
        return F.batch_norm(x, *(state[key] for key in keys), eps=1.001e-5)

    def block(x, name, stride):
        out = F.relu(normed(F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride), f"{name}.bn1"))
        out = F.relu(normed(F.conv2d(out, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2"))
        out = normed(F.conv2d(out, state[f"{name}.conv3.weight"]), f"{name}.bn3")
        if f"{name}.downsample.0.weight" in state:
            across = F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
            x = normed(across, f"{name}.downsample.1")
        return F.relu(out + x)

    seen = images.flip(1) * 255 - torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    x = F.relu(normed(F.conv2d(seen, state["conv1.weight"], stride=2, padding=3), "bn1"))
    x = F.max_pool2d(x, 3, 2, 1)
    wanted = []
    for layer, blocks in ((1, 3), (2, 4)):
        for index in range(blocks):
            x = block(x, f"layer{layer}.{index}", 2 if layer > 1 and index == 0 else 1)
        wanted.append(x)
    found = timm_maps("resnet50-v1", (1, 2), str(file))(images)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
    units = F.normalize(wanted[1].flatten(2).transpose(1, 2), dim=-1)
    assert torch.allclose(teacher.tokens(images)[1], units, atol=1e-4)


def test_without_its_file_it_says_what_it_needs():
    with pytest.raises(NfadError, match="resnet50-v1 is read from a file"):
        load_teacher("resnet50-v1", None, (2, 3), (), 64)
