"""Slow: the promise on real images, where they are."""

from pathlib import Path

import numpy as np
import pytest

from nfad import Config, Detector
from nfad.evaluation.metrics import image_metrics
from nfad.vision.images import load_image

BOTTLE = Path(__file__).parents[2] / "shared" / "data" / "mvtec_256" / "bottle"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BOTTLE.exists(), reason=f"needs MVTec bottle in {BOTTLE}"),
]


def test_bottle_is_told_apart_in_the_dark_and_without_false_alarms():
    detector = Detector.fit(sorted((BOTTLE / "train/good").iterdir()), Config.preset("embedded", false_alarm_rate=0.05))
    test = sorted((BOTTLE / "test").glob("*/*"))
    labels = np.array([path.parent.name != "good" for path in test])
    for gain in (1.0, 0.5):
        judged = detector.predict([(load_image(path) * gain).astype(np.uint8) for path in test])
        assert image_metrics([p.score for p in judged], labels).auroc > 0.97
        assert np.mean([p.is_anomalous for p in np.array(judged, dtype=object)[~labels]]) <= 0.15
