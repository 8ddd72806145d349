import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nfad.evaluation.curves import NOTHING, pro_curve, roc_curve
from nfad.report.charts import (
    BINS,
    NEAR,
    Line,
    bins_for,
    histogram,
    pro_chart,
    roc_chart,
    round_step,
    score_axis,
    tallest_share,
)
from nfad.report.drawing import Frame, coordinate

NASTY = "<script>alert(1)</script>\"'&\x00\ud800"
scores = hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(-50, 500) | st.sampled_from([0.0, 4.0]))


def parsed(svg):
    assert "nan" not in svg.lower() and "inf" not in svg.lower()
    return ElementTree.fromstring(svg)


def drawn(svg, style):
    """Points of the curve of that style, in the drawing's units; the legend's stroke is relative and no curve."""
    (line,) = [
        path.get("d") for path in parsed(svg).iter("path") if path.get("class") == style and "L" in path.get("d")
    ]
    return np.array([[float(number) for number in point.split()] for point in line[1:].split("L")])


def bars(svg, kind):
    found = [box for box in parsed(svg).iter("rect") if box.get("class") == kind]
    return [(*(float(box.get(side)) for side in ("x", "width", "height")), box.find("title").text) for box in found]


def both(values, labels, **more):
    return [Line(name, name, roc_curve(values, labels), 0.8, **more) for name in ("unfiltered", "filtered")]


@given(st.integers(2, 60), st.integers(0, 10**6))
def test_a_roc_has_a_point_for_each_corner_and_never_turns_back(images, seed):
    random = np.random.default_rng(seed)
    values, labels = random.normal(size=images).round(1), np.arange(images) % 2 == 0
    svg = roc_chart("same", both(values, labels))
    for style in ("unfiltered", "filtered"):
        points = drawn(svg, style)
        assert len(points) == len(roc_curve(values, labels)[0])
        assert (np.diff(points[:, 0]) >= 0).all() and (np.diff(points[:, 1]) <= 0).all()  # SVG counts y downwards


def test_a_curve_runs_from_corner_to_corner_of_its_frame():
    labels = np.array([False, False, True, True])
    points = drawn(roc_chart("same", both([1.0, 2.0, 3.0, 4.0], labels)), "filtered")
    (left, bottom), (right, top) = points[0], points[-1]
    assert points.tolist() == [[left, bottom], [left, top], [right, top]]
    maps, masks = np.arange(50.0).reshape(2, 5, 5), np.arange(50).reshape(2, 5, 5) > 40
    pro = drawn(pro_chart("same", [Line("filtered", "filtered", pro_curve(maps, masks, points=37), 1.0)]), "filtered")
    assert len(pro) == 37
    assert pro[-1].tolist() == [right, top]  # all defects found at the limit, which is the frame's right side


def test_the_arms_differ_in_more_than_colour_and_are_told_in_words():
    lines = [
        Line("unfiltered", "unfiltered", roc_curve([1.0, 2.0], [False, True]), 0.75, mark=(0.5, 1.0)),
        Line("filtered", "filtered", roc_curve([1.0, 2.0], [False, True]), 0.875, mark=(0.0, 0.25)),
    ]
    root = parsed(roc_chart("dark", lines))
    assert root.find("title").text == root.get("aria-label") == "ROC, dark"
    told = root.find("desc").text
    for words in (
        "unfiltered (dashed): AUROC 0.750",
        "filtered (solid): AUROC 0.875",
        "unfiltered at its threshold: 50% of good and 100% of bad flagged",
    ):
        assert words in told
    texts = [text.text for text in root.iter("text")]
    assert {"unfiltered 0.750", "filtered 0.875", "good images flagged", "bad images flagged"} <= set(texts)
    assert [circle.get("class") for circle in root.iter("circle")] == ["unfiltered", "filtered"]


def test_one_class_only_is_said_and_draws_no_curve():
    for labels in ([True, True], [False, False]):
        points = roc_curve([1.0, 2.0], labels)
        svg = roc_chart("same", [Line("filtered", "filtered", points, math.nan, (0.5, math.nan))])
        assert "needs good and bad images" in svg
        assert "filtered –" in svg
        assert not list(parsed(svg).iter("circle"))
        assert not [path for path in parsed(svg).iter("path") if path.get("class") == "chance"]
    assert "needs masks" in pro_chart("same", [Line("filtered", "filtered", NOTHING, math.nan)])


def test_text_from_strangers_stays_text_and_the_drawing_valid():
    lines = [Line(NASTY, "filtered", roc_curve([1.0, 2.0], [False, True]), 1.0, mark=(0.0, 1.0))]
    axis = score_axis(np.ones(2), [1.0])
    for svg in (
        roc_chart(NASTY, lines),
        pro_chart(NASTY, lines),
        histogram(NASTY, NASTY, np.ones(1), np.ones(1), 1.0, axis, 1.0),
    ):
        root = parsed(svg)
        assert not list(root.iter("script"))
        shown = NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
        assert shown in root.find("title").text
        svg.encode("utf-8")


@settings(deadline=None)
@given(scores, scores, st.floats(-40, 400))
def test_what_stands_right_of_the_threshold_is_what_was_flagged(good, bad, threshold):
    axis = score_axis(np.concatenate([good, bad]), [threshold])
    top = tallest_share([good, bad], axis, threshold)
    svg = histogram("same", "unfiltered", good, bad, threshold, axis, top)
    line = next(path for path in parsed(svg).iter("path") if path.get("class") == "threshold").get("d")
    at = float(re.match(r"M([-\d.]+) ", line)[1])
    for values, kind in ((good, "fine"), (bad, "flaw")):
        found = bars(svg, kind)
        counts = [int(title.split()[0]) for *_, title in found]
        assert sum(counts) == len(values)
        right = sum(count for count, (x, *_) in zip(counts, found) if x >= at)
        assert right == (values > threshold).sum()
        for count, (x, width, height, _) in zip(counts, found):
            assert x >= 48 - 0.1 and x + width <= 420 + 0.1
            assert height == pytest.approx(68 * count / len(values) / top, abs=0.06)
            assert height <= 68 + 0.1


@given(scores, scores)
def test_bins_of_two_histograms_on_one_axis_are_as_wide(first, second):
    axis = score_axis(np.concatenate([first, second]), [3.0, 5.0])
    widths = set()
    for values, threshold in ((first, 3.0), (second, 5.0)):
        svg = histogram("same", "x", values, values[:0], threshold, axis, 1.0)
        widths |= {width for _, width, *_ in bars(svg, "fine")}
    assert len(widths) <= 1


@pytest.mark.parametrize(
    "values",
    [np.full(9, 4.0), np.zeros(3), np.array([1e-9, 2e-9]), np.array([-3.0, 1e6]), np.zeros(0), np.array([3.0, 3.3])],
)
def test_odd_ranges_still_give_a_drawing_with_labels_apart(values):
    axis = score_axis(values, [math.nan])
    top = tallest_share([values], axis, math.nan)
    root = parsed(histogram("same", "unfiltered", values, values, math.nan, axis, top))
    assert "no threshold" in root.find("desc").text
    ticks = [text for text in root.iter("text") if re.fullmatch(r"-?[\d.e+-]+", text.text) and text.get("y") == "207"]
    places = [float(tick.get("x")) for tick in ticks]
    assert places
    assert all(b - a >= NEAR - 0.2 for a, b in zip(places, places[1:]))
    assert all(48 - 0.1 <= place <= 420.1 for place in places)


def test_a_tick_stands_where_its_score_is():
    axis = score_axis(np.array([1.0, 100.0]), [10.0])
    root = parsed(histogram("same", "x", np.array([1.0]), np.array([100.0]), 10.0, axis, 1.0))
    line = next(path.get("d") for path in root.iter("path") if path.get("class") == "threshold")
    (tick,) = [text for text in root.iter("text") if text.text == "10"]
    assert line.startswith(f"M{tick.get('x')} ")


def test_more_images_bear_more_bins():
    numbers = [bins_for(images) for images in (1, 20, 50, 90, 10_000)]
    assert numbers == sorted(numbers) and numbers[0] >= 10 and numbers[-1] == BINS


@given(st.floats(1e-9, 1e9))
def test_a_round_step_is_round_and_no_less(least):
    step = round_step(least)
    assert least <= step <= 2.5 * least
    assert float(f"{step:.2g}") == pytest.approx(step)


@given(st.lists(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 50)), max_size=4))
def test_no_bar_is_taller_than_its_plot(classes):
    axis = score_axis(np.concatenate([np.zeros(0), *classes]), [5.0])
    top = tallest_share(classes, axis, 5.0)
    assert 0 < top <= 1
    assert all(axis.bins(part, 5.0)[1].max() / len(part) <= top + 1e-9 for part in classes)


def test_a_frame_puts_its_values_at_its_sides():
    frame = Frame(left=10, top=5, width=100, height=50, first=2, last=4)
    assert (frame.x(2), frame.x(4), frame.y(0), frame.y(1)) == (10, 110, 55, 5)
    assert (frame.right, frame.bottom, frame.middle) == (110, 55, 60)
    assert coordinate(1.26) == "1.3" and coordinate(3.0) == "3"
