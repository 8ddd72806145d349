import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from references import metrics as slow
from scipy import ndimage
from sklearn import metrics as sklearn_metrics

from nfad.errors import NfadError
from nfad.evaluation import metrics
from nfad.evaluation.metrics import PROTOCOLS, image_metrics, pixel_metrics

QUICK = settings(max_examples=60, deadline=None)
CLOSE = {"rel": 0, "abs": 1e3 * np.finfo(float).eps, "nan_ok": True}  # sums of fewer than 1000 numbers in [0, 1]

# Few distinct values, so that ties within and across classes are the rule; 0.0 and -0.0 are one value.
TIED = st.sampled_from([-2.0, -0.0, 0.0, 0.5, 1.0, 1.0 + 2**-23, 3e30])


@st.composite
def scored_images(draw, elements=TIED):
    count = draw(st.integers(1, 30))
    scores = draw(hnp.arrays(np.float64, count, elements=elements))
    return scores, draw(hnp.arrays(bool, count))


@st.composite
def scored_maps(draw, elements=TIED, dtype=np.float32):
    images = draw(st.integers(1, 3))
    shapes = [draw(st.tuples(st.integers(1, 5), st.integers(1, 6))) for _ in range(images)]
    maps = [draw(hnp.arrays(dtype, shape, elements=elements.map(dtype))) for shape in shapes]
    return maps, [draw(hnp.arrays(bool, shape)) for shape in shapes]


def flat(arrays):
    return np.concatenate([a.ravel() for a in arrays])


def values(found):
    return [value for value in found.as_dict().values() if not isinstance(value, str)]


def realistic(images=6, size=48, seed=0):
    """Smooth float32 maps, some with defects that score higher; masks of several regions."""
    rng = np.random.default_rng(seed)
    maps = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 2, 2))
    masks = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 3, 3)) > 0.15
    masks[::3] = False
    return (0.3 + maps / 4 + 0.2 * ndimage.gaussian_filter(masks.astype(float), (0, 1, 1))).astype(np.float32), masks


@QUICK
@given(scored_images())
def test_image_metrics_follow_their_definitions(case):
    scores, labels = case
    found = image_metrics(scores, labels)
    assert found.auroc == pytest.approx(slow.auroc(scores, labels), **CLOSE)
    assert found.ap == pytest.approx(slow.average_precision(scores, labels), **CLOSE)
    assert found.f1_max == pytest.approx(slow.f1_max(scores, labels), **CLOSE)


@QUICK
@given(scored_images(st.floats(-1e6, 1e6)))
def test_image_metrics_agree_with_scikit_learn(case):
    scores, labels = case
    assume(labels.any() and not labels.all())
    found = image_metrics(scores, labels)
    precision, recall, _ = sklearn_metrics.precision_recall_curve(labels, scores)
    with np.errstate(invalid="ignore"):
        best = np.nanmax(2 * precision * recall / (precision + recall))
    assert found.auroc == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores), **CLOSE)
    assert found.ap == pytest.approx(sklearn_metrics.average_precision_score(labels, scores), **CLOSE)
    assert found.f1_max == pytest.approx(best, **CLOSE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25, deadline=None)
@given(case=scored_maps())
def test_aupro_follows_its_definition(protocol, case):
    maps, masks = case
    found = pixel_metrics(maps, masks, protocol)
    assert found.aupro == pytest.approx(slow.aupro(maps, masks, protocol), **CLOSE)
    assert found.protocol == protocol


@QUICK
@given(scored_maps())
def test_pixels_are_scored_as_one_long_list(case):
    maps, masks = case
    found = pixel_metrics(maps, masks)
    pooled = image_metrics(flat(maps), flat(masks))
    assert (found.auroc, found.ap, found.f1_max) == pytest.approx((pooled.auroc, pooled.ap, pooled.f1_max), **CLOSE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_realistic_maps(protocol):
    maps, masks = realistic(images=3, size=16)
    found = pixel_metrics(maps, masks, protocol)
    assert found.aupro == pytest.approx(slow.aupro(maps, masks, protocol), **CLOSE)
    assert found.auroc == pytest.approx(sklearn_metrics.roc_auc_score(masks.ravel(), maps.ravel()), **CLOSE)
    assert found.ap == pytest.approx(sklearn_metrics.average_precision_score(masks.ravel(), maps.ravel()), **CLOSE)
    assert 0.5 < found.aupro < 1.0


def test_the_protocols_differ_on_the_same_maps():
    maps, masks = realistic()
    found = [pixel_metrics(maps, masks, protocol).aupro for protocol in ("mvtec", "dinomaly", "mmr")]
    assert len({round(value, 4) for value in found}) == 3
    assert max(found) - min(found) < 0.1


def test_dinomaly_loses_what_ader_stretches():
    """Normal pixels at the very top: no threshold reaches FPR 0, and only ADer moves the first point there."""
    normal = np.repeat([0.0, 0.4, 0.999], [80, 15, 5])
    maps, masks = np.append(normal, [1.0, 0.5]).reshape(1, 1, -1), np.arange(102).reshape(1, 1, -1) >= 100
    assert pixel_metrics(maps, masks, "dinomaly").aupro == pytest.approx((0.20 - 0.05) / 0.20)
    assert pixel_metrics(maps, masks, "ader").aupro == pytest.approx(1.0)


@pytest.mark.parametrize("protocol", ["dinomaly", "ader", "mmr"])
def test_scores_on_a_step_are_not_above_it_and_the_limit_is_not_below_itself(protocol):
    """Thresholds fall on the whole numbers 0..199; the FPR is 3 / 10, exactly the limit, between 50 and 100."""
    maps = np.array([[[0, 0, 10, 20, 30, 40, 50, 100, 150, 200, 90, 150, 160]]], dtype=float)
    masks = np.arange(13).reshape(maps.shape) >= 10
    assert pixel_metrics(maps, masks, protocol).aupro == pytest.approx(slow.aupro(maps, masks, protocol), **CLOSE)


def test_diagonal_neighbours_are_one_region():
    mask = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    weight, regions = metrics.region_weights(mask)
    assert regions == 1 and weight.tolist() == [0.5, 0.5]


def test_a_small_region_counts_as_much_as_a_large_one():
    maps, masks = np.zeros((1, 10, 10)), np.zeros((1, 10, 10), dtype=bool)
    masks[0, :4, :5] = masks[0, 9, 9] = True
    maps[0, :4, :5] = 1.0  # the large one found, the single pixel lost among the normal ones
    assert pixel_metrics(maps, masks).aupro == pytest.approx(0.5 + 0.5 * 0.3 / 2)


def test_a_perfect_detector_scores_one_and_never_more():
    _, masks = realistic()
    found = pixel_metrics(masks.astype(np.float32), masks)
    assert (found.auroc, found.ap, found.f1_max) == (1.0, 1.0, 1.0)
    assert 1.0 - 1e-12 < found.aupro <= 1.0


@QUICK
@given(scored_maps(st.integers(-20, 20).map(float)))
def test_a_monotone_transform_changes_nothing(case):
    """In protocol mvtec; evenly spaced thresholds do depend on the scale."""
    maps, masks = case
    before = pixel_metrics(maps, masks)
    after = pixel_metrics([m.astype(np.float64) ** 3 - 7.0 for m in maps], masks)
    assert values(before) == pytest.approx(values(after), **CLOSE)


@QUICK
@given(case=scored_maps(), seed=st.integers(0, 99))
def test_the_order_of_images_changes_nothing(case, seed):
    maps, masks = case
    order = np.random.default_rng(seed).permutation(len(maps))
    before = pixel_metrics(maps, masks)
    after = pixel_metrics([maps[i] for i in order], [masks[i] for i in order])
    assert values(before) == pytest.approx(values(after), **CLOSE)


def test_float64_is_not_rounded():
    scores = np.array([1.0, 1.0 + 1e-12])
    assert image_metrics(scores, [False, True]).auroc == 1.0
    assert pixel_metrics(scores.reshape(1, 1, 2), [[[False, True]]]).auroc == 1.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
def test_any_real_dtype(dtype):
    maps, masks = realistic()
    maps = np.round(maps * 100).astype(dtype)
    assert pixel_metrics(maps, masks) == pixel_metrics(maps.astype(np.float64), masks)


def test_inputs_are_left_alone():
    maps, masks = realistic()
    kept_maps, kept_masks = maps.copy(), masks.copy()
    for protocol in PROTOCOLS:
        pixel_metrics(maps, masks, protocol)
    image_metrics(maps.ravel(), masks.ravel())
    assert np.array_equal(maps, kept_maps) and np.array_equal(masks, kept_masks)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_one_class_leaves_undefined_is_nan(protocol):
    maps = np.arange(8.0).reshape(2, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normal = pixel_metrics(maps, np.zeros(maps.shape, dtype=bool), protocol)
        anomalous = pixel_metrics(maps, np.ones(maps.shape, dtype=bool), protocol)
    assert all(math.isnan(v) for v in (normal.auroc, normal.ap, normal.f1_max, normal.aupro))
    assert math.isnan(anomalous.auroc) and math.isnan(anomalous.aupro)
    assert anomalous.ap == anomalous.f1_max == 1.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_constant_maps(protocol):
    masks = np.eye(4, dtype=bool)[None]
    found = pixel_metrics(np.full(masks.shape, 0.7), masks, protocol)
    assert found.auroc == 0.5
    assert found.aupro == pytest.approx(0.15) if protocol == "mvtec" else math.isnan(found.aupro)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_named(bad):
    maps, masks = realistic()
    maps[4, 5, 6] = bad
    with pytest.raises(NfadError, match=r"maps\[4\] is -?(nan|inf) at row 5, column 6"):
        pixel_metrics(maps, masks)
    with pytest.raises(NfadError, match=r"scores\[1\] is"):
        image_metrics([0.0, bad, bad], [0, 1, 1])


@pytest.mark.parametrize(
    ("maps", "masks", "message"),
    [
        ([], [], "at least 1"),
        (np.zeros((2, 3, 3)), np.zeros((1, 3, 3), dtype=bool), "2 maps and 1 masks"),
        (np.zeros((1, 3, 3)), np.zeros((1, 3, 4), dtype=bool), r"\(3, 3\) and \(3, 4\)"),
        (np.zeros((1, 0, 3)), np.zeros((1, 0, 3), dtype=bool), "non-empty"),
        (np.zeros((1, 3)), np.zeros((1, 3), dtype=bool), "2-d"),
        (np.zeros((1, 3, 3)), np.full((1, 3, 3), 255, dtype=np.uint8), r"masks\[0\] must hold only true and false"),
        (np.zeros((1, 3, 3), dtype=complex), np.zeros((1, 3, 3), dtype=bool), "real numbers"),
    ],
)
def test_bad_maps_are_refused_in_one_sentence(maps, masks, message):
    with pytest.raises(NfadError, match=message):
        pixel_metrics(maps, masks)


@pytest.mark.parametrize(("scores", "labels"), [([], []), ([1.0, 2.0], [True]), ([[1.0]], [[True]])])
def test_bad_scores_are_refused(scores, labels):
    with pytest.raises(NfadError, match="same length, at least 1"):
        image_metrics(scores, labels)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(NfadError, match="mvtec, dinomaly, ader, mmr; got 'pro'"):
        pixel_metrics(np.zeros((1, 2, 2)), np.zeros((1, 2, 2), dtype=bool), "pro")
