"""Score a labelled set by acquisition domain: unfiltered against filtered, nothing chosen on the test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nfad.errors import NfadError
from nfad.evaluation.metrics import PROTOCOLS
from nfad.evaluation.tally import EvaluationRow, Judged, Resamples, Tally
from nfad.model import Model
from nfad.records import Prediction, Sample
from nfad.vision.corruptions import Corruption
from nfad.vision.images import load_part, pixels_of, to_view

READ_OUTS = ("localization", "detection")
Judge = Callable[[Model, Sequence[Sample], Corruption | None, int], Iterator[Prediction]]


@dataclass(frozen=True)
class ImageResult:
    """One image's numbers; its maps are not kept."""

    sample: Sample
    score: float
    unfiltered_score: float
    gate: float | None
    nuisance_fraction: float
    strangeness: float = float("nan")
    why_not_judged: str = ""  # "" where it is judged


@dataclass(frozen=True)
class Evaluation:
    """Rows by domain; arms are unfiltered, filtered, and `full`: filtered, its pixels from the detection map."""

    rows: tuple[EvaluationRow, ...]
    images: tuple[ImageResult, ...]
    threshold: float
    unfiltered_threshold: float
    protocol: str
    pixel_error: float  # certified bound on the pixel metrics' distance from exact; 0 where every map was held
    without_mask: int  # bad images that have no mask and so are left out of the pixel metrics
    empty_masks: int  # bad images whose mask marks nothing that the model sees: their pixels count as normal
    without_score: int  # images without a finite score: not judged, and left out of all that ranks
    pro_curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # domain → arm → false-positive rate, overlap
    resamples: Resamples


def evaluate(
    detector: Model,
    samples: Sequence[Sample],
    *,
    corruption: Corruption | None = None,
    readout: str = "localization",
    protocol: str = "mvtec",
    seed: int = 0,
    on_result: Callable[[Sample, Prediction], None] | None = None,
    judge: Judge | None = None,
) -> Evaluation:
    """Judge every sample, all of them under `corruption` if one is given (at the model's view, so in its pixels).

    An exported model is judged by its own graph: on the photos, or on the corrupted views, whose 8 bits it takes too.
    `judge` gives the predictions in the samples' order, this process's own if left out.
    `readout` is the map NFAD's pixel metrics are taken from. Sets too large for memory stream (protocol `mvtec` only).
    """
    for name, value, allowed in (("readout", readout, READ_OUTS), ("protocol", protocol, PROTOCOLS)):
        if value not in allowed:
            raise NfadError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    if not samples:
        raise NfadError("there is nothing to evaluate: the test set is empty")
    if corruption:
        detector.check_takes_views()
    same = readout == "detection" or detector.config.localization == "detection"  # then `full` is NFAD itself
    names = ("unfiltered", "filtered") if same else ("unfiltered", "filtered", "full")
    tally = Tally(samples, names, detector.config.size, protocol, seed)
    images = []

    predictions = (judge or predictions_of)(detector, samples, corruption, seed)
    for sample, prediction in zip(samples, predictions, strict=True):
        numbers = ("score", "unfiltered_score", "gate", "nuisance_fraction", "strangeness", "why_not_judged")
        images.append(ImageResult(sample, **{name: getattr(prediction, name) for name in numbers}))
        score, flagged, is_judged = prediction.score, prediction.is_anomalous, prediction.is_judged
        full = prediction.map if prediction.detection_map is None else prediction.detection_map
        shown = prediction.map if readout == "localization" else full
        judged = {
            "unfiltered": Judged(
                prediction.unfiltered_score, prediction.unfiltered_is_anomalous, prediction.unfiltered_map
            ),
            "filtered": Judged(score, flagged, shown, is_judged),
            "full": Judged(score, flagged, full, is_judged),
        }
        tally.add(sample, prediction.geometry, {name: judged[name] for name in names})
        if on_result:
            on_result(sample, prediction)
    rows, resamples = tally.rows()
    for row in rows:
        row.arms.setdefault("full", row.arms["filtered"])
        resamples[row.domain].setdefault("full", resamples[row.domain]["filtered"])
    threshold, unfiltered_threshold = detector.held_out.at(detector.config.false_alarm_rate)
    return Evaluation(
        rows=tuple(rows),
        images=tuple(images),
        threshold=threshold,
        unfiltered_threshold=unfiltered_threshold,
        protocol=protocol,
        pixel_error=tally.pixel_error,
        without_mask=tally.without_mask,
        empty_masks=tally.empty_masks,
        without_score=tally.without_score,
        pro_curves={
            domain: {arm: arms[arm].resamples.pro_curve() for arm in ("unfiltered", "filtered")}
            for domain, arms in tally.pixels.items()
        },
        resamples=resamples,
    )


def predictions_of(
    model: Model, samples: Sequence[Sample], corruption: Corruption | None, seed: int
) -> Iterator[Prediction]:
    """Photos as they are, or their views under the corruption."""
    if corruption is None:
        yield from model.predict_stream([sample.path for sample in samples], prefetch=True)
        return
    size, resize, batch = model.config.size, model.config.resize, model.config.at_once
    for start in range(0, len(samples), batch):
        chosen = samples[start : start + batch]
        seen = [to_view(load_part(sample.path), size, resize) for sample in chosen]
        views = [corrupted(view, corruption, seed + start + index) for index, (view, _) in enumerate(seen)]
        predictions = model.predict_views(torch.stack(views))
        for prediction, sample, (_, geometry) in zip(predictions, chosen, seen, strict=True):
            yield replace(prediction, geometry=geometry, source=str(sample.path))


def corrupted(view: Tensor, corruption: Corruption, seed: int) -> Tensor:
    """A view in [0, 1] under a corruption, which works on 8-bit pixels."""
    return torch.from_numpy(corruption(pixels_of(view), seed)).permute(2, 0, 1).float() / 255
