from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models import vision_transformer
from torch.nn import functional as F

from nfad.config import Config
from nfad.errors import NfadError
from nfad.reference.student import Student, prior_weighted_loss, random_masks
from nfad.vision.teacher import load_teacher

# timm's own test network: 64 channels, 6 blocks; 64² pixels make a grid of 4×4.
TINY = Config(size=64, student="untrained-test_vit")


@pytest.fixture
def student():
    return Student.build(TINY, (8, 12))


@pytest.fixture
def images():
    return torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def test_predicts_unit_tokens_of_every_block(student, images):
    predicted = student(images)
    assert [tuple(tokens.shape) for tokens in predicted] == [(2, 16, 8), (2, 16, 12)]
    for tokens in predicted:
        torch.testing.assert_close(tokens.norm(dim=-1), torch.ones(2, 16))


def test_on_a_finer_grid_head_outputs_are_interpolated_and_unit(images):
    coarse, fine = Student.build(TINY, (8,)), Student.build(TINY, (8,), grid=8)
    assert coarse.tokens == fine.tokens == 16
    raw = {}
    coarse.heads[0].register_forward_hook(lambda module, inputs, output: raw.update(tokens=output))
    coarse(images)
    [tokens] = fine(images)
    assert tokens.shape == (2, 64, 8)
    square = raw["tokens"].transpose(1, 2).reshape(2, 8, 4, 4)
    # Half-pixel centres: row 2 of 8 lies at (2 + ½)·4/8 − ½ = ¾ of 4.
    row = 0.25 * square[:, :, 0] + 0.75 * square[:, :, 1]
    first = row[:, :, 0]  # column 0 of 8 lies before the first centre of 4 and takes its value
    torch.testing.assert_close(tokens[:, 2 * 8], F.normalize(first, dim=-1))
    torch.testing.assert_close(tokens.norm(dim=-1), torch.ones(2, 64))


def test_a_masked_patchs_own_pixels_are_not_seen(student, images):
    masked = torch.zeros(2, 16, dtype=torch.bool)
    masked[:, 5] = True  # row 1, column 1
    changed = images.clone()
    changed[:, :, 16:32, 16:32] = 1 - changed[:, :, 16:32, 16:32]
    for before, after in zip(student(images, masked), student(changed, masked), strict=True):
        assert torch.equal(before, after)
    for before, after in zip(student(images), student(changed), strict=True):
        assert (before - after).norm(dim=-1).min() > 0  # not masked: seen by all


def test_a_masked_token_sees_the_others_and_knows_its_place(student, images):
    masked = torch.zeros(2, 16, dtype=torch.bool)
    masked[:, [5, 6]] = True
    changed = images.clone()
    changed[:, :, :16, :16] = 0
    tokens, others = student(images, masked)[0], student(changed, masked)[0]
    assert (tokens[:, 5] - others[:, 5]).norm(dim=-1).min() > 0
    assert (tokens[:, 5] - tokens[:, 6]).norm(dim=-1).min() > 0


def test_no_mask_and_an_empty_mask_are_one(student, images):
    for plain, empty in zip(student(images), student(images, torch.zeros(2, 16, dtype=torch.bool)), strict=True):
        assert torch.equal(plain, empty)


def test_images_are_normalised_as_the_weights_expect(student, images):
    seen = {}
    student.model.patch_embed.register_forward_pre_hook(lambda module, inputs: seen.update(images=inputs[0]))
    student(images)
    torch.testing.assert_close(seen["images"], images * 2 - 1)  # test_vit: mean and std 0.5
    mae = Student(_with_statistics(student.model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), (8,))
    mae(torch.tensor([0.485, 0.456, 0.406])[None, :, None, None].expand(1, 3, 64, 64))
    assert seen["images"].abs().max() == 0


def _with_statistics(model, mean, std):
    model.pretrained_cfg = {**model.pretrained_cfg, "mean": mean, "std": std}
    return model


def test_everything_is_trained(student, images):
    masked = random_masks(2, 16, 0.4, torch.Generator().manual_seed(0))
    sum(tokens[..., 0].sum() for tokens in student(images, masked)).backward()
    assert all(parameter.grad is not None for parameter in student.parameters())


def test_the_seed_decides_and_the_callers_random_numbers_stay():
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first, second = Student.build(TINY, (8,)), Student.build(TINY, (8,))
    other = Student.build(Config(size=64, student="untrained-test_vit", seed=55), (8,))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert not torch.equal(first.heads[0].weight, other.heads[0].weight)
    assert not torch.equal(first.model.blocks[0].mlp.fc1.weight, other.model.blocks[0].mlp.fc1.weight)


def test_a_stored_student_comes_back(student, images):
    state = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    back = Student.from_state(Config(size=64, student="untrained-test_vit", seed=1), (8, 12), state)
    for mine, theirs in zip(student(images), back(images), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(NfadError, match=r"does not fit .* with 1 heads"):
        Student.from_state(TINY, (8,), state)


@pytest.mark.parametrize("size, width", [("tiny", 192), ("small", 384)])
def test_untrained_sizes(size, width):
    student = Student.build(Config(size=32, student=f"untrained-{size}"), (4,))
    assert student.model.embed_dim == width
    assert student.tokens == 4


class TestWeights:
    TAG = "test_vit.r160_in1k"

    @pytest.mark.parametrize(("as_folder", "beside_anomalib"), [(False, False), (True, False), (False, True)])
    def test_from_a_file_or_folder_with_positions_resized(
        self, tmp_path, student, as_folder, beside_anomalib, monkeypatch
    ):
        if beside_anomalib:  # whose networks, once made, do this to all of the process
            plain = partial(resample_abs_pos_embed, antialias=False)
            monkeypatch.setattr(vision_transformer, "resample_abs_pos_embed", lambda *args, **_: plain(*args))
        path = tmp_path / "model.safetensors"
        save_file(student.model.state_dict(), path)
        given = str(tmp_path if as_folder else path)
        config = Config(size=64, student=self.TAG, student_weights=given, seed=1)
        same = Student.build(config, (8,))
        assert not torch.equal(Student.build(config, (8,), initial=False).model.pos_embed, student.model.pos_embed)
        for name, tensor in student.model.state_dict().items():
            assert torch.equal(tensor, same.model.state_dict()[name])
        larger = Student.build(Config(size=96, student=self.TAG, student_weights=given), (8,))
        assert larger.tokens == 36
        assert torch.equal(larger.model.blocks[0].mlp.fc1.weight, student.model.blocks[0].mlp.fc1.weight)
        grid = student.model.pos_embed[:, 1:].transpose(1, 2).reshape(1, -1, 4, 4)
        resized = F.interpolate(grid, (6, 6), mode="bicubic", antialias=True).flatten(2).transpose(1, 2)
        torch.testing.assert_close(larger.model.pos_embed[:, 1:], resized)

    def test_a_classifier_or_decoder_beside_them_does_not_matter(self, tmp_path, student):
        extra = {"head.weight": torch.zeros(1000, 64), "decoder_embed.weight": torch.zeros(3, 64)}
        torch.save({"model": student.model.state_dict() | extra}, tmp_path / "mae.pth")
        config = Config(size=64, student=self.TAG, student_weights=str(tmp_path / "mae.pth"))
        assert torch.equal(Student.build(config, (8,)).model.pos_embed, student.model.pos_embed)

    @pytest.mark.parametrize(
        "change, reason",
        [
            (lambda state: {"conv.weight": torch.zeros(3)}, "it lacks cls_token"),
            (lambda state: {k: v for k, v in state.items() if k != "norm.bias"}, "it lacks norm.bias"),
            (lambda state: state | {"norm.bias": torch.zeros(3)}, "size mismatch for norm.bias"),
        ],
    )
    def test_of_another_network_are_refused(self, tmp_path, student, change, reason):
        save_file(change(student.model.state_dict()), tmp_path / "other.safetensors")
        config = Config(size=64, student=self.TAG, student_weights=str(tmp_path / "other.safetensors"))
        with pytest.raises(NfadError, match=rf"does not hold the weights of test_vit.r160_in1k: .*{reason}") as caught:
            Student.build(config, (8,))
        assert "\n" not in str(caught.value)

    def test_that_do_not_exist_are_refused(self, tmp_path):
        config = Config(size=32, student=self.TAG, student_weights=str(tmp_path / "no.safetensors"))
        with pytest.raises(NfadError, match="do not exist"):
            Student.build(config, (8,))

    def test_a_hub_out_of_reach_is_said_with_both_ways_out(self, tmp_path, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(NfadError, match=r'student_weights=FILE.*student="untrained-small"') as caught:
            Student.build(Config(size=32, student=self.TAG), (8,))
        assert "\n" not in str(caught.value)

    def test_random_and_given_at_once_is_a_contradiction(self):
        with pytest.raises(NfadError, match="asks for random weights but student_weights='x'"):
            Student.build(Config(size=32, student="untrained-tiny", student_weights="x"), (8,))

    @pytest.mark.parametrize("name", ["resnet18", "untrained", "untrained-huge", "beit_base_patch16_224", ""])
    def test_what_is_no_plain_vit_is_refused(self, name):
        with pytest.raises(NfadError, match="student must be a plain timm ViT"):
            Student.build(Config(size=32, student=name), (8,))

    def test_an_unknown_tag_lists_the_known(self):
        with pytest.raises(NfadError, match=r"there are test_vit.r160_in1k$"):
            Student.build(Config(size=32, student="test_vit.mea"), (8,))

    def test_another_patch_size_is_refused(self):
        with pytest.raises(NfadError, match="student must have patches of 16²"):
            Student.build(Config(size=224, student="untrained-vit_small_patch32_224"), (8,))


class TestMasks:
    @pytest.mark.parametrize("tokens, share, hidden", [(196, 0.4, 78), (16, 0.4, 6), (4, 0.4, 2), (16, 0.0, 0)])
    def test_exact_share_in_each_image(self, tokens, share, hidden):
        masks = random_masks(50, tokens, share, torch.Generator().manual_seed(0))
        assert masks.shape == (50, tokens)
        assert masks.sum(dim=1).tolist() == [hidden] * 50

    def test_independent_between_images_and_even_over_tokens(self):
        masks = random_masks(4000, 16, 0.4, torch.Generator().manual_seed(0)).double()
        share = 6 / 16
        # Four standard errors of a share over 4000 images (or 2000 pairs of neighbours).
        assert (masks.mean(dim=0) - share).abs().max() < 4 * (share * (1 - share) / 4000) ** 0.5
        both = (masks[::2] * masks[1::2]).mean(dim=0)
        assert (both - share**2).abs().max() < 4 * (share**2 * (1 - share**2) / 2000) ** 0.5

    def test_seeded(self):
        first, second, third = (random_masks(3, 16, 0.4, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
        assert torch.equal(first, second)
        assert not torch.equal(first, third)


class TestLoss:
    @pytest.fixture
    def tokens(self):
        generator = torch.Generator().manual_seed(0)
        teacher = [F.normalize(torch.randn(3, 5, width, generator=generator), dim=-1) for width in (4, 7)]
        student = [F.normalize(torch.randn(3, 5, width, generator=generator), dim=-1) for width in (4, 7)]
        return teacher, student, torch.rand(3, 5, generator=generator)

    def test_is_equation_4(self, tokens):
        teacher, student, prior = tokens
        blocks = []
        for t, s in zip(teacher, student, strict=True):
            images = []
            for image in range(3):
                above = below = 0.0
                for p in range(5):
                    weight = 0.1 + 0.9 * float(prior[image, p])
                    above += weight * (1 - float(t[image, p].double() @ s[image, p].double()))
                    below += weight
                images.append(above / below)
            blocks.append(sum(images) / 3)
        expected = sum(blocks) / 2
        assert float(prior_weighted_loss(teacher, student, prior)) == pytest.approx(expected, rel=1e-6)

    def test_ends_of_the_scale(self, tokens):
        teacher, _, prior = tokens
        eps = torch.finfo(torch.float32).eps
        assert abs(float(prior_weighted_loss(teacher, teacher, prior))) <= 8 * eps
        opposite = [-t for t in teacher]
        assert abs(float(prior_weighted_loss(teacher, opposite, prior)) - 2) <= 8 * eps

    def test_background_keeps_a_tenth_of_the_weight(self):
        teacher = torch.eye(2)[None]  # two tokens
        student = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # the second is wrong: 1 − cos = 1
        prior = torch.tensor([[1.0, 0.0]])
        assert float(prior_weighted_loss([teacher], [student], prior)) == pytest.approx(0.1 / 1.1)
        assert float(prior_weighted_loss([teacher], [student], prior, epsilon=0.5)) == pytest.approx(0.5 / 1.5)

    def test_takes_half_precision_and_inference_tensors_from_a_cache(self, tokens):
        teacher, student, prior = tokens
        exact = prior_weighted_loss(teacher, student, prior)
        with torch.inference_mode():
            cached, cached_prior = [t.half() for t in teacher], prior.clone()
            full = [t.clone() for t in teacher]
        student = [s.clone().requires_grad_() for s in student]
        prior_weighted_loss(full, student, cached_prior).backward()
        loss = prior_weighted_loss(cached, student, cached_prior)
        loss.backward()
        assert abs(loss.item() - exact.item()) < torch.finfo(torch.float16).eps
        assert all(s.grad.abs().max() > 0 for s in student)


class TestEmbedded:
    """A student that starts from the embedded ViT's own weights."""

    CONFIG = Config(size=64, student="embedded-vit")

    def test_it_starts_as_the_embedded_teachers_network(self, images):
        student = Student.build(self.CONFIG, (384,))
        teacher = load_teacher("embedded-vit", None, (11,), (11,), 64)
        for name, value in teacher.network.state_dict().items():
            assert torch.equal(student.model.state_dict()[name], value), name
        assert student.tokens == 16 and student(images)[0].shape == (2, 16, 384)
        seen = {}
        student.heads[0].register_forward_hook(lambda module, inputs, output: seen.update(tokens=inputs[0]))
        student(images)
        torch.testing.assert_close(seen["tokens"], teacher.normed(images, last=True)[0][0], atol=1e-4, rtol=1e-4)

    def test_a_stored_one_needs_no_initial_weights(self, images, monkeypatch):
        student = Student.build(self.CONFIG, (8,))
        monkeypatch.setattr("nfad.reference.student.embedded_vit_state", None)
        back = Student.from_state(self.CONFIG, (8,), student.state_dict())
        assert torch.equal(back(images)[0], student(images)[0])

    def test_it_learns(self, images):
        """A step forward and back lowers the loss: its weights are not frozen."""
        student = Student.build(self.CONFIG, (8,))
        target, prior = F.normalize(torch.rand(2, 16, 8), dim=-1), torch.ones(2, 16)
        before = prior_weighted_loss([target], student(images), prior)
        before.backward()
        with torch.no_grad():
            for parameter in student.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-3 * parameter.grad
        assert student.model.blocks[0].attn.qkv.weight.grad.abs().max() > 0
        assert prior_weighted_loss([target], student(images), prior) < before

    def test_other_weights_are_refused(self):
        with pytest.raises(NfadError, match="has its weights; leave student_weights out"):
            Student.build(Config(size=64, student="embedded-vit", student_weights="x"), (8,))
