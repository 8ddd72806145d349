"""anomalib's own models wearing the filter: one line before `Engine.fit`."""

from __future__ import annotations

from typing import Any, TypedDict

import torch
from anomalib.models import Glass, Patchcore, ReverseDistillation, Stfpm
from anomalib.models.components import AnomalibModule
from anomalib.post_processing import PostProcessor
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from nfad.anomalib.places import carrier_of, features_of, place_of, put_on, take_off
from nfad.anomalib.preparing import Step, halves
from nfad.anomalib.projection import Projection
from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter
from nfad.hosts.filter import families_of
from nfad.hosts.host import checked_images
from nfad.operator.subspace import Rank


class Settings(TypedDict):
    """How the filter is learned: `NuisanceFilter.fit` has them in full."""

    rank: Rank
    interventions: str
    pairs: int | None
    seed: int


def Filtered(
    model: AnomalibModule,
    rank: Rank = 16,
    interventions: str = "paper",
    pairs: int | None = 64,
    seed: int = 54,
) -> AnomalibModule:
    """`Filtered(Patchcore())`: the same model, and from now on it compares features without their nuisance.

    `Engine.fit` first learns the subspace from `pairs` of the training images, then trains the host as ever;
    `rank` is the columns a family or, below 1, a share of the channels. The argument itself is changed, its class
    becomes FilteredPatchcore and so on: engine, memory bank checks, optimisers, logging, checkpoints and export all
    ask the module itself, so a wrapper around it would have to imitate the whole of it. `unwrap()` undoes it.
    """
    if isinstance(model, _Wearing):
        raise NfadError(f"this {type(model).__name__} wears a filter already; unwrap() it first")
    if type(model) not in FILTERED:
        raise NfadError(
            f"{type(model).__name__} cannot be filtered: where features are compared is known of "
            f"{', '.join(kind.__name__ for kind in FILTERED)}; for others put nfad.hosts.HookedFilter on their layers"
        )
    settings: Settings = {"rank": rank, "interventions": interventions, "pairs": pairs, "seed": seed}
    _check(model, settings)
    model.__class__ = FILTERED[type(model)]
    if isinstance(model, _Wearing):  # which it now is
        model._begin(settings)
    return model


def _check(model: AnomalibModule, settings: Settings) -> None:
    """What is wrong is told before anything is changed, rather than when training starts."""
    families_of(settings["interventions"], settings["rank"], sees_foreground=False)
    if isinstance(model, Glass) and not model.pre_trained:
        raise NfadError(
            "Glass(pre_trained=False) trains its backbone, so what light moves in it is not known at the start; use "
            "pre_trained=True"
        )


class _Wearing(AnomalibModule):
    """What a model gains; it comes before anomalib's class, whose keyword arguments it passes on."""

    def __init__(
        self, *, rank: Rank = 16, interventions: str = "paper", pairs: int | None = 64, seed: int = 54, **host: Any
    ) -> None:
        super().__init__(**host)
        settings: Settings = {"rank": rank, "interventions": interventions, "pairs": pairs, "seed": seed}
        _check(self, settings)
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self.hparams.update(settings)  # so that load_from_checkpoint builds it alike
        put_on(self.model, Projection())

    @property
    def _projection(self) -> Projection:
        [projection] = [module for module in self.model.modules() if isinstance(module, Projection)]
        return projection

    @property
    def nuisance(self) -> NuisanceFilter:
        """The filter it wears."""
        return self._projection.filter

    def on_train_start(self) -> None:
        super().on_train_start()
        self._learn(self._training_views())

    def learn(self, normal_images: Tensor) -> None:
        """Learn the filter from images in [0, 1]: `Engine.fit` does, a model that was trained before needs this.

        Thresholds and normalisation of before are forgotten, being of other scores; `Engine.validate` sets them.
        """
        before, _ = halves(self)
        self._learn(before(checked_images(normal_images)).clamp(0, 1))

    @torch.no_grad()
    def _learn(self, views: Tensor) -> None:
        _, after = halves(self)
        self._projection.hold(NuisanceFilter.fit(_Features(self, after), views, **self._settings), self.device)
        carrier_of(self.model).settle(after(views).to(self.device))
        self._forget_thresholds()

    def unwrap(self) -> AnomalibModule:
        """The bare model, this very object; its thresholds are to be set again by `Engine.validate`."""
        take_off(self.model)
        for name in self._settings:
            del self.hparams[name]
        del self._settings
        self._forget_thresholds()
        self.__class__ = type(self).__bases__[1]
        return self

    def _training_views(self) -> Tensor:
        """A seeded choice of the training set, read apart from its loader: training must see the order it would."""
        data = getattr(self.trainer.train_dataloader, "dataset", None)
        if data is None or not hasattr(data, "__len__"):
            raise NfadError("the filter is learned from a training set with a length; give a map-style data set")
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(self._settings["seed"]))
        before, _ = halves(self)
        with isolate_rng():  # augmentations draw from the global generators
            images = [before(data[int(index)].image.as_subclass(Tensor)) for index in order[: self._settings["pairs"]]]
        return torch.stack(images).clamp(0, 1)  # resizing rounds: white may come out a hair above 1

    def _forget_thresholds(self) -> None:
        if isinstance(self.post_processor, PostProcessor):
            for value in dict(self.post_processor.named_buffers(recurse=False)).values():
                value.fill_(torch.nan)


class _Features:
    """What the host compares, as a filter is fitted to it."""

    def __init__(self, model: AnomalibModule, after: Step) -> None:
        self._model, self._after = model, after
        self.unit = place_of(model.model).unit

    def features(self, images: Tensor) -> list[Tensor]:
        return features_of(self._model.model, self._after(images).to(self._model.device))


class FilteredPatchcore(_Wearing, Patchcore):
    """Patches and bank lose the nuisance; the coreset is chosen before, as ever."""


class FilteredReverseDistillation(_Wearing, ReverseDistillation):
    """Encoder and decoder are compared without the nuisance."""


class FilteredStfpm(_Wearing, Stfpm):
    """Teacher and student are compared without the nuisance."""


class FilteredGlass(_Wearing, Glass):
    """The embedding keeps its normal mean and loses what leaves it along the nuisance."""


FILTERED: dict[type[AnomalibModule], type[_Wearing]] = {
    Patchcore: FilteredPatchcore,
    ReverseDistillation: FilteredReverseDistillation,
    Stfpm: FilteredStfpm,
    Glass: FilteredGlass,
}
