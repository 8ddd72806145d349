"""A model as the service sees it: fitted (a file, with torch) or exported (a folder, without)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nfad.deploy.folder import FACTS
from nfad.records import Prediction
from nfad.threshold import Threshold


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
        """The z-score at which a heatmap is at its fullest, as in the pages of `nfad predict`."""
        return round(max(6.0, 2 * self.threshold), 1)

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

    def predict_stream(self, images: Iterable[np.ndarray], skip: Callable[[object, str], None]) -> Iterator[Prediction]:
        """In order; `skip` is told of an image that cannot be judged right after it was taken."""
        return self.engine.predict_stream(images, skip)


def load_judge(path: Path, weights: str | None = None) -> Judge:
    """A file written by `nfad fit`, or a folder written by `nfad export`."""
    if path.is_dir():
        from nfad.deploy.runtime import Runtime

        engine = Runtime.load(path)
        facts = engine.facts
        config, identity = facts["config"], facts["teacher"]
        file, batch, fitted_on, normals = path / FACTS, config["batch"], facts["fitted_on"], facts["normals"]
        names = config["teacher"], identity["architecture"], config["reference"], config["order"]
    else:
        from nfad.detector import Detector

        engine = Detector.load(path, weights)
        settings = engine.config
        file, batch, fitted_on, normals = path, settings.batch, engine.fitted_on, engine.normals
        names = settings.teacher, engine.teacher.identity.architecture, settings.reference, settings.order
    teacher, architecture, reference, order = names
    return Judge(
        engine=engine,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        batch=batch,
        fitted_on=fitted_on,
        normals={name: tuple(values) for name, values in normals.items()},
        teacher=f"{teacher} ({architecture})",
        reference=f"{reference}, {order}",
    )
