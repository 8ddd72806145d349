import dataclasses

import numpy as np
import pytest
from parts import part, tiny
from PIL import Image

from nfad import Detector, NfadError
from nfad.evaluation.evaluate import evaluate
from nfad.evaluation.metrics import image_metrics, pixel_metrics
from nfad.evaluation.tally import EVERYWHERE, METRICS, mask_of
from nfad.records import Geometry
from nfad.vision.corruptions import Corruption


@pytest.fixture(scope="module")
def samples(in_two_lights):
    return in_two_lights(16, 0.5)


@pytest.fixture(scope="module")
def detector():
    """It is to err in the dark, where a developed photo would look as in the light."""
    return Detector.fit([part(i, 80) for i in range(20)], tiny(false_alarm_rate=0.2, developed=False))


def test_rows_are_the_metrics_of_the_predictions(detector, samples):
    seen = []
    found = evaluate(detector, samples, on_result=lambda sample, prediction: seen.append((sample, prediction)))
    assert [row.domain for row in found.rows] == ["same", "dark", EVERYWHERE]
    assert [(row.good, row.bad) for row in found.rows] == [(4, 4), (4, 4), (8, 8)]
    assert found.pixel_error == 0 and found.without_mask == 0
    for row in found.rows:
        here = [(s, p) for s, p in seen if row.domain in (s.domain, EVERYWHERE)]
        labels = [s.anomalous for s, _ in here]
        ours, control, full = (row.arms[arm] for arm in ("filtered", "unfiltered", "full"))
        assert ours.i_auroc == image_metrics([p.score for _, p in here], labels).auroc
        assert control.i_ap == image_metrics([p.unfiltered_score for _, p in here], labels).ap
        assert ours.false_alarms == np.mean([p.is_anomalous for s, p in here if not s.anomalous])
        assert control.detections == np.mean([p.unfiltered_is_anomalous for s, p in here if s.anomalous])
        masks = np.stack([mask_of(s, p.geometry, 64) for s, p in here])
        assert ours.aupro == pixel_metrics(np.stack([p.map for _, p in here]), masks).aupro
        assert full.p_ap == pixel_metrics(np.stack([p.map for _, p in here]), masks).ap
        for metric in ("i_auroc", "p_auroc", "aupro"):
            gain = row.gains[metric]
            assert gain.value == getattr(ours, metric) - getattr(control, metric)
            assert gain.low <= gain.value <= gain.high
            low, high = ours.intervals[metric]
            assert low <= getattr(ours, metric) <= high


def test_streaming_gives_the_same_within_its_bound(detector, samples, monkeypatch):
    exact = evaluate(detector, samples)
    monkeypatch.setattr("nfad.evaluation.pixels.HELD", 0)
    streamed = evaluate(detector, samples)
    for a, b in zip(exact.rows, streamed.rows):
        for arm in a.arms:
            for metric in METRICS:
                difference = abs(getattr(a.arms[arm], metric) - getattr(b.arms[arm], metric))
                assert difference <= streamed.pixel_error + 1e-12
    with pytest.raises(NfadError, match="only protocol 'mvtec' streams"):
        evaluate(detector, samples, protocol="mmr")


def test_a_corruption_is_applied_to_every_view_and_repeats(detector, samples):
    plain = evaluate(detector, samples)
    twice = [evaluate(detector, samples, corruption=Corruption("gaussian_noise", 5)) for _ in range(2)]
    scores = [[image.score for image in each.images] for each in (plain, *twice)]
    assert scores[1] == scores[2]
    assert all(a != b for a, b in zip(scores[0], scores[1]))


def test_bad_images_without_a_mask_are_left_out_of_the_pixel_metrics(detector, samples):
    some = [dataclasses.replace(s, mask=None) if i == 1 else s for i, s in enumerate(samples)]
    left, without = evaluate(detector, some), evaluate(detector, [s for i, s in enumerate(samples) if i != 1])
    assert left.without_mask == 1
    assert left.rows[-1].arms["filtered"].p_auroc == without.rows[-1].arms["filtered"].p_auroc
    none = evaluate(detector, [dataclasses.replace(s, mask=None) for s in samples])
    assert np.isnan(none.rows[0].arms["filtered"].aupro) and np.isnan(none.rows[0].gains["p_auroc"].low)


def test_masks_follow_the_view(samples, tmp_path):
    whole = Geometry(80, 80, 0, 0, 80, 80)
    assert not mask_of(samples[0], whole, 64).any()
    mask = mask_of(samples[1], whole, 160)
    assert mask[80:105, 80:105].all() and mask.sum() == 26 * 26
    # a centre crop of 40..56: the defect fills all but its last three rows and columns
    cropped = mask_of(samples[1], Geometry(80, 80, 40, 40, 16, 16), 16)
    assert cropped[:13, :13].all() and cropped.sum() == 169
    numbered = np.zeros((80, 80), np.uint8)
    numbered[:40], numbered[40:60] = 1, 3
    Image.fromarray(numbered).save(tmp_path / "classes.png")
    classes = dataclasses.replace(samples[1], mask=tmp_path / "classes.png")
    assert mask_of(classes, whole, 80).sum() == 60 * 80


def test_a_mask_in_a_format_that_other_programs_would_open_is_refused(samples, tmp_path):
    Image.new("L", (80, 80)).save(tmp_path / "mask.png", "EPS")
    with pytest.raises(NfadError, match=r"the mask .*mask\.png of .* cannot be read"):
        mask_of(dataclasses.replace(samples[1], mask=tmp_path / "mask.png"), Geometry(80, 80, 0, 0, 80, 80), 64)


def test_a_cropped_view_is_measured_where_the_model_looks(samples):
    detector = Detector.fit([part(i, 80) for i in range(12)], tiny(resize=72))
    found = evaluate(detector, samples, readout="detection")
    assert found.rows[-1].arms["filtered"].p_auroc == found.rows[-1].arms["full"].p_auroc


@pytest.mark.parametrize("changes", [{"readout": "unfiltered"}, {"protocol": "best"}])
def test_unknown_choices_are_named(detector, samples, changes):
    with pytest.raises(NfadError, match=f"{next(iter(changes))} must be one of"):
        evaluate(detector, samples, **changes)


def test_an_empty_test_set_is_refused(detector):
    with pytest.raises(NfadError, match="empty"):
        evaluate(detector, [])


def test_a_photo_that_is_not_judged_is_neither_flagged_nor_passed(detector, samples, refusing):
    """Good and bad of the dark are refused: no error of the filtered arm is left there, and the ranking stays."""
    plain = evaluate(detector, samples)
    dark = {sample.path for sample in samples if sample.domain == "dark"}
    found = evaluate(refusing(detector, dark.__contains__), samples)
    assert plain.rows[1].arms["unfiltered"].verdict_error > 0  # else nothing is shown below
    for before, after in zip(plain.rows, found.rows):
        refused = {"same": 0, "dark": 4, EVERYWHERE: 4}[after.domain]
        ours, control = after.arms["filtered"], after.arms["unfiltered"]
        assert (ours.good_not_judged, ours.bad_not_judged) == (refused, refused)
        assert control == before.arms["unfiltered"] and (control.good_not_judged, control.bad_not_judged) == (0, 0)
        assert ours.i_auroc == before.arms["filtered"].i_auroc and ours.aupro == before.arms["filtered"].aupro
        low, high = ours.intervals["bad_not_judged"]
        assert low <= refused / after.bad <= high
    dark_arm = found.rows[1].arms["filtered"]
    assert dark_arm.false_alarms == dark_arm.detections == dark_arm.verdict_error == 0
    assert [image.why_not_judged != "" for image in found.images] == [sample.path in dark for sample in samples]


def test_a_photo_without_a_finite_score_is_not_judged_and_ranked_by_no_arm(detector, samples, refusing, monkeypatch):
    bad = next(sample for sample in samples if sample.anomalous)
    broken = refusing(detector, lambda path: path == bad.path, score=np.nan)
    rest = evaluate(detector, [sample for sample in samples if sample is not bad])
    for held in (2**28, 0):
        monkeypatch.setattr("nfad.evaluation.pixels.HELD", held)
        found = evaluate(broken, samples)
        ours = found.rows[0].arms["filtered"]
        assert found.without_score == 1 and ours.bad_not_judged == 1
        assert ours.i_auroc == rest.rows[0].arms["filtered"].i_auroc
        alone = evaluate(broken, [bad]).rows[0].arms["filtered"]
        assert alone.bad_not_judged == 1 and alone.detections == 0 and np.isnan(alone.i_auroc)
