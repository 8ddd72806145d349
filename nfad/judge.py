"""A model that judges, whichever it is: fitted (a file, with torch) or exported (a folder, without)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfad.deploy.folder import FACTS
from nfad.errors import NfadError
from nfad.pictures import full_at
from nfad.records import Prediction
from nfad.threshold import Threshold
from nfad.vision.pixels import ImageLike


@dataclass(frozen=True)
class Judge:
    """Immutable: another false-alarm rate is another Judge over the same engine."""

    engine: Any  # a Detector or a Runtime: predict_stream, at_rate, held_out, threshold, false_alarm_rate
    sha256: str  # of the model's file
    batch: int
    fitted_on: int
    normals: Mapping[str, tuple[float, ...]]
    teacher: str
    reference: str

    @property
    def held_out(self) -> Threshold:
        return self.engine.held_out

    @property
    def threshold(self) -> float:
        return self.engine.threshold

    @property
    def false_alarm_rate(self) -> float:
        return self.engine.false_alarm_rate

    @property
    def scale(self) -> float:
        """The z-score at which a heatmap is at its fullest."""
        return full_at(self.threshold)

    @property
    def facts(self) -> dict[str, str]:
        """What a reader of a page should know of the model."""
        return {
            "Teacher": self.teacher,
            "Reference": self.reference,
            "Fitted on": f"{self.fitted_on} normal images, {len(self.held_out.detection)} more held out",
            "False-alarm rate": f"{self.false_alarm_rate:.2%} of normal images at most, without shift",
        }

    def at_rate(self, rate: float) -> Judge:
        return dataclasses.replace(self, engine=self.engine.at_rate(rate))

    def predict(self, image: ImageLike) -> Prediction:
        return self.engine.predict(image)

    def predict_stream(
        self, images: Iterable[ImageLike], skip: Callable[[object, str], None] | None = None
    ) -> Iterator[Prediction]:
        """In order, reading ahead; `skip` is told of an image that cannot be judged right after it was taken."""
        return self.engine.predict_stream(images, skip, ahead=True)


def judge_of(detector: Any, sha256: str = "") -> Judge:
    """A fitted Detector as it is."""
    config, identity = detector.config, detector.teacher.identity
    return Judge(
        detector, sha256, config.batch, detector.fitted_on, detector.normals,
        f"{config.teacher} ({identity.architecture})", f"{config.reference}, {config.order}",
    )  # fmt: skip


def load_judge(path: Path, weights: str | None = None, threads: int | None = None) -> Judge:
    """A file written by `nfad fit`, or a folder written by `nfad export`; `threads` to judge with, None for all.

    torch has one number of threads in a process: that of the file loaded last.
    """
    if not path.exists():
        raise NfadError(f"{path} does not exist; name a file written by `nfad fit` or a folder by `nfad export`")
    if not path.is_dir():
        from nfad.detector import Detector

        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        return judge_of(Detector.load(path, weights), _sha256(path))
    if weights is not None:
        raise NfadError(f"{path} was exported with its weights inside; leave out --weights")
    from nfad.deploy.runtime import Runtime

    runtime = Runtime.load(path, threads)
    facts = runtime.facts
    config = facts["config"]
    return Judge(
        engine=runtime,
        sha256=_sha256(path / FACTS),
        batch=config["batch"],
        fitted_on=facts["fitted_on"],
        normals={name: tuple(values) for name, values in facts["normals"].items()},
        teacher=f"{config['teacher']} ({facts['teacher']['architecture']})",
        reference=f"{config['reference']}, {config['order']}",
    )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
