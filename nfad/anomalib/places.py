"""Where anomalib's models compare features, and the same models with a filter in that very place.

A place is one module: it is given the filter as a submodule and a subclass of its class that applies it, as
`torch.nn.utils.parametrize` does. Weights, their names and training stay the model's own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from anomalib.models.image.glass.torch_model import GlassModel
from anomalib.models.image.patchcore.torch_model import PatchcoreModel
from anomalib.models.image.reverse_distillation.anomaly_map import AnomalyMapGenerator as ReverseMaps
from anomalib.models.image.reverse_distillation.torch_model import ReverseDistillationModel
from anomalib.models.image.stfpm.anomaly_map import AnomalyMapGenerator as StudentMaps
from anomalib.models.image.stfpm.torch_model import STFPMModel
from torch import Tensor, nn

from nfad.errors import NfadError
from nfad.hosts.host import Project


class Carrier:
    """A module that compares through `nuisance`; it comes before the class of anomalib's that it filters."""

    nuisance: Project

    def begin(self) -> None:
        """The filter was put on."""

    def end(self) -> None:
        """The filter is about to be taken off."""

    def settle(self, views: Tensor) -> None:
        """The filter was learned: filter what is stored of normal images, if anything is."""


class FilteredPatchcoreModel(Carrier, PatchcoreModel):
    """Embeddings lose the nuisance when they are compared, the bank once its entries are chosen."""

    bare_bank: Tensor

    def begin(self) -> None:
        self.register_buffer("bare_bank", self.memory_bank.clone())

    def end(self) -> None:
        self.memory_bank = self.bare_bank
        del self.bare_bank

    def settle(self, views: Tensor) -> None:
        """From the bare bank, so that a filter learned anew is not laid over the last one."""
        if len(self.bare_bank):
            self.memory_bank = filtered_bank(self, self.bare_bank, self.nuisance)

    def generate_embedding(self, features: dict[str, Tensor]) -> Tensor:
        if not self.training:
            features = dict(zip(features, self.nuisance(list(features.values())), strict=True))
        return super().generate_embedding(features)

    def subsample_embedding(self, sampling_ratio: float, embeddings: Tensor | None = None) -> None:
        # anomalib's default is None too, though its signature says Tensor
        super().subsample_embedding(sampling_ratio, embeddings)  # pyright: ignore[reportArgumentType]
        self.bare_bank = self.memory_bank
        self.settle(self.bare_bank)


class FilteredGlassModel(Carrier, GlassModel):
    """A discriminator sees absolute features: the nuisance is what leaves the normal embedding's mean along V."""

    normal_mean: Tensor

    def begin(self) -> None:
        self.register_buffer("normal_mean", torch.zeros(self.target_embed_dimension))

    def end(self) -> None:
        del self.normal_mean

    @torch.no_grad()
    def settle(self, views: Tensor) -> None:
        each = (super(FilteredGlassModel, self).generate_embeddings(view[None], True)[0].mean(0) for view in views)
        self.normal_mean = sum(each, torch.zeros(())) / len(views)

    def generate_embeddings(self, images: Tensor, evaluation: bool = False) -> tuple[Tensor, list[tuple[int, int]]]:
        embedding, shapes = super().generate_embeddings(images, evaluation)
        if not self.training:
            away = (embedding - self.normal_mean)[:, :, None, None]
            [kept] = self.nuisance([away])
            embedding = embedding + (kept - away)[:, :, 0, 0]  # c + Π(z − c), and z to the bit where Π keeps all
        return embedding, shapes


class FilteredReverseMaps(Carrier, ReverseMaps):
    """A teacher's features and their imitation lose the same nuisance; nothing of normal images is stored."""

    def forward(self, student_features: list[Tensor], teacher_features: list[Tensor]) -> Tensor:
        return super().forward(self.nuisance(student_features), self.nuisance(teacher_features))


class FilteredStudentMaps(Carrier, StudentMaps):
    """Likewise."""

    def compute_anomaly_map(
        self,
        teacher_features: dict[str, Tensor],
        student_features: dict[str, Tensor],
        image_size: tuple[int, int] | torch.Size,
    ) -> Tensor:
        teacher, student = (
            dict(zip(side, self.nuisance(list(side.values())), strict=True))
            for side in (teacher_features, student_features)
        )
        return super().compute_anomaly_map(teacher, student, image_size)


@dataclass(frozen=True)
class Place:
    """Of one of anomalib's torch models: which of its modules compares, and how."""

    unit: bool  # whether it compares directions
    module: str  # the name of the module that compares; "" for the model itself
    filtered: type[nn.Module]


PLACES: dict[type[nn.Module], Place] = {
    PatchcoreModel: Place(False, "", FilteredPatchcoreModel),
    ReverseDistillationModel: Place(True, "anomaly_map_generator", FilteredReverseMaps),
    STFPMModel: Place(True, "anomaly_map_generator", FilteredStudentMaps),
    GlassModel: Place(False, "", FilteredGlassModel),
}


def features_of(model: nn.Module, images: Tensor) -> list[Tensor]:
    """What it compares: bare maps a layer, from images its pre-processor has seen."""
    if isinstance(model, PatchcoreModel):
        return [model.feature_pooler(maps) for maps in model.feature_extractor(_tiles(model, images)).values()]
    if isinstance(model, ReverseDistillationModel):
        return list(model.encoder(_tiles(model, images)).values())
    if isinstance(model, STFPMModel):
        return list(model.teacher_model(_tiles(model, images)).values())
    if isinstance(model, GlassModel):
        embedding, shapes = GlassModel.generate_embeddings(model, images, evaluation=True)
        return [embedding.reshape(len(images), *shapes[0], -1).permute(0, 3, 1, 2)]
    raise _unknown(model)


def place_of(model: nn.Module) -> Place:
    """Also of a model that wears a filter already."""
    for kind, place in PLACES.items():
        if type(model) in (kind, place.filtered):
            return place
    raise _unknown(model)


def _unknown(model: nn.Module) -> NfadError:
    return NfadError(
        f"{type(model).__name__} is none of the models whose place of comparison is known (Patchcore, "
        "ReverseDistillation, Stfpm, Glass); put the filter on its layers with nfad.hosts.HookedFilter"
    )


def carrier_of(model: nn.Module) -> Carrier:
    """The module of the model that wears the filter."""
    carrier = model.get_submodule(place_of(model).module)
    if not isinstance(carrier, Carrier):
        raise NfadError(f"this {type(model).__name__} wears no filter")
    return carrier


def put_on(model: nn.Module, nuisance: Project) -> None:
    """Let the model compare through `nuisance` from now on."""
    place = place_of(model)
    model.get_submodule(place.module).__class__ = place.filtered
    carrier = carrier_of(model)
    carrier.nuisance = nuisance
    carrier.begin()


def take_off(model: nn.Module) -> None:
    """The model as it was before `put_on`."""
    carrier = carrier_of(model)
    carrier.end()
    del carrier.nuisance
    [bare] = [kind for kind in type(carrier).__bases__ if kind is not Carrier]
    carrier.__class__ = bare


def seen_through(model: nn.Module, project: Project) -> nn.Module:
    """A second model on the same weights that compares through `project`; the first is left as it is."""
    place = place_of(model)
    twin = _on_same_weights(model)
    if place.module:
        setattr(twin, place.module, _on_same_weights(model.get_submodule(place.module)))
    put_on(twin, project)
    return twin


def filtered_bank(model: PatchcoreModel, bank: Tensor, project: Project) -> Tensor:
    """Entries through `project`, layer by layer: being channel-wise it passes through pooling and resizing."""
    layers = project([columns[:, :, None, None] for columns in bank.split(model.feature_extractor.out_dims, dim=1)])
    return torch.cat([columns[:, :, 0, 0] for columns in layers], dim=1)


def _on_same_weights(module: nn.Module) -> nn.Module:
    twin = copy.copy(module)
    twin._modules, twin._buffers = dict(module._modules), dict(module._buffers)
    return twin


def _tiles(model: PatchcoreModel | ReverseDistillationModel | STFPMModel, images: Tensor) -> Tensor:
    return model.tiler.tile(images) if model.tiler else images
