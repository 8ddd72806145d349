import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from nfad.errors import NfadError
from nfad.evaluation.metrics import pixel_metrics
from nfad.evaluation.streaming import StreamingPixelMetrics, monotone_bits

METRICS = ("auroc", "ap", "f1_max", "aupro")
FLOAT32_MAX = float(np.finfo(np.float32).max)

# What binning can get wrong: ties, neighbours one bit apart, both zeros, denormals, the type's whole range at once.
NASTY = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, float(np.nextafter(np.float32(1), np.float32(2))), -1.0, 1e-45, -1e-45]),
    st.floats(1.0, 1.0 + 1e-5),
    st.floats(-FLOAT32_MAX, FLOAT32_MAX, width=32),
)


@st.composite
def streams(draw, dtype=np.float32, elements=NASTY):
    shapes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4))
    maps = [draw(hnp.arrays(np.float64, shape, elements=elements)).astype(dtype) for shape in shapes]
    return maps, [draw(hnp.arrays(bool, shape)) for shape in shapes]


def streamed(maps, masks, bins=2**20):
    stream = StreamingPixelMetrics(bins)
    for score_map, mask in zip(maps, masks):
        stream.update(score_map, mask)
    return stream


def assert_bounds_hold(stream, maps, masks):
    exact, result, bounds = pixel_metrics(maps, masks), stream.result(), stream.bounds()
    for name in METRICS:
        low, high = getattr(bounds, name)
        for value in (getattr(exact, name), getattr(result, name)):
            assert (math.isnan(value) and math.isnan(low) and math.isnan(high)) or low <= value <= high, name


def realistic(images=24, size=64, seed=0):
    rng = np.random.default_rng(seed)
    maps = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 3, 3))
    masks = ndimage.gaussian_filter(rng.normal(size=(images, size, size)), (0, 4, 4)) > 0.12
    masks[::2] = False
    return (0.4 + maps + 0.3 * ndimage.gaussian_filter(masks.astype(float), (0, 1, 1))).astype(np.float32), masks


@settings(max_examples=120, deadline=None)
@given(case=streams(), bins=st.sampled_from([256, 512, 768, 4096]))
def test_bounds_hold_whatever_comes(case, bins):
    assert_bounds_hold(streamed(*case, bins), *case)


@settings(max_examples=60, deadline=None)
@given(case=streams(np.float64, st.one_of(NASTY, st.floats(-1e300, 1e300), st.floats(0.1, 0.1 + 1e-9))))
def test_bounds_hold_for_float64_finer_and_wider_than_float32(case):
    assert_bounds_hold(streamed(*case, 256), *case)


@settings(max_examples=60, deadline=None)
@given(case=streams(elements=st.sampled_from([1.0, 1.0 + 2**-23, 1.0 + 2**-15])), bins=st.sampled_from([256, 1024]))
def test_equal_scores_are_exact_while_each_has_its_bin(case, bins):
    maps, masks = case
    stream = streamed(maps, masks, bins)
    assert_bounds_hold(stream, maps, masks)
    if bins == 1024:
        widths = [high - low for low, high in stream.bounds().as_dict().values() if not math.isnan(low)]
        assert max(widths, default=0.0) < 1e-12


def test_realistic_maps_are_within_a_ten_thousandth():
    maps, masks = realistic()
    assert_bounds_hold(stream := streamed(maps, masks), maps, masks)
    exact, result, bounds = pixel_metrics(maps, masks), stream.result(), stream.bounds()
    for name in METRICS:
        assert getattr(result, name) == pytest.approx(getattr(exact, name), abs=1e-4)
        low, high = getattr(bounds, name)
        assert high - low < 1e-3
    assert 0.5 < exact.aupro < 0.99


def test_scores_far_from_zero_keep_their_resolution():
    maps, masks = realistic()
    maps = maps / 100 + 100
    bounds = streamed(maps, masks).bounds()
    assert all(high - low < 1e-9 for low, high in bounds.as_dict().values())


def test_bounds_are_reached():
    """Two scores in one bin: the other order is as possible, and the bounds are no wider than these two."""
    mask = np.array([[True, False]])
    low_first, high_first = np.array([[1.0, 1.1]]), np.array([[1.1, 1.0]])
    far = np.array([[-1e30, 1e30]])
    masks = [mask, np.zeros((1, 2), dtype=bool)]
    exact = [pixel_metrics([pair, far], masks) for pair in (low_first, high_first)]
    for pair in (low_first, high_first):
        bounds = streamed([pair, far], masks, bins=256).bounds()
        for name in METRICS:
            assert getattr(bounds, name) == pytest.approx([getattr(exact[0], name), getattr(exact[1], name)])
    assert exact[0].auroc == pytest.approx(1 / 3) and exact[1].auroc == pytest.approx(2 / 3)


def test_a_spike_of_equal_scores_costs_nothing():
    """Half the pixels clipped to 0: one bin holds them all, and knows that they are equal."""
    maps, masks = realistic()
    maps = np.maximum(maps - np.float32(0.4), 0)
    assert 0.3 < (maps == 0).mean() < 0.7 and (maps[masks] == 0).any()
    stream = streamed(maps, masks, bins=2**14)
    assert stream._shift > 0
    assert_bounds_hold(stream, maps, masks)
    low, high = stream.bounds().auroc
    assert high - low < 1e-3


@settings(max_examples=40, deadline=None)
@given(case=streams(), seed=st.integers(0, 99))
def test_bounds_hold_in_any_order_of_arrival(case, seed):
    maps, masks = case
    order = np.random.default_rng(seed).permutation(len(maps))
    assert_bounds_hold(streamed([maps[i] for i in order], [masks[i] for i in order], 512), maps, masks)


@settings(max_examples=80, deadline=None)
@given(case=streams(), bins=st.sampled_from([256, 512, 2**14]), data=st.data())
def test_two_streams_merged_are_one(case, bins, data):
    maps, masks = case
    cut = data.draw(st.integers(0, len(maps)))
    merged = streamed(maps[:cut], masks[:cut], bins).merge(streamed(maps[cut:], masks[cut:], bins))
    one = streamed(maps, masks, bins)
    assert merged._shift == one._shift
    rounding = {"abs": 1e3 * np.finfo(float).eps, "nan_ok": True}  # overlaps are added in another order
    for found, wanted in ((merged.result(), one.result()), (merged.bounds(), one.bounds())):
        for name in METRICS:
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), **rounding)


@settings(max_examples=80, deadline=None)
@given(
    case=streams(np.float64, st.one_of(NASTY, st.floats(0.1, 0.1 + 1e-9))),
    bins=st.permutations([256, 512, 2**14]),
    cut=st.integers(0, 4),
)
def test_bounds_hold_when_streams_of_other_sizes_are_merged(case, bins, cut):
    maps, masks = case
    total = StreamingPixelMetrics(bins[0])
    for size, part in zip(bins[1:], (slice(cut), slice(cut, None))):
        total = total.merge(streamed(maps[part], masks[part], size))
    assert_bounds_hold(total, maps, masks)


def test_merging_leaves_both_alone_and_goes_on():
    maps, masks = realistic()
    parts = streamed(maps[:6], masks[:6], 2**14), streamed(maps[6:12], masks[6:12], 2**14)
    before = [(part.result(), part.bounds()) for part in parts]
    both = parts[0].merge(parts[1])
    for score_map, mask in zip(maps[12:], masks[12:]):
        both.update(score_map, mask)
    assert [(part.result(), part.bounds()) for part in parts] == before
    assert_bounds_hold(both, maps, masks)
    assert both.result().auroc == streamed(maps, masks, 2**14).result().auroc


def test_memory_does_not_grow():
    maps, masks = realistic(images=8)
    stream = StreamingPixelMetrics(bins=4096)
    stream.update(maps[0], masks[0])
    before = stream._mass.nbytes
    for score_map, mask in zip(maps * np.float32(1e6), masks):
        stream.update(score_map, mask)
    assert stream._mass.nbytes == before == 3 * 8 * 4096
    assert not any(isinstance(value, list) for value in vars(stream).values())


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, 8, elements=st.floats(-FLOAT32_MAX, FLOAT32_MAX, width=32)))
def test_keys_keep_the_order(scores):
    keys = monotone_bits(scores)
    for relation in (np.less, np.equal):
        assert np.array_equal(relation.outer(scores, scores), relation.outer(keys, keys))


def test_both_zeros_share_a_key():
    keys = monotone_bits(np.array([0.0, -0.0, 1e-45, -1e-45], dtype=np.float32))
    assert keys[0] == keys[1] and keys[3] < keys[0] < keys[2]


def test_inputs_are_left_alone():
    maps, masks = realistic(images=2)
    kept = maps.copy(), masks.copy()
    streamed(maps, masks)
    assert np.array_equal(maps, kept[0]) and np.array_equal(masks, kept[1])


def test_one_class_is_nan():
    stream = streamed(np.ones((2, 3, 3)), np.zeros((2, 3, 3), dtype=bool))
    assert all(math.isnan(getattr(stream.result(), name)) for name in METRICS)
    assert all(math.isnan(low) and math.isnan(high) for low, high in stream.bounds().as_dict().values())


def test_errors_name_the_image():
    stream = StreamingPixelMetrics()
    with pytest.raises(NfadError, match="call update"):
        stream.result()
    stream.update(np.zeros((2, 2)), np.eye(2, dtype=bool))
    with pytest.raises(NfadError, match=r"maps\[1\] is nan at row 0, column 1"):
        stream.update(np.array([[0.0, np.nan]]), np.array([[True, False]]))
    with pytest.raises(NfadError, match=r"\(2, 2\) and \(2, 3\)"):
        stream.update(np.zeros((2, 2)), np.zeros((2, 3), dtype=bool))
    assert stream.result().auroc == 0.5  # a refused map leaves no trace
    with pytest.raises(NfadError, match="multiple of 256, at least one; got 1"):
        StreamingPixelMetrics(bins=1)
