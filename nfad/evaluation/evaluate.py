"""Score a labelled set by acquisition domain: the control against the filter, nothing chosen on the test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.intervals import Interval, auroc_resamples, percentiles, rate_interval
from nfad.evaluation.metrics import PROTOCOLS, image_metrics
from nfad.evaluation.pixels import PixelArm
from nfad.records import Geometry, Prediction, Sample
from nfad.vision.corruptions import Corruption

EVERYWHERE = "all"  # the row of all domains' images together
METRICS = ("i_auroc", "i_ap", "i_f1", "p_auroc", "p_ap", "p_f1", "aupro")
COMPARED = ("i_auroc", "p_auroc", "aupro")  # the metrics whose differences have paired intervals
READ_OUTS = ("localization", "detection")
HALF = 127  # a mask without a value above this numbers its defects (VisA) instead of painting them white


@dataclass(frozen=True)
class Arm:
    """One detector in one domain. Rates are at the threshold that held-out source normals set."""

    i_auroc: float
    i_ap: float
    i_f1: float
    p_auroc: float
    p_ap: float
    p_f1: float
    aupro: float
    false_alarms: float  # share of the good images flagged
    detections: float  # share of the bad images flagged
    intervals: dict[str, tuple[float, float]]  # 95 %: i_auroc, p_auroc, aupro, false_alarms, detections


@dataclass(frozen=True)
class EvaluationRow:
    """One domain: the control, NFAD, and `full`, which is NFAD with the detection map for its pixel map as well."""

    domain: str
    good: int
    bad: int
    arms: dict[str, Arm]
    gains: dict[str, Interval]  # NFAD less control over the same images, for each of COMPARED

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ImageResult:
    """One image's numbers; its maps are not kept."""

    sample: Sample
    score: float
    control_score: float
    gate: float
    nuisance_fraction: float


@dataclass(frozen=True)
class Evaluation:
    """Rows by domain, in order of first appearance, and one for all images together where there are several."""

    rows: tuple[EvaluationRow, ...]
    images: tuple[ImageResult, ...]
    threshold: float
    control_threshold: float
    protocol: str
    pixel_error: float  # certified bound on the pixel metrics' distance from exact; 0 where every map was held
    without_mask: int  # bad images that have no mask and so are left out of the pixel metrics
    empty_masks: int  # bad images whose mask marks nothing that the model sees: their pixels count as normal
    pro_curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # domain → arm → false-positive rate, overlap
    # domain → arm → metric → its value in each resample of the images; the draws are the same for every detector
    resamples: dict[str, dict[str, dict[str, np.ndarray]]]


def mask_of(sample: Sample, geometry: Geometry, size: int) -> np.ndarray:
    """The ground truth on the model's view, by nearest neighbour; all normal where there is none."""
    if sample.mask is None:
        return np.zeros((size, size), dtype=bool)
    try:
        with Image.open(sample.mask) as mask:
            grey = mask.convert("L")
    except (OSError, ValueError) as error:
        raise NfadError(f"the mask {sample.mask} of {sample.path} cannot be read ({error}); copy it again") from None
    top = grey.getextrema()[1]
    y, x = grey.height / geometry.height, grey.width / geometry.width
    box = (
        geometry.left * x, geometry.top * y,
        min(grey.width, (geometry.left + geometry.box_width) * x),
        min(grey.height, (geometry.top + geometry.box_height) * y),
    )  # fmt: skip
    pixels = np.asarray(grey.resize((size, size), Image.Resampling.NEAREST, box=box))
    return pixels > (HALF if top > HALF else 0)


def evaluate(
    detector: Detector,
    samples: Sequence[Sample],
    *,
    corruption: Corruption | None = None,
    readout: str = "localization",
    protocol: str = "mvtec",
    seed: int = 0,
    on_result: Callable[[Sample, Prediction], None] | None = None,
) -> Evaluation:
    """Judge every sample, all of them under `corruption` if one is given (at the model's view, so in its pixels).

    `readout` is the map NFAD's pixel metrics are taken from. Sets too large for memory stream (protocol `mvtec` only).
    """
    for name, value, allowed in (("readout", readout, READ_OUTS), ("protocol", protocol, PROTOCOLS)):
        if value not in allowed:
            raise NfadError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    if not samples:
        raise NfadError("there is nothing to evaluate: the test set is empty")
    size = detector.config.size
    domains = list(dict.fromkeys(sample.domain for sample in samples))
    same = readout == "detection" or detector.config.localization == "detection"  # then `full` is NFAD itself
    names = ("control", "nfad") if same else ("control", "nfad", "full")
    pixels = {domain: {arm: PixelArm(protocol, len(samples), size, seed) for arm in names} for domain in domains}
    images, alarms = [], []
    without_mask = empty_masks = 0

    def edited(view: Tensor, index: int) -> Tensor:
        return corrupted(view, corruption, seed + index) if corruption else view

    predictions = detector.predict_stream([sample.path for sample in samples], edit=edited)
    for sample, prediction in zip(samples, predictions, strict=True):
        numbers = (prediction.score, prediction.control_score, prediction.gate, prediction.nuisance_fraction)
        images.append(ImageResult(sample, *numbers))
        alarms.append((prediction.control_is_anomalous, prediction.is_anomalous))
        if sample.anomalous and sample.mask is None:
            without_mask += 1
        else:
            mask = mask_of(sample, prediction.geometry, size)
            empty_masks += sample.anomalous and not mask.any()
            shown = prediction.map if readout == "localization" else prediction.detection_map
            here = pixels[sample.domain]
            here["control"].update(prediction.control_map, mask)
            here["nfad"].update(shown, mask)
            if not same:
                here["full"].update(prediction.detection_map, mask)
        if on_result:
            on_result(sample, prediction)
    if len(domains) > 1:
        pixels[EVERYWHERE] = {arm: PixelArm.joined([pixels[domain][arm] for domain in domains]) for arm in names}
    labels = np.array([image.sample.anomalous for image in images])
    scores = {
        "control": np.array([image.control_score for image in images]),
        "nfad": np.array([image.score for image in images]),
    }
    flagged = dict(zip(("control", "nfad"), np.array(alarms).T, strict=True))
    where = np.array([image.sample.domain for image in images])
    rows, resamples = [], {}
    for domain, arms in pixels.items():
        here = (where == domain) | (domain == EVERYWHERE)
        resamples[domain] = {
            arm: {
                "i_auroc": auroc_resamples(scores["control" if arm == "control" else "nfad"][here], labels[here], seed),
                "p_auroc": pixel.resamples.aurocs(),
                "aupro": pixel.resamples.aupros(),
            }
            for arm, pixel in arms.items()
        }
        resamples[domain].setdefault("full", resamples[domain]["nfad"])
        rows.append(_row(domain, here, labels, scores, flagged, arms, resamples[domain]))
    threshold, control_threshold = detector.held_out.at(detector.config.false_alarm_rate)
    return Evaluation(
        rows=tuple(rows),
        images=tuple(images),
        threshold=threshold,
        control_threshold=control_threshold,
        protocol=protocol,
        pixel_error=max(arm.error for arms in pixels.values() for arm in arms.values()),
        without_mask=without_mask,
        empty_masks=empty_masks,
        pro_curves={
            domain: {arm: arms[arm].resamples.pro_curve() for arm in ("control", "nfad")}
            for domain, arms in pixels.items()
        },
        resamples=resamples,
    )


def corrupted(view: Tensor, corruption: Corruption, seed: int) -> Tensor:
    """A view in [0, 1] under a corruption, which works on 8-bit pixels."""
    pixels = (view.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    return torch.from_numpy(corruption(pixels, seed)).permute(2, 0, 1).float() / 255


def _row(
    domain: str,
    here: np.ndarray,
    labels: np.ndarray,
    scores: dict[str, np.ndarray],
    flagged: dict[str, np.ndarray],
    pixels: dict[str, PixelArm],
    resamples: dict[str, dict[str, np.ndarray]],
) -> EvaluationRow:
    good, bad = here & ~labels, here & labels
    arms = {}
    for name, pixel in pixels.items():
        of = "control" if name == "control" else "nfad"
        image, found = image_metrics(scores[of][here], labels[here]), pixel.metrics()
        alarm = rate_interval(int(flagged[of][good].sum()), int(good.sum()))
        hit = rate_interval(int(flagged[of][bad].sum()), int(bad.sum()))
        values = {"i_auroc": image.auroc, "p_auroc": found.auroc, "aupro": found.aupro}
        spans = {metric: percentiles(value, resamples[name][metric]) for metric, value in values.items()}
        spans |= {"false_alarms": alarm, "detections": hit}
        arms[name] = Arm(
            **values,
            i_ap=image.ap, i_f1=image.f1_max, p_ap=found.ap, p_f1=found.f1_max,
            false_alarms=alarm.value, detections=hit.value,
            intervals={metric: (span.low, span.high) for metric, span in spans.items()},
        )  # fmt: skip
    arms.setdefault("full", arms["nfad"])
    gains = {
        metric: percentiles(
            getattr(arms["nfad"], metric) - getattr(arms["control"], metric),
            resamples["nfad"][metric] - resamples["control"][metric],
        )
        for metric in COMPARED
    }
    return EvaluationRow(domain, int(good.sum()), int(bad.sum()), arms, gains)
