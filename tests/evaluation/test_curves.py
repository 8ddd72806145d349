import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sk

from nfad.errors import NfadError
from nfad.evaluation.curves import pro_curve, roc_curve, thinned
from nfad.evaluation.metrics import FPR_LIMIT, image_metrics, pixel_metrics

few_values = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, 2.0])


@st.composite
def labelled(draw):
    images = draw(st.integers(2, 30))
    scores = draw(hnp.arrays(np.float64, images, elements=few_values | st.floats(-5, 5)))
    return scores, np.arange(images) < draw(st.integers(1, images - 1))


@st.composite
def maps_and_masks(draw):
    shape = draw(st.integers(1, 4)), draw(st.integers(2, 8)), draw(st.integers(2, 8))
    maps = draw(hnp.arrays(np.float32, shape, elements=few_values | st.floats(-4, 4, width=32)))
    masks = draw(hnp.arrays(np.bool_, shape))
    masks[0, 0, :2] = True, False
    return maps, masks


def area(x, y):
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


@given(labelled())
def test_the_corners_are_those_of_scikit_learn(data):
    scores, labels = data
    fpr, tpr = roc_curve(scores, labels)
    expected_fpr, expected_tpr, _ = sk.roc_curve(labels, scores, drop_intermediate=False)
    # Every point of theirs lies on our line, and every corner of ours is one of their points.
    assert area(fpr, tpr) == pytest.approx(sk.roc_auc_score(labels, scores))
    assert {(x, y) for x, y in zip(fpr, tpr)} <= {(x, y) for x, y in zip(expected_fpr, expected_tpr)}
    for x, y in zip(expected_fpr, expected_tpr):
        at = np.flatnonzero(fpr == x)
        low, high = (tpr[at[0]], tpr[at[-1]]) if len(at) else (np.interp(x, fpr, tpr),) * 2
        assert low - 1e-12 <= y <= high + 1e-12


@given(labelled())
def test_a_roc_rises_from_corner_to_corner_without_a_point_too_many(data):
    fpr, tpr = roc_curve(*data)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    right, up = np.diff(fpr), np.diff(tpr)
    assert (right >= 0).all() and (up >= 0).all() and (right + up > 0).all()
    assert (np.abs(right[:-1] * up[1:] - up[:-1] * right[1:]) > 1e-9).all()


@given(labelled())
def test_the_area_is_the_auroc(data):
    assert area(*roc_curve(*data)) == pytest.approx(image_metrics(*data).auroc, abs=1e-12)


def test_separated_and_constant_scores_have_the_fewest_corners():
    labels = np.array([False, False, True, True])
    assert [list(side) for side in roc_curve([0.0, 1.0, 2.0, 3.0], labels)] == [[0, 0, 1], [0, 1, 1]]
    assert [list(side) for side in roc_curve([1.0, 1.0, 1.0, 1.0], labels)] == [[0, 1], [0, 1]]


def test_without_both_classes_there_is_no_curve():
    assert not any(map(len, roc_curve([1.0, 2.0], [True, True])))
    assert not any(map(len, roc_curve([1.0, 2.0], [False, False])))
    assert not any(map(len, pro_curve(np.zeros((1, 2, 2)), np.zeros((1, 2, 2), bool))))
    assert not any(map(len, pro_curve(np.zeros((1, 2, 2)), np.ones((1, 2, 2), bool))))
    assert not any(map(len, thinned(np.zeros(0), np.zeros(0))))


@settings(deadline=None)
@given(maps_and_masks(), st.integers(2, 300))
def test_the_pro_curve_s_area_is_the_aupro_within_its_bound(data, points):
    x, y = pro_curve(*data, points=points)
    assert len(x) == len(y) == points
    assert x[0] == 0 and x[-1] == pytest.approx(FPR_LIMIT)
    assert (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all() and y[0] >= 0 and y[-1] <= 1
    assert abs(area(x, y) / FPR_LIMIT - pixel_metrics(*data).aupro) <= 1 / (2 * (points - 1)) + 1e-9


@given(maps_and_masks())
def test_thinning_what_is_thin_changes_little(data):
    once = pro_curve(*data, points=100)
    twice = thinned(*once, points=100)
    assert abs(area(*once) - area(*twice)) / FPR_LIMIT <= 1 / (2 * 99) + 1e-9


def test_a_curve_that_goes_on_is_cut_at_the_limit():
    x, y = thinned(np.array([0.0, 0.1, 1.0]), np.array([0.0, 0.9, 1.0]), points=50, limit=0.5)
    assert x[-1] == 0.5
    assert y[-1] == pytest.approx(0.9 + 0.1 * 4 / 9)


def test_arguments_are_checked_and_not_modified():
    scores, labels = np.array([3.0, 1.0, 2.0]), np.array([True, False, True])
    maps, masks = np.arange(8.0).reshape(2, 2, 2), np.arange(8).reshape(2, 2, 2) % 3 == 0
    before = [array.copy() for array in (scores, labels, maps, masks)]
    roc_curve(scores, labels)
    pro_curve(maps, masks)
    assert all(map(np.array_equal, before, (scores, labels, maps, masks)))
    with pytest.raises(NfadError, match="same length"):
        roc_curve(scores, labels[:2])
    with pytest.raises(NfadError, match="as many"):
        pro_curve(maps, masks[:1])
