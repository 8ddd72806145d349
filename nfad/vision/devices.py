"""Where networks run: a property of the run, never of a model.

Three things may live on another device than the CPU, and each takes tensors from anywhere: a teacher and a student,
whose tokens come back, and a bank of tokens, whose nearest come back. All else, and all that sets a threshold, is
computed on the CPU at full precision, so that it is the same on every machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from nfad.errors import NfadError

CPU = torch.device("cpu")
# fp16 keeps eleven bits of a number. bf16 keeps eight, which move scores across a threshold; but gradients, which leave
# the range of fp16, are right with it.
FROZEN = {"cuda": torch.float16, "xpu": torch.float16, "mps": torch.float16}
TRAINED = {"cuda": torch.bfloat16, "xpu": torch.bfloat16}
TOLERANCE = 1e-4  # of 1 − cos between a token in fp16 and at full precision; networks beyond it stay at the latter


def device_of(name: str) -> torch.device:
    """A device by its name; `auto` is the first accelerator there is, else the CPU."""
    if name == "auto":
        return next((torch.device(kind) for kind in FROZEN if _count(kind)), CPU)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise NfadError(f"device must be auto, cpu, cuda, cuda:1, mps or xpu; got {name!r}") from None
    if device.type == "cpu":
        return CPU
    found = _count(device.type)
    if (device.index or 0) >= found:
        there = f"{found} {device.type} device{'s' if found > 1 else ''}, from {device.type}:0" if found else "none"
        raise NfadError(f"there is no device {name} on this machine: torch finds {there}; use device auto or cpu")
    return device


def frozen_precision(device: torch.device) -> torch.dtype | None:
    """What a frozen network is computed in there; None is full precision."""
    return FROZEN.get(device.type)


def trained_precision(device: torch.device) -> torch.dtype | None:
    """The same for a network that learns."""
    return TRAINED.get(device.type)


def computing(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[object]:
    """torch's autocast where a precision is given."""
    return nullcontext() if precision is None else torch.autocast(device.type, precision)


class Lowered(Protocol):
    """A teacher whose precision can be chosen."""

    precision: torch.dtype | None

    def tokens(self, images: torch.Tensor) -> list[torch.Tensor]: ...


def is_close(teacher: Lowered, size: int) -> bool:
    """Whether the tokens of a probe are those of full precision within the tolerance; what overflows is not."""
    probe = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    lower, precision = teacher.tokens(probe), teacher.precision
    teacher.precision = None
    full = teacher.tokens(probe)
    teacher.precision = precision
    gaps = [float((1 - (a * b).sum(dim=-1)).max()) for a, b in zip(lower, full, strict=True)]
    return all(gap <= TOLERANCE for gap in gaps)  # put so that NaN is refused too


def _count(kind: str) -> int:
    """How many devices of this kind torch can use here; 0 also where it was built without them."""
    try:
        module = torch.get_device_module(kind)
    except (RuntimeError, AttributeError):  # a kind that torch knows by name only
        return 0
    return module.device_count() if hasattr(module, "device_count") and module.is_available() else 0
