import numpy as np
import pytest
from parts import part, tiny
from PIL import Image

from nfad import Detector, NfadError
from nfad.evaluation.evaluate import EVERYWHERE, evaluate, load_mask
from nfad.evaluation.metrics import image_metrics, pixel_metrics
from nfad.records import Sample


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("set"), []
    for index in range(16):
        defect, domain = index % 2 == 1, "dark" if index >= 8 else "same"
        path, mask = root / f"{index}.png", root / f"{index}_mask.png"
        Image.fromarray((part(100 + index, 80, defect) * (0.5 if domain == "dark" else 1)).astype(np.uint8)).save(path)
        truth = np.zeros((80, 80), np.uint8)
        truth[40:53, 40:53] = 255
        Image.fromarray(truth).save(mask)
        made.append(Sample(path, defect, "square" if defect else "good", domain, mask if defect else None))
    return made


def test_rows_are_the_metrics_of_the_predictions(samples):
    detector = Detector.fit([part(i, 80) for i in range(20)], tiny(false_alarm_rate=0.2))
    seen = []
    rows = evaluate(detector, samples, lambda sample, prediction: seen.append((sample, prediction)))
    assert [row.domain for row in rows] == ["same", "dark", EVERYWHERE]
    assert [(row.good, row.bad) for row in rows] == [(4, 4), (4, 4), (8, 8)]
    dark = [(s, p) for s, p in seen if s.domain == "dark"]
    labels = [s.anomalous for s, _ in dark]
    assert rows[1].auroc == image_metrics([p.score for _, p in dark], labels).auroc
    assert rows[1].control_auroc == image_metrics([p.control_score for _, p in dark], labels).auroc
    good = [p for s, p in dark if not s.anomalous]
    assert rows[1].false_alarms == np.mean([p.is_anomalous for p in good])
    masks = np.stack([load_mask(s, 64) for s, _ in dark])
    assert rows[1].aupro == pixel_metrics(np.stack([p.map for _, p in dark]), masks).aupro
    assert rows[1].gain.low <= rows[1].auroc - rows[1].control_auroc <= rows[1].gain.high


def test_masks_follow_the_view(samples):
    assert not load_mask(samples[0], 64).any()
    mask = load_mask(samples[1], 160)
    assert mask[80:105, 80:105].all() and mask.sum() == 26 * 26


def test_a_cropped_view_is_refused(samples):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(resize=72))
    with pytest.raises(NfadError, match="resize=None"):
        evaluate(detector, samples)
