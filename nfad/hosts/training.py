"""What the trained hosts share: batches by a seed, frozen features read once, one loop that notices divergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nfad.errors import NfadError
from nfad.hosts.backbone import Backbone
from nfad.system.progress import Progress

ROOM = 4 * 2**30  # bytes of features kept in memory; beyond, they are computed again at every step


class FrozenFeatures:
    """A frozen backbone's maps of all images at half precision, so that an epoch costs no pass through it."""

    def __init__(
        self, backbone: Backbone, images: Tensor, batch: int, progress: Progress | None = None, room: int = ROOM
    ) -> None:
        self._backbone, self._images = backbone, images
        self.shapes = [tuple(maps.shape[1:]) for maps in self._maps(torch.arange(1))]
        whole = 2 * len(images) * sum(math.prod(shape) for shape in self.shapes)
        self._kept: list[Tensor] | None = None
        if whole <= room:
            self._kept = [torch.empty(len(images), *shape, dtype=torch.float16) for shape in self.shapes]
            for indices in torch.arange(len(images)).split(batch):
                for kept, maps in zip(self._kept, self._maps(indices), strict=True):
                    kept[indices] = maps.to(kept)
                if progress:
                    progress("reading images", int(indices[-1]) + 1, len(images))
            if not all(bool(kept.isfinite().all()) for kept in self._kept):  # above 65504, or never finite
                self._kept = None

    def __call__(self, indices: Int[Tensor, " image"]) -> list[Tensor]:
        if self._kept is None:
            return self._maps(indices)
        return [kept[indices].to(self._images) for kept in self._kept]

    def _maps(self, indices: Tensor) -> list[Tensor]:
        with torch.no_grad():
            # Cloned: what a backbone made in inference mode may not enter a graph.
            return [maps.clone() for maps in self._backbone(self._images[indices])]


def steps_of(steps: int | None, epochs: int, count: int, batch: int) -> int:
    """`steps` where given, else as many as `epochs` passes over the images take."""
    if batch < 1 or (epochs if steps is None else steps) < 1:
        raise NfadError(f"batch, epochs and steps must be at least 1; got {batch}, {epochs} and {steps}")
    if count < 2:
        raise NfadError(f"training needs at least 2 normal images; got {count}")
    return math.ceil(epochs * count / min(batch, count)) if steps is None else steps


def batches(count: int, batch: int, steps: int, seed: int) -> Iterator[Int[Tensor, " image"]]:
    """One shuffled pass after another, cut into full batches: batch statistics never rest on a lone image."""
    generator = torch.Generator().manual_seed(seed)
    batch = min(batch, count)
    waiting = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(waiting) < batch:
            waiting = torch.cat([waiting, torch.randperm(count, generator=generator)])
        yield waiting[:batch]
        waiting = waiting[batch:]


def train(
    network: nn.Module,
    loss_of: Callable[[Tensor, int], Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
    chosen: Iterable[Tensor],
    steps: int,
    progress: Progress | None = None,
    clip: float | None = None,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> tuple[float, ...]:
    """The losses of all steps; afterwards the network is frozen and in evaluation mode."""
    losses = []
    for step, indices in enumerate(chosen):
        loss = loss_of(indices, step)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise NfadError(f"the loss is {losses[-1]} at step {step + 1} of {steps}; lower the learning rate")
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        for optimizer in optimizers:
            optimizer.step()
        if schedule:
            schedule.step()
        if progress:
            progress("training", step + 1, steps)
    network.eval().requires_grad_(False)
    return tuple(losses)
