"""The filter as a module: bases are buffers, so they move, are saved and are exported with the model they sit in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn

from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter
from nfad.hosts.filter import remove


class ExtraState(TypedDict):
    """What is saved beside the bases."""

    families: tuple[tuple[str, ...], ...]
    interventions: str


class Projection(nn.Module):
    """z − V(Vᵀz) at every position of every layer, once `hold` or a checkpoint has told V."""

    def __init__(self) -> None:
        super().__init__()
        self._families: tuple[tuple[str, ...], ...] = ()
        self._interventions = "paper"

    def hold(self, nuisance: NuisanceFilter, device: torch.device | str = "cpu") -> None:
        self._buffers.clear()
        for layer, basis in enumerate(nuisance.bases):
            self.register_buffer(f"basis_{layer}", basis.to(device))
        self._families, self._interventions = nuisance.families, nuisance.interventions

    @property
    def filter(self) -> NuisanceFilter:
        """What it holds, as the hosts of `nfad.hosts` wear it."""
        bases = tuple(self.buffers(recurse=False))
        if not bases:
            raise NfadError(
                "the filter has learned nothing yet; train with Engine.fit, call learn(normal_images) or load a "
                "checkpoint first"
            )
        return NuisanceFilter(bases, self._families, self._interventions)

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        bases = self.filter.bases
        return [remove(basis, maps, layer) for layer, (basis, maps) in enumerate(zip(bases, features, strict=True))]

    def get_extra_state(self) -> ExtraState:
        return {"families": self._families, "interventions": self._interventions}

    def set_extra_state(self, state: ExtraState) -> None:
        self._families, self._interventions = state["families"], state["interventions"]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """A freshly built model has no bases yet: how many there are, and their shapes, is what was saved."""
        names = [key for key in state_dict if key.startswith(f"{prefix}basis_")]
        self._buffers.clear()
        for layer in range(len(names)):
            name = f"basis_{layer}"
            self.register_buffer(name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
