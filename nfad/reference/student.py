"""The student: a ViT that learns, from normal images only, to predict the teacher's tokens of a partly masked view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import timm
import torch
from jaxtyping import Bool, Float
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from nfad.config import Config
from nfad.errors import NfadError
from nfad.vision.networks import create, normalisation
from nfad.vision.weights import UNTRAINED, embedded_vit_state, from_hub, load_into, local_file

PATCH = 16
EMBEDDED, EMBEDDED_TAG, EMBEDDED_PATCH = "embedded-vit", "vit_small_patch14_dinov2", 14
UNTRAINED_SIZES = {size: f"vit_{size}_patch16_224" for size in ("tiny", "small", "base")}


class Student(nn.Module):
    """A timm ViT with one 1×1 head per target block on its last normed tokens."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: VisionTransformer, channels: Sequence[int], grid: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.channels = tuple(channels)
        self.side = model.patch_embed.grid_size[0]
        self.grid = grid or self.side  # the teacher's; a CNN's is finer than ours
        self.mask_token = nn.Parameter(torch.randn(model.embed_dim) * 0.02)
        # On tokens a 1×1 convolution is a linear layer.
        self.heads = nn.ModuleList(nn.Linear(model.embed_dim, width) for width in channels)
        mean, std = normalisation(model)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def build(cls, config: Config, channels: Sequence[int], grid: int | None = None, initial: bool = True) -> Student:
        """A student before training: pretrained weights, or seeded random ones where `config.student` says so.

        Without `initial` the weights mean nothing yet and nothing is fetched: a stored state is to be loaded.
        """
        # Forked, so that building a student does not move the caller's random numbers.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return cls(_backbone(config, initial), channels, grid).eval()

    @classmethod
    def from_state(
        cls, config: Config, channels: Sequence[int], state: Mapping[str, Tensor], grid: int | None = None
    ) -> Student:
        """A stored student: needs neither the hub nor `config.student_weights`."""
        student = cls.build(config, channels, grid, initial=False)
        try:
            student.load_state_dict(state)
        except RuntimeError:
            raise NfadError(
                f"the stored student does not fit {config.student} at size {config.size} with {len(channels)} heads; "
                "train it again with the installed version of timm"
            ) from None
        return student

    @property
    def tokens(self) -> int:
        """How many patch tokens there are to mask."""
        return self.side**2

    def forward(
        self, images: Float[Tensor, "image 3 h w"], masked: Bool[Tensor, "image patch"] | None = None
    ) -> list[Float[Tensor, "image token _"]]:
        """Unit predictions of the teacher's tokens, a block each, from images in [0, 1]."""
        images = images.to(self.mean.device)
        seen = self.side * self.model.patch_embed.patch_size[0]
        if images.shape[-1] != seen:  # patches of 14: a smaller image on the same grid, as the embedded teacher sees it
            images = F.interpolate(images, (seen, seen), mode="bilinear", antialias=True, align_corners=False)
        patches = self.model.patch_embed((images - self.mean) / self.std)
        if masked is not None:
            # Before positions are added (as in SimMIM), so that a masked token still knows where it is.
            patches = torch.where(masked.to(self.mean.device)[..., None], self.mask_token, patches)
        tokens = self.model.blocks(self.model.norm_pre(self.model._pos_embed(patches)))
        tokens = self.model.fc_norm(self.model.norm(tokens))  # timm has the last norm in one, identity in the other
        tokens = tokens[:, self.model.num_prefix_tokens :]
        return [F.normalize(self._on_grid(head(tokens).float()), dim=-1) for head in self.heads]

    def expected(self, images: Float[Tensor, "image 3 h w"]) -> list[Float[Tensor, "image token _"]]:
        """The same on the CPU, where the teacher's tokens are, too."""
        return [tokens.cpu() for tokens in self(images)]

    def _on_grid(self, tokens: Float[Tensor, "image patch channel"]) -> Float[Tensor, "image token channel"]:
        if self.grid == self.side:
            return tokens
        square = tokens.transpose(1, 2).unflatten(2, (self.side, self.side))
        square = F.interpolate(square, (self.grid, self.grid), mode="bilinear", align_corners=False)
        return square.flatten(2).transpose(1, 2)


def prior_weighted_loss(
    teacher: Sequence[Float[Tensor, "image token _"]],
    student: Sequence[Float[Tensor, "image token _"]],
    prior: Float[Tensor, "image token"],
    epsilon: float = 0.1,
) -> Float[Tensor, ""]:
    """Eq. 4 with equal β: 1 − cos, averaged with weights ε+(1−ε)M per image, then over images and blocks."""
    weight = epsilon + (1 - epsilon) * prior.float()
    weight = weight / weight.sum(dim=1, keepdim=True)
    losses = []
    for target, predicted in zip(teacher, student, strict=True):
        # Normalised anew: tokens cached in half precision are unit only to three digits.
        cosine = (F.normalize(target.float(), dim=-1) * F.normalize(predicted, dim=-1)).sum(dim=-1)
        losses.append((weight * (1 - cosine)).sum(dim=1).mean())
    return torch.stack(losses).mean()


def random_masks(count: int, tokens: int, share: float, generator: torch.Generator) -> Bool[Tensor, "count tokens"]:
    """For each image on its own, exactly round(share·tokens) tokens to hide."""
    order = torch.rand(count, tokens, generator=generator).argsort(dim=1)
    return torch.zeros(count, tokens, dtype=torch.bool).scatter_(1, order[:, : round(share * tokens)], True)


def _backbone(config: Config, initial: bool) -> VisionTransformer:
    """The timm ViT that `config.student` names; with `initial` also its weights, else ones to be replaced."""
    name, weights = config.student, config.student_weights
    if name == EMBEDDED:
        return _embedded(config, initial)
    untrained = name.startswith(f"{UNTRAINED}-")
    tag = name.removeprefix(f"{UNTRAINED}-")
    tag = UNTRAINED_SIZES.get(tag, tag) if untrained else tag
    architecture = tag.split(".")[0]
    if not timm.models.is_model_in_modules(architecture, ["vision_transformer"]):
        sizes = ", ".join(f"{UNTRAINED}-{size}" for size in UNTRAINED_SIZES)
        raise NfadError(
            f"student must be a plain timm ViT such as vit_base_patch16_224.mae, {EMBEDDED}, or {sizes}; got {name!r}"
        )
    if untrained and weights is not None:
        raise NfadError(
            f"student={name!r} asks for random weights but student_weights={weights!r} is given; name the timm model "
            "these weights belong to, such as student='vit_base_patch16_224.mae'"
        )
    if "." in tag and tag not in timm.list_pretrained(f"{architecture}.*"):
        known = ", ".join(timm.list_pretrained(f"{architecture}.*"))
        raise NfadError(f"timm knows no weights {name!r}; for this architecture there are {known or 'none'}")
    fetched = initial and not untrained and weights is None
    # A fixed size: positions are interpolated once, when weights are loaded, and then trained.
    options = {"num_classes": 0, "img_size": config.size, "dynamic_img_size": False}
    ways_out = (
        "set student_weights=FILE",
        'take weights that are here with student="embedded-vit", or random ones with student="untrained-small"',
    )
    model = from_hub(tag, ways_out, **options) if fetched else create(tag, **options)
    plain = isinstance(model, VisionTransformer)
    if not plain or model.patch_embed.patch_size != (PATCH, PATCH) or model.attn_pool is not None:
        raise NfadError(f"student must have patches of {PATCH}² and no attention pooling, which {architecture} has not")
    if initial and weights is not None:
        load_into(model, local_file(weights), tag)
    return model


def _embedded(config: Config, initial: bool) -> VisionTransformer:
    """The embedded teacher's own network: the one pretrained student that needs no download."""
    if config.student_weights is not None:
        raise NfadError(f"student={EMBEDDED!r} has its weights; leave student_weights out")
    side = config.size // PATCH * EMBEDDED_PATCH
    model = create(EMBEDDED_TAG, num_classes=0, img_size=side, dynamic_img_size=False)
    assert isinstance(model, VisionTransformer)  # as its tag says
    if initial:
        model.load_state_dict(embedded_vit_state(side))
    return model
