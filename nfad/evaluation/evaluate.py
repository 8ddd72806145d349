"""Score a labelled set by acquisition domain: the control against the filter, nothing chosen on the test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.intervals import Interval, paired_interval
from nfad.evaluation.metrics import image_metrics, pixel_metrics
from nfad.records import Prediction, Sample

EVERYWHERE = "all"


@dataclass(frozen=True)
class EvaluationRow:
    """One domain. False-alarm rates are of good parts at the threshold that held-out source normals set."""

    domain: str
    good: int
    bad: int
    control_auroc: float
    auroc: float
    gain: Interval  # paired over the same images
    control_false_alarms: float
    false_alarms: float
    control_pixel_auroc: float
    pixel_auroc: float
    control_aupro: float
    aupro: float


def load_mask(sample: Sample, size: int) -> np.ndarray:
    """The ground truth on the model's stretched view: nearest, above one half; all normal where there is none."""
    if sample.mask is None:
        return np.zeros((size, size), dtype=bool)
    with Image.open(sample.mask) as mask:
        return np.asarray(mask.convert("L").resize((size, size), Image.Resampling.NEAREST)) > 127


def evaluate(
    detector: Detector,
    samples: Sequence[Sample],
    on_result: Callable[[Sample, Prediction], None] | None = None,
) -> list[EvaluationRow]:
    """A row a domain, in order of first appearance, and one for all together."""
    if detector.config.resize is not None:
        raise NfadError("evaluate() lays masks over the whole image; use a model fitted with resize=None")
    size = detector.config.size
    scores, control, maps, control_maps, masks = [], [], [], [], []
    alarms, control_alarms = [], []
    for sample, prediction in zip(samples, detector.predict_stream([s.path for s in samples]), strict=True):
        scores.append(prediction.score)
        control.append(prediction.control_score)
        alarms.append(prediction.is_anomalous)
        control_alarms.append(prediction.control_is_anomalous)
        maps.append(prediction.map)
        control_maps.append(prediction.control_map)
        masks.append(load_mask(sample, size))
        if on_result:
            on_result(sample, prediction)
    labels = np.array([sample.anomalous for sample in samples])
    domains = np.array([sample.domain for sample in samples])
    score, base = np.array(scores), np.array(control)
    alarm, base_alarm = np.array(alarms), np.array(control_alarms)
    stacked, base_stacked, truth = np.stack(maps), np.stack(control_maps), np.stack(masks)
    rows = []
    for domain in [*dict.fromkeys(domains.tolist()), EVERYWHERE]:
        here = (domains == domain) | (domain == EVERYWHERE)
        pixel, base_pixel = pixel_metrics(stacked[here], truth[here]), pixel_metrics(base_stacked[here], truth[here])
        good = here & ~labels
        rows.append(
            EvaluationRow(
                domain=domain,
                good=int(good.sum()),
                bad=int((here & labels).sum()),
                control_auroc=image_metrics(base[here], labels[here]).auroc,
                auroc=image_metrics(score[here], labels[here]).auroc,
                gain=paired_interval(score[here], base[here], labels[here]),
                control_false_alarms=float(base_alarm[good].mean()) if good.any() else float("nan"),
                false_alarms=float(alarm[good].mean()) if good.any() else float("nan"),
                control_pixel_auroc=base_pixel.auroc,
                pixel_auroc=pixel.auroc,
                control_aupro=base_pixel.aupro,
                aupro=pixel.aupro,
            )
        )
    return rows
