"""What a model is, whichever kind: fitted (a file, with torch) or exported (a folder, without)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from nfad.config import Config
from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.system.progress import Skip
from nfad.verdict.threshold import Threshold
from nfad.vision.pixels import ImageLike

if TYPE_CHECKING:
    from torch import Tensor


class Model(Protocol):
    """A `Detector` or a `Runtime`. Immutable: another false-alarm rate is another model over the same parts."""

    @property
    def config(self) -> Config: ...
    @property
    def held_out(self) -> Threshold:
        """The scores of the normals that the thresholds come from."""
        ...

    @property
    def fitted_on(self) -> int:
        """Images the reference has seen."""
        ...

    @property
    def normals(self) -> Mapping[str, tuple[float, ...]]:
        """Of every held-out normal: its scores, participation, nuisance by family."""
        ...

    @property
    def sha256(self) -> str:
        """Of the file it was loaded from; "" if it was not."""
        ...

    @property
    def architecture(self) -> str:
        """The teacher's."""
        ...

    @property
    def exported(self) -> str:
        """Precision, backend and origin of an export; "" for a fitted model."""
        ...

    @property
    def false_alarm_rate(self) -> float:
        """The rate the threshold stands for: the one asked for, or the smallest the held-out normals support."""
        ...

    @property
    def threshold(self) -> float: ...

    def at_rate(self, false_alarm_rate: float) -> Self:
        """The same model at another false-alarm rate."""
        ...

    def predict(self, images: ImageLike) -> Prediction: ...

    def predict_stream(
        self, images: Iterable[ImageLike], skip: Skip | None = None, *, prefetch: bool = ...
    ) -> Iterator[Prediction]:
        """One Prediction after the other, in order; `prefetch` takes images before earlier ones are judged."""
        ...

    def predict_views(self, views: Tensor) -> list[Prediction]:
        """Of views (n, 3, size, size) in [0, 1] at the model's size, e.g. changed on purpose."""
        ...

    def check_takes_views(self) -> None:
        """Refuse now what `predict_views` would refuse later."""
        ...


def is_shortage(error: Exception) -> bool:
    """Whether this machine ran out of memory, which says nothing about the photo. Backends tell of it in words."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "bad_alloc" in said or "bad alloc" in said or "allocate memory" in said


def why_failed(error: Exception) -> str:
    """Why a model has no verdict on a photo that can be read, for its record."""
    if is_shortage(error):
        return "Not judged: there was not enough memory for this photo."
    said = " ".join(str(error).split())
    return f"Not judged: the model failed on this photo ({type(error).__name__}: {said[:200]})."


def load_model(
    path: str | Path,
    weights: str | None = None,
    threads: int | None = None,
    key: str | Path | None = None,
    device: str = "auto",
) -> Model:
    """A file written by `nfad fit`, or a folder written by `nfad export`; `threads` to judge with, None for all.

    `device` is where a fitted model's networks run; an export runs where its backend does.

    torch has one number of threads in a process: that of the file loaded last. `key` is a key file: a folder that was
    not signed with it is refused.
    """
    path = Path(path)
    if not path.exists():
        raise NfadError(f"{path} does not exist; name a file written by `nfad fit` or a folder by `nfad export`")
    # Each kind is imported when it is asked for: a line PC has no torch, and where it is there it takes seconds.
    if path.is_dir():
        if weights is not None:
            raise NfadError(f"{path} was exported with its weights inside; leave out --weights")
        if device not in ("auto", "cpu"):
            raise NfadError(f"{path} is an export, which runs on the CPU; leave out --device")
        from nfad.deploy.runtime import Runtime

        return Runtime.load(path, threads, key)
    if key is not None:
        raise NfadError(f"{path} is a fitted model, and only exports are signed; leave out --key, or export it with it")
    from nfad.detector import Detector

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return Detector.load(path, weights, device)
