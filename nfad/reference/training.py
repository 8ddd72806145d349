"""Training the student on cached teacher tokens: seeded epoch by epoch, so that resuming changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nfad.config import Config
from nfad.errors import NfadError
from nfad.reference.student import Student, prior_weighted_loss, random_masks
from nfad.system.files import replacing, scratch_beside
from nfad.vision.devices import CPU, computing, trained_precision

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.05
FORMAT = "nfad-student-checkpoint-1"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of a parameter
# Settings used only after training: they may change between two runs that share a checkpoint.
LATER = frozenset(
    {
        "variance",
        "bank",
        "interventions",
        "rank",
        "basis",
        "pairs",
        "displacements",
        "basis_size",
        "gate",
        "local_share",
    }
    | {"localization", "incidence", "common_mode", "foreground", "sigma", "top_fraction", "false_alarm_rate"}
)

Batch = tuple[
    Float[Tensor, "image 3 size size"], list[Float[Tensor, "image token _"]], Float[Tensor, "image token"]
]  # images in [0, 1], the teacher's tokens of each block, the foreground prior


def train_student(
    config: Config,
    channels: Sequence[int],
    count: int,
    batch_of: Callable[[Int[Tensor, " image"]], Batch],
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    grid: int | None = None,
    every: float = 60.0,
    device: torch.device = CPU,
) -> Student:
    """Trains on `count` normal images, which `batch_of` gives by index; returns the student, ready for scoring.

    With `checkpoint` the training's state is written at the end of an epoch, at most once in `every` seconds, and
    after the last; an existing one is resumed, to bitwise the student an uninterrupted run gives (same machine,
    same number of threads, same device). `progress` hears of each epoch: how many are done, how many there are, mean
    loss.
    """
    if count < 1:
        raise NfadError(f"the student needs at least 1 normal image to train on; got {count}")
    saver = None
    if checkpoint is not None:
        saver = Checkpoint.of(Path(checkpoint), config, channels, count, batch_of, grid)
    saved = saver.read() if saver else None
    if saved is None:
        done, student = 0, Student.build(config, channels, grid).to(device)
        optimizer = adamw(student, config.learning_rate)
    else:
        done, student = saved.epoch, Student.from_state(config, channels, saved.student, grid).to(device)
        optimizer = adamw(student, config.learning_rate)
        for name, parameter in student.named_parameters():
            kept = {key: each.to(device) for key, each in saved.moments[name].items()}
            # AdamW counts its steps on the CPU, wherever the parameters are.
            optimizer.state[parameter] = kept | {"step": saved.moments[name]["step"]}
    student.eval()  # dropout and stochastic depth off; nothing else in a ViT knows the mode
    written = time.monotonic()
    for epoch in range(done, config.epochs):
        loss = _train_epoch(student, optimizer, config, count, batch_of, epoch)
        if not all(bool(parameter.isfinite().all()) for parameter in student.parameters()):
            raise NfadError(
                f"training the student diverged in epoch {epoch + 1} of {config.epochs}; lower learning_rate "
                f"(now {config.learning_rate:g}) and check that images and teacher tokens are finite"
            )
        if saver and (epoch + 1 == config.epochs or time.monotonic() - written >= every):
            saver.write(student, optimizer, epoch + 1)
            written = time.monotonic()
        if progress:
            progress(epoch + 1, config.epochs, loss)
    return student


def learning_rate(epoch: int, epochs: int, base: float) -> float:
    """Rises linearly over the first quarter of the epochs, then ×0.1 from 60 % and again from 80 % on.

    `epoch` counts from 0; the paper's 50 warm-up epochs are a quarter of its 200.
    """
    # In whole numbers, since 0.6 · epochs is not always exact.
    if 4 * (epoch + 1) < epochs:
        return base * 4 * (epoch + 1) / epochs
    return base * 0.1 ** ((10 * epoch >= 6 * epochs) + (10 * epoch >= 8 * epochs))


def adamw(student: Student, rate: float) -> torch.optim.AdamW:
    """Weight decay on the matrices only: not on biases, norms, the mask token, positions or CLS."""
    embeddings = {f"model.{name}" for name in student.model.no_weight_decay()}
    decayed, bare = [], []
    for name, parameter in student.named_parameters():
        (bare if parameter.ndim < 2 or name in embeddings else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": bare, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=BETAS)


def _train_epoch(
    student: Student,
    optimizer: torch.optim.AdamW,
    config: Config,
    count: int,
    batch_of: Callable[[Int[Tensor, " image"]], Batch],
    epoch: int,
) -> float:
    # A generator of the epoch's own: what it draws does not depend on how the epochs before were run.
    generator = torch.Generator().manual_seed((config.seed * 1_000_003 + epoch) % 2**63)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(epoch, config.epochs, config.learning_rate)
    total = 0.0
    for indices in torch.randperm(count, generator=generator).split(config.batch):
        images, tokens, prior = batch_of(indices)
        masked = random_masks(len(indices), student.tokens, config.mask, generator)
        device = student.mean.device
        with computing(device, trained_precision(device)):
            predicted = student(images, masked)
        loss = prior_weighted_loss([block.to(device) for block in tokens], predicted, prior.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(indices)
    return total / count


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds after `epoch` epochs."""

    epoch: int
    student: dict[str, Tensor]
    moments: dict[str, dict[str, Tensor]]  # AdamW's, by parameter


@dataclass(frozen=True)
class Checkpoint:
    """One safetensors file: student, AdamW's moments, and in the header which training they belong to."""

    path: Path
    training: dict[str, Any]
    images: Float[Tensor, "sample 3"]  # mean colours of some training images

    @classmethod
    def of(
        cls,
        path: Path,
        config: Config,
        channels: Sequence[int],
        count: int,
        batch_of: Callable[[Int[Tensor, " image"]], Batch],
        grid: int | None,
    ) -> Checkpoint:
        """Of this training. Fails at once where nothing could be written hours later."""
        if path.is_dir():
            raise NfadError(f"checkpoint {path} is a folder; name a file, such as {path / 'student.safetensors'}")
        scratch_beside(path).close()
        settings = {name: value for name, value in config.as_dict().items() if name not in LATER}
        training = {**settings, "channels": list(channels), "grid": grid, "count": count}
        samples = min(count, config.batch)
        images, _, _ = batch_of(torch.arange(samples) * count // samples)
        # Through JSON, where tuples become lists, to compare with what a file gives back.
        return cls(path, json.loads(json.dumps(training)), images.float().mean(dim=(2, 3)))

    def read(self) -> Saved | None:
        """What the file holds, None without a file; that of another training is refused, never overwritten."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                self._belongs(header)
                # Cloned: memory mapped from the file is not aligned like a fresh tensor's.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise NfadError(
                f"{self.path} is not a whole student checkpoint ({error}); delete it to train from the start, or give "
                "another file"
            ) from None
        images = tensors.pop("images")
        # Not bit by bit: another machine resizes an image to the same values but for their last digits.
        if images.shape != self.images.shape or not torch.allclose(images, self.images, rtol=0, atol=1e-4):
            raise self._refusal("its images differ")
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            parts.setdefault(part, {})[name] = tensor
        moments = {name: {key: parts[key][name] for key in MOMENTS} for name in parts["step"]}
        return Saved(int(header["epoch"]), parts["student"], moments)

    def write(self, student: Student, optimizer: torch.optim.AdamW, epoch: int) -> None:
        tensors = {f"student.{name}": tensor for name, tensor in student.state_dict().items()}
        for name, parameter in student.named_parameters():
            tensors |= {f"{key}.{name}": optimizer.state[parameter][key] for key in MOMENTS}
        header = {"format": FORMAT, "epoch": str(epoch), "training": json.dumps(self.training)}
        with replacing(self.path) as file:
            file.write(save({name: each.cpu() for name, each in tensors.items()} | {"images": self.images}, header))

    def _belongs(self, header: dict[str, str]) -> None:
        if header.get("format") != FORMAT:
            raise NfadError(f"{self.path} is no student checkpoint of this version; give another file, or delete it")
        theirs = json.loads(header["training"])
        for name in sorted(theirs.keys() | self.training.keys()):
            if theirs.get(name) != self.training.get(name):
                raise self._refusal(f"its {name} is {theirs.get(name)!r}, now it is {self.training.get(name)!r}")

    def _refusal(self, reason: str) -> NfadError:
        return NfadError(
            f"checkpoint {self.path} belongs to another training: {reason}; delete it to train from the start, or "
            "give another file"
        )
