"""Your own detector: the filter on named layers of any torch module, by forward hooks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nfad.errors import NfadError
from nfad.hosts.filter import NuisanceFilter


class HookedLayers:
    """The outputs of named layers as features, so that a filter can be fitted to them.

    An output is a map (image, channel, y, x) or tokens (image, token, channel). A layer named alone may also return a
    list, tuple or dict of them, as an encoder does. `forward` is called with images in [0, 1]: give one that
    normalises them as the detector does. `unit` says whether the detector compares directions (a cosine) only.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str],
        forward: Callable[[Tensor], object] | None = None,
        unit: bool = False,
    ) -> None:
        if isinstance(layers, str) or len(layers) == 0 or len(set(layers)) < len(layers):
            raise NfadError(f"layers must be a list of different names of modules; got {layers!r}")
        self.modules = {name: _named(model, name) for name in layers}
        self.unit = unit
        self._forward = forward or model

    @torch.no_grad()
    def features(self, images: Tensor) -> list[Tensor]:
        caught: dict[str, list[Tensor]] = {}

        def catch(name: str, output: object) -> None:
            if name in caught:
                raise NfadError(f"layer {name!r} ran twice in one pass; name a layer that runs once")
            caught[name] = [_as_map(tensor) for tensor in _tensors(output, name, len(self.modules) == 1)]

        handles = _hook_all(self.modules, catch)
        try:
            self._forward(images)
        finally:
            for handle in handles:
                handle.remove()
        for name in self.modules:
            if name not in caught:
                raise NfadError(f"layer {name!r} did not run in the forward pass; name one that does")
        return [tensor for name in self.modules for tensor in caught[name]]


class HookedFilter:
    """Takes the nuisance out of those layers' outputs, in a `with` block or between `attach()` and `detach()`.

    Whatever runs after a named layer sees its filtered output: name layers whose output is only compared (an encoder
    that returns its features), not ones that feed further frozen layers. A detector that stores normal features must
    collect them with the filter attached.
    """

    def __init__(self, layers: HookedLayers, nuisance: NuisanceFilter) -> None:
        if len(layers.modules) not in (1, len(nuisance.bases)):
            raise NfadError(f"the filter was fitted on {len(nuisance.bases)} layers; {len(layers.modules)} are named")
        self._modules = layers.modules
        if len(layers.modules) == 1:
            self._filters = dict.fromkeys(layers.modules, nuisance)
        else:
            self._filters = {
                name: replace(nuisance, bases=(basis,), families=(families,))
                for name, basis, families in zip(layers.modules, nuisance.bases, nuisance.families, strict=True)
            }
        self._handles: list[RemovableHandle] = []

    def attach(self) -> HookedFilter:
        if self._handles:
            raise NfadError("the filter is attached already; detach() it first")
        self._handles = _hook_all(self._modules, self._filtered)
        return self

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> HookedFilter:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _filtered(self, name: str, output: object) -> object:
        tensors = _tensors(output, name, len(self._modules) == 1)
        maps = self._filters[name].project([_as_map(tensor) for tensor in tensors])
        return _like(output, [_unmap(after, before) for after, before in zip(maps, tensors, strict=True)])


def _hook_all(modules: Mapping[str, nn.Module], see: Callable[[str, object], object]) -> list[RemovableHandle]:
    """A hook that returns None leaves the output alone, one that returns something replaces it (torch's rule)."""

    def hook(name: str) -> Callable[[nn.Module, object, object], object]:
        return lambda _module, _input, output: see(name, output)

    return [module.register_forward_hook(hook(name)) for name, module in modules.items()]


def _named(model: nn.Module, name: str) -> nn.Module:
    known = dict(model.named_modules())
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known, n=3)) or ", ".join(list(known)[1:4])
        raise NfadError(f"{type(model).__name__} has no layer {name!r}; similar: {near}")
    return known[name]


def _tensors(output: object, name: str, several: bool) -> list[Tensor]:
    found = list(output.values()) if isinstance(output, Mapping) else output
    found = [found] if isinstance(found, Tensor) else found
    if not isinstance(found, list | tuple) or not all(isinstance(t, Tensor) and t.ndim in (3, 4) for t in found):
        raise NfadError(
            f"layer {name!r} must return maps (image, channel, y, x) or tokens (image, token, channel); got "
            f"{type(output).__name__}"
        )
    if len(found) != 1 and not several:
        raise NfadError(f"layer {name!r} returns {len(found)} tensors; name it alone, or its parts")
    return list(found)


def _like(output: object, tensors: list[Tensor]) -> object:
    """The filtered tensors in the container the layer uses."""
    return tensors[0] if isinstance(output, Tensor) else _filled(type(output), output, tensors)


def _filled(container: Callable[..., object], output: object, tensors: list[Tensor]) -> object:
    if isinstance(output, Mapping):
        return container(zip(output, tensors, strict=True))
    return container(*tensors) if hasattr(output, "_fields") else container(tensors)


def _as_map(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim == 4 else tensor.transpose(1, 2)[..., None]


def _unmap(maps: Tensor, before: Tensor) -> Tensor:
    return maps if before.ndim == 4 else maps[..., 0].transpose(1, 2)
