"""One data set: fit or load a model, judge the test images as they are and under corruptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nfad.config import Config
from nfad.detector import Detector
from nfad.evaluation.evaluate import Evaluation, Judge, evaluate
from nfad.model import Model, load_model
from nfad.records import Dataset, Sample
from nfad.system.progress import Progress
from nfad.vision.corruptions import Corruption
from nfad.vision.images import load_part


@dataclass(frozen=True)
class Finding:
    """A category's evaluation, as it is or under one corruption."""

    dataset: Dataset
    corruption: Corruption | None
    detector: Model
    evaluation: Evaluation

    @property
    def title(self) -> str:
        parts = [self.dataset.name, self.dataset.category, str(self.corruption or "")]
        return " · ".join(part for part in parts if part)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know."""
        empty, without = self.evaluation.empty_masks, self.evaluation.without_score
        said = {
            f"{empty} bad images have a mask that marks nothing: all their pixels count as normal": empty,
            f"{without} images have no finite score: they are not judged, and left out of all that ranks": without,
        }
        return (*self.dataset.notes, *(words for words, count in said.items() if count))

    def as_dict(self) -> dict[str, object]:
        found = self.evaluation
        return {
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "corruption": str(self.corruption or ""),
            "notes": list(self.notes),
            "config": self.detector.config.as_dict(),
            "threshold": found.threshold,
            "unfiltered_threshold": found.unfiltered_threshold,
            "false_alarm_rate": self.detector.false_alarm_rate,
            "asked_false_alarm_rate": self.detector.config.false_alarm_rate,
            "protocol": found.protocol,
            "pixel_error": found.pixel_error,
            "without_mask": found.without_mask,
            "empty_masks": found.empty_masks,
            "without_score": found.without_score,
            "rows": [row.as_dict() for row in found.rows],
        }


def evaluate_dataset(
    dataset: Dataset,
    config: Config,
    corruptions: Sequence[str] = (),
    *,
    model: Path | None = None,
    weights: str | None = None,
    rate: float | None = None,
    readout: str = "localization",
    protocol: str = "mvtec",
    progress: Progress | None = None,
    device: str = "auto",
    judge: Judge | None = None,
) -> list[Finding]:
    """The test images as they are, then under each corruption.

    Without a `model` (a file of `nfad fit`, a folder of `nfad export`) one is fitted on the normals; with one, `rate`
    replaces its own false-alarm rate if given.
    """
    suite = [None, *map(Corruption.parse, dict.fromkeys(corruptions))]
    if model is None:
        _check_readable(dataset.test, progress)
        detector: Model = Detector.fit(
            [sample.path for sample in dataset.train], config, progress=progress, device=device
        )
    else:
        # First: a wrong file is told of sooner than all images are read.
        detector = load_model(model, weights, device=device)
        detector = detector if rate is None else detector.at_rate(rate)
        if corruptions:
            detector.check_takes_views()
        _check_readable(dataset.test, progress)
    findings = []
    for corruption in suite:
        seen = 0

        def report(*_: object, under: str = str(corruption or "")) -> None:
            nonlocal seen
            seen += 1
            if progress:
                progress("judging" + (f" under {under}" if under else ""), seen, len(dataset.test))

        found = evaluate(
            detector, dataset.test, corruption=corruption, readout=readout, protocol=protocol, on_result=report,
            judge=judge,
        )  # fmt: skip
        findings.append(Finding(dataset, corruption, detector, found))
    return findings


def _check_readable(samples: Sequence[Sample], progress: Progress | None) -> None:
    """A damaged test image is told of before the fit, not after it."""
    for done, sample in enumerate(samples, start=1):
        load_part(sample.path)
        if progress:
            progress("checking test images", done, len(samples))
