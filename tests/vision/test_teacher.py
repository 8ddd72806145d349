from functools import partial

import huggingface_hub.constants
import pytest
import timm
import torch
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.vision import named as teachers
from nfad.vision.named import FOUNDATIONS
from nfad.vision.teacher import CnnTeacher, VitTeacher, load_teacher
from nfad.vision.weights import drawn_digest

EPS = torch.finfo(torch.float32).eps
TINY, REGISTERS = "vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2"


def images_(count=2, size=64, seed=0):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def tiny():
    return load_teacher(TINY, "untrained", (1, 3), (4, 6), 64)


@pytest.fixture(scope="module")
def registers():
    return load_teacher(REGISTERS, "untrained", (1, 2), (3, 5), 64)


@pytest.fixture(scope="module")
def resnet():
    return load_teacher("resnet18", "untrained", (1, 2, 3), (), 64)


@pytest.fixture
def watch():
    """Records the outputs of a network's modules by name while it runs."""
    handles = []

    def start(teacher, *names):
        seen = {}
        for name in names:
            module = teacher.network.get_submodule(name)
            handles.append(module.register_forward_hook(lambda _, __, output, name=name: seen.update({name: output})))
        return seen

    yield start
    for handle in handles:
        handle.remove()


def blocks_of(teacher):
    return [f"blocks.{index}" for index in range(len(teacher.network.blocks))]


# ViTs


@pytest.mark.parametrize(("name", "prefix"), [("tiny", 1), ("registers", 5)])
def test_tokens_are_the_unit_patches_of_their_blocks_without_class_and_register_tokens(name, prefix, request, watch):
    teacher = request.getfixturevalue(name)
    seen = watch(teacher, *blocks_of(teacher))
    found = teacher.tokens(images_())
    assert teacher.grid == 4
    for block, tokens, channels in zip(teacher._blocks, found, teacher.channels, strict=True):
        whole = seen[f"blocks.{block}"]
        assert whole.shape == (2, prefix + 16, channels)
        assert tokens.shape == (2, 16, channels)
        assert torch.equal(tokens, F.normalize(whole[:, prefix:], dim=-1))
        assert (tokens.norm(dim=-1) - 1).abs().max() <= channels * EPS


def test_nothing_deeper_than_asked_is_computed(tiny, watch):
    seen = watch(tiny, *blocks_of(tiny))
    tiny.tokens(images_())
    assert sorted(seen) == [f"blocks.{index}" for index in range(4)]  # blocks 1 and 3
    seen.clear()
    tiny.tokens_and_prior(images_())
    assert sorted(seen) == [f"blocks.{index}" for index in range(7)]  # prior blocks 4 and 6


@pytest.mark.parametrize("name", ["tiny", "registers"])
def test_the_prior_compares_patches_with_the_class_token(name, request, watch):
    teacher = request.getfixturevalue(name)
    seen = watch(teacher, *blocks_of(teacher))
    tokens, prior = teacher.tokens_and_prior(images_())
    assert all(torch.equal(a, b) for a, b in zip(tokens, teacher.tokens(images_()), strict=True))
    assert prior.shape == (2, 16)
    assert prior.min() >= 0 and prior.max() <= 1
    maps = []
    for block in teacher._prior_blocks:
        whole = seen[f"blocks.{block}"].double()
        cosine = F.cosine_similarity(whole[:, -16:], whole[:, :1], dim=-1).clamp(min=0)
        low, high = cosine.amin(dim=1, keepdim=True), cosine.amax(dim=1, keepdim=True)
        maps.append((cosine - low) / (high - low))
        least = float((high - low).min())
    wanted = torch.stack(maps).mean(dim=0)
    assert (prior - wanted).abs().max() <= 8 * teacher.channels[0] * EPS / least


def test_blocks_come_in_the_order_asked_for(tiny):
    turned = load_teacher(TINY, "untrained", (3, 1), (4, 6), 64)
    assert all(torch.equal(a, b) for a, b in zip(turned.tokens(images_()), tiny.tokens(images_())[::-1], strict=True))


def test_a_patch_14_teacher_has_the_grid_of_a_patch_16_one(tiny, registers, watch):
    seen = watch(registers, "patch_embed.proj")
    for size in (64, 96):  # a basis may be estimated at another size than the model looks at
        images = images_(size=size)
        counts = {tokens.shape[1] for teacher in (tiny, registers) for tokens in teacher.tokens(images)}
        assert counts == {(size // 16) ** 2}
        assert seen["patch_embed.proj"].shape[2:] == (size // 16, size // 16)
    small = F.interpolate(images, (84, 84), mode="bilinear", antialias=True, align_corners=False)
    wanted = registers.network.patch_embed.proj((small - registers._mean) / registers._std)
    assert torch.equal(seen["patch_embed.proj"], wanted)


@pytest.mark.parametrize("name", FOUNDATIONS)
def test_every_foundation_is_a_known_tag_and_runs_when_made_small(name, monkeypatch):
    tag = FOUNDATIONS[name]
    assert tag in timm.list_models(pretrained=True)
    assert tag.startswith(("vit_base_patch", "deit_base_patch", "beitv2_base_patch"))
    small = partial(timm.create_model, depth=3, embed_dim=48, num_heads=3)
    monkeypatch.setattr(teachers.timm, "create_model", small)
    teacher = load_teacher(name, "untrained", (0, 1), (1, 2), 64)
    tokens, prior = teacher.tokens_and_prior(images_())
    assert isinstance(teacher, VitTeacher)
    assert teacher.identity.architecture == tag and teacher.identity.name == name
    assert [t.shape for t in tokens] == [(2, 16, 48)] * 2
    assert prior.shape == (2, 16)


# CNNs


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet50_2", "tf_efficientnet_lite0"])
def test_cnn_stages_meet_on_a_grid_of_an_eighth(name, watch):
    teacher = load_teacher(name, "untrained", (1, 2, 3), (), 64)
    assert isinstance(teacher, CnnTeacher) and teacher.grid == 8
    modules = [teacher.network.feature_info[block]["module"] for block in (1, 2, 3)]
    seen = watch(teacher, *modules)
    tokens, prior = teacher.tokens_and_prior(images_())
    for found, module, channels in zip(tokens, modules, teacher.channels, strict=True):
        stage = seen[module]
        if stage.shape[-1] != 8:
            stage = F.interpolate(stage, (8, 8), mode="bilinear", antialias=True, align_corners=False)
        wanted = F.normalize(stage.flatten(2).transpose(1, 2), dim=-1)
        assert found.shape == (2, 64, channels)
        assert (found - wanted).abs().max() <= 8 * EPS
    assert prior.shape == (2, 64)
    assert prior.min() >= 0 and prior.max() <= 1


def test_the_stages_of_a_cnn_have_strides_4_8_and_16(resnet, watch):
    seen = watch(resnet, "layer1", "layer2", "layer3", "layer4")
    resnet.tokens(images_())
    assert {name: tuple(output.shape[2:]) for name, output in seen.items()} == {
        "layer1": (16, 16),
        "layer2": (8, 8),
        "layer3": (4, 4),  # and layer4 was not computed
    }


# Both


@pytest.mark.parametrize("name", ["tiny", "registers", "resnet"])
def test_teachers_are_frozen_deterministic_and_treat_images_one_by_one(name, request):
    teacher = request.getfixturevalue(name)
    assert not teacher.network.training
    assert not any(parameter.requires_grad for parameter in teacher.network.parameters())
    images = images_(3)
    before = images.clone()
    together, again = teacher.tokens(images), teacher.tokens(images)
    assert torch.equal(images, before)
    assert all(torch.equal(a, b) for a, b in zip(together, again, strict=True))
    for index in range(3):
        alone = teacher.tokens(images[index : index + 1])
        for one, all_ in zip(alone, together, strict=True):
            # A matrix product of another shape may round otherwise; depth multiplies it.
            assert (one[0] - all_[index]).abs().max() <= 1e3 * EPS


@pytest.mark.parametrize("name", ["tiny", "resnet"])
def test_tokens_and_prior_can_be_a_students_targets(name, request):
    tokens, prior = request.getfixturevalue(name).tokens_and_prior(images_())
    student = torch.zeros_like(tokens[0], requires_grad=True)
    (prior[..., None] * (tokens[0] - student) ** 2).sum().backward()
    assert student.grad.abs().max() > 0


def test_untrained_is_one_network_and_says_so(tiny):
    again = load_teacher(TINY, "untrained", (1, 3), (4, 6), 64)
    assert again.identity == tiny.identity
    assert again.identity.weights == "untrained"
    assert again.identity.sha256 == drawn_digest(again.network.state_dict())
    assert torch.equal(again.tokens(images_())[0], tiny.tokens(images_())[0])


def test_loading_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    load_teacher("test_resnet", "untrained", (1,), (), 64)
    assert torch.equal(torch.rand(3), wanted)


# What users get wrong


@pytest.mark.parametrize(
    ("blocks", "prior_blocks", "sentence"),
    [
        ((1, 12), (2,), r"blocks must lie in 0\.\.11 for vit_tiny_patch16_224; got \[1, 12\]"),
        ((-1,), (2,), r"blocks must lie in 0\.\.11"),
        ((), (2,), r"blocks must lie in 0\.\.11"),
        ((1,), (14,), r"prior_blocks must lie in 0\.\.11 .* got \[14\]"),
        ((1,), (), r"prior_blocks must lie in 0\.\.11"),
    ],
)
def test_blocks_that_do_not_exist_are_told(blocks, prior_blocks, sentence):
    with pytest.raises(NfadError, match=sentence):
        load_teacher(TINY, "untrained", blocks, prior_blocks, 64)


@pytest.mark.parametrize("blocks", [(5,), (-1,), ()])
def test_stages_that_do_not_exist_are_told(blocks):
    with pytest.raises(NfadError, match=r"blocks must lie in 0\.\.4 for test_resnet"):
        load_teacher("test_resnet", "untrained", blocks, (), 64)


def test_an_unknown_name_is_told_with_what_there_is():
    with pytest.raises(NfadError, match=r"'resnet1000' is neither embedded-vit, embedded-cnn, dinov3"):
        load_teacher("resnet1000", None, (1,), (2,), 64)
    with pytest.raises(NfadError, match=r"'convnext_vast' is neither .* nor a timm model \(similar: convnext_"):
        load_teacher("convnext_vast", None, (1,), (2,), 64)
    with pytest.raises(NfadError, match="nor a timm model"):
        load_teacher("dinov7", "untrained", (1,), (2,), 64)


def test_a_vit_without_class_token_is_told():
    with pytest.raises(NfadError, match="no CLS token"):
        load_teacher("vit_medium_patch16_gap_256", "untrained", (1,), (2,), 64)


def test_a_vit_with_registers_but_without_class_token_is_told():
    with pytest.raises(NfadError, match="no CLS token"):
        load_teacher("vit_pwee_patch16_reg1_gap_256", "untrained", (1,), (2,), 64)


def test_a_swin_is_tapped_by_stage_at_the_size_of_the_photos():
    name, images = "swin_tiny_patch4_window7_224", images_()
    teacher = load_teacher(name, "untrained", (1, 2), (), 64)
    assert teacher.channels == (192, 384)
    network = teacher.network
    mean, std = (torch.tensor(network.default_cfg[key])[:, None, None] for key in ("mean", "std"))
    with torch.inference_mode():
        stage = network.layers[1](network.layers[0](network.patch_embed((images - mean) / std)))
    expected = F.normalize(stage.flatten(1, 2), dim=-1)
    torch.testing.assert_close(teacher.tokens(images)[0], expected, rtol=0, atol=100 * EPS)


@pytest.mark.parametrize("name", ["vit_tiny_r_s16_p8_224", "vit_relpos_small_patch16_224", "mixer_s16_224"])
def test_a_timm_model_that_does_not_fit_is_told(name):
    with pytest.raises(NfadError):
        load_teacher(name, "untrained", (1,), (2,), 64).tokens(images_())


@pytest.mark.parametrize("size", [60, 100, 225])
def test_a_size_off_the_grid_is_told(size):
    with pytest.raises(NfadError, match=f"multiple of 16; got {size}"):
        load_teacher(TINY, "untrained", (1,), (2,), size)


def test_weights_that_cannot_be_fetched_are_told_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))  # nor does a cache help
    for name in ("test_vit", "test_resnet"):
        with pytest.raises(NfadError, match=r"could not be fetched .*weights=FILE_OR_FOLDER.*embedded-vit"):
            load_teacher(name, None, (1,), (2,), 64)
