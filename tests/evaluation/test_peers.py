"""Other people's AUPRO on the same maps. Neither peer is needed to work on nfad; benchmarks/metrics.py says how to
install both, in an environment of their own."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from nfad.evaluation.metrics import pixel_metrics
from nfad.evaluation.streaming import StreamingPixelMetrics

EPS32 = float(np.finfo(np.float32).eps)
TOP = 1024  # adeval's edges are multiples of 1 / TOP of the range in float32: whole numbers up to TOP are exact


@pytest.fixture(scope="module")
def anomalib_aupro():
    """maps, masks → float. The metric itself, without the wrapper that wants a batch with its images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says on import is not ours to mend
        aupro = pytest.importorskip("anomalib.metrics.aupro", exc_type=ImportError)
        torch = pytest.importorskip("torch")

    def compute(maps, masks):
        metric = aupro._AUPRO()
        for index in range(len(maps)):
            metric.update(torch.from_numpy(maps[index : index + 1]), torch.from_numpy(masks[index : index + 1]).float())
        return float(metric.compute())

    return compute


@pytest.fixture(scope="module")
def adeval():
    found = pytest.importorskip("adeval", exc_type=ImportError)
    if not hasattr(np, "trapz"):
        pytest.skip("adeval calls np.trapz, which NumPy dropped in 2.4")
    return found


def whole_numbers():
    """Maps of a few scores below TOP, so that ties between classes and images are the rule."""
    shape = st.tuples(st.integers(1, 3), st.integers(8, 9), st.integers(8, 9))  # adeval treats smaller maps differently
    return shape.flatmap(
        lambda s: st.tuples(
            hnp.arrays(np.float32, s, elements=st.sampled_from([0.0, 1.0, 5.0, 6.0, 512.0, 1023.0])),
            hnp.arrays(bool, s),
        )
    )


def smooth(images=12, size=64, seed=0):
    rng = np.random.default_rng(seed)
    maps = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 3, 3))
    masks = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 4, 4)) > 0.12
    masks[::2] = False
    return (0.4 + maps + 0.3 * ndimage.gaussian_filter(masks.astype(float), (0, 1, 1))).astype(np.float32), masks


@settings(max_examples=60, deadline=None)
@given(case=whole_numbers())
def test_anomalib_on_ties_and_odd_regions(anomalib_aupro, case):
    maps, masks = case
    masks[:, 0, 0] = False  # see the next test but one
    assume(masks.any())
    # It sums fewer than 300 terms in float32.
    assert anomalib_aupro(maps, masks) == pytest.approx(pixel_metrics(maps, masks).aupro, abs=300 * EPS32)


def test_anomalib_on_smooth_maps(anomalib_aupro):
    maps, masks = smooth()
    found, bounds = pixel_metrics(maps, masks).aupro, streamed(maps, masks).bounds().aupro
    assert 0.5 < found < 0.99
    theirs = anomalib_aupro(maps, masks)
    assert theirs == pytest.approx(found, abs=64 * EPS32)  # pairwise sums: rounding grows with log n
    assert bounds[0] - 64 * EPS32 <= theirs <= bounds[1] + 64 * EPS32


def test_anomalib_takes_an_image_that_is_anomalous_throughout_for_a_normal_one(anomalib_aupro):
    """It drops the lowest label of each image as the background's, also where there is none."""
    maps, masks = np.zeros((2, 4, 4), dtype=np.float32), np.zeros((2, 4, 4), dtype=bool)
    masks[0] = masks[1, 0, 0] = True
    maps[0], maps[1, 0, 0] = 2.0, 1.0
    assert pixel_metrics(maps, masks).aupro == pytest.approx(1.0)  # every anomalous pixel above every normal one
    masks[0] = False
    assert anomalib_aupro(maps, maps > 0) == pytest.approx(pixel_metrics(maps, masks).aupro, abs=64 * EPS32)


@pytest.mark.parametrize("value", [False, True])
def test_anomalib_calls_zero_what_is_undefined(anomalib_aupro, value):
    """Why ours is NaN: a 0 among a table's categories lowers their mean without a word."""
    maps = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    masks = np.full(maps.shape, value)
    assert anomalib_aupro(maps, masks) == 0.0
    assert np.isnan(pixel_metrics(maps, masks).aupro)


@settings(max_examples=60, deadline=None)
@given(case=whole_numbers())
def test_adeval_where_each_value_has_a_strip(adeval, case):
    maps, masks = case
    # Both ends of the range occur. The highest score is an anomaly's: adeval's curve starts there, not at (0, 0).
    maps[0, 0, :2], masks[0, 0, :2] = (0.0, TOP), (False, True)
    auroc, _, aupro = adeval.auroc_aupr_aupro(maps, masks.astype(np.uint8), nstrips=TOP)
    found = pixel_metrics(maps, masks)
    assert auroc == pytest.approx(found.auroc, abs=1e3 * np.finfo(float).eps)
    assert aupro == pytest.approx(found.aupro, abs=64 * EPS32)  # its region weights are float32


def test_adeval_on_smooth_maps(adeval):
    maps, masks = smooth()
    auroc, _, aupro = adeval.auroc_aupr_aupro(maps, masks.astype(np.uint8))
    found = pixel_metrics(maps, masks)
    assert auroc == pytest.approx(found.auroc, abs=1e-4)
    assert aupro == pytest.approx(found.aupro, abs=1e-4)


def streamed(maps, masks):
    stream = StreamingPixelMetrics()
    for score_map, mask in zip(maps, masks):
        stream.update(score_map, mask)
    return stream
