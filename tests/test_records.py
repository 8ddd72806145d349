import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.records import FIELDS, RECORD_FIELDS, Geometry, InspectionRecord, Prediction, places, places_told

MAPS = {name: np.zeros((2, 2), np.float32) for name in ("map", "detection_map", "unfiltered_map")}
numbers = st.floats(-50, 50)
shares = st.floats(0, 1)
ABOUT = {
    "id": "1", "time": "2026-03-02T09:41:07.123Z", "image": "a.png", "sha256": "ab", "model": "part",
    "model_sha256": "cd", "false_alarm_rate": 0.01, "milliseconds": 12.3,
}  # fmt: skip


def prediction(score=1.0, threshold=2.0, unfiltered_score=3.0, unfiltered_threshold=2.0, **changes):
    given = {
        "gate": 0.25,
        "participation": 0.5,
        "nuisance_fraction": 0.75,
        "p_value": 0.125,
        "strangeness": 0.5,
        "moved": 0.005,
        **changes,
    }
    return Prediction(
        score=score, is_anomalous=score > threshold, threshold=threshold, unfiltered_score=unfiltered_score,
        unfiltered_threshold=unfiltered_threshold, **MAPS, **given,
    )  # fmt: skip


@given(numbers, numbers, numbers, numbers, st.dictionaries(st.sampled_from(["photometric", "sensor"]), shares))
def test_a_record_is_the_predictions_numbers_by_the_same_names(score, threshold, other, limit, families):
    judged = prediction(score, threshold, other, limit, nuisance_by_family=families, excess_filtered=0.5)
    record = InspectionRecord.of(judged, **ABOUT)
    assert record.verdict == ("anomalous" if score > threshold else "normal")
    assert record.unfiltered_verdict == ("anomalous" if other > limit else "normal")
    for name in set(RECORD_FIELDS) & {field.name for field in dataclasses.fields(Prediction)}:
        assert getattr(record, name) == getattr(judged, name)
    assert json.loads(json.dumps(record.as_dict(), allow_nan=False)) == record.as_dict()


@given(numbers, numbers)
def test_what_is_not_judged_is_so_in_either_arm_whatever_its_numbers(score, other):
    strange = prediction(score, unfiltered_score=other, why_not_judged="looks like nothing known", strangeness=3.0)
    record = InspectionRecord.of(strange, **ABOUT)
    assert record.verdict == record.unfiltered_verdict == "not judged" and record.is_readable
    assert record.explanation == "Not judged: looks like nothing known." and record.strangeness == 3.0
    assert all(getattr(record, name) is None for name in ("score", "p_value", "unfiltered_score", "excess_filtered"))
    assert (record.threshold, record.unfiltered_threshold, record.nuisance_fraction) == (2.0, 2.0, 0.75)


def test_a_record_has_all_that_is_neither_a_map_nor_a_place():
    names = {field.name for field in dataclasses.fields(Prediction)}
    assert names - set(MAPS) - {"is_anomalous", "why_not_judged", "normals", "geometry", "source"} <= set(RECORD_FIELDS)
    assert list(InspectionRecord.of(prediction(), **ABOUT).as_dict()) == list(RECORD_FIELDS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_none_in_a_record(value):
    broken = prediction(value, excess_filtered=value, nuisance_by_family={"sensor": value})
    record = InspectionRecord.of(broken, **ABOUT)
    assert record.score is None and record.excess_filtered is None and record.nuisance_by_family == {}


@pytest.mark.parametrize(
    ("score", "unfiltered_score", "words", "unfiltered"),
    [
        (3, 3, "Anomalous at the upper left: score 3.00, 1.00 above the threshold 2.00", "anomalous, too"),
        (3, 1, "Anomalous at the upper left: score 3.00, 1.00 above the threshold 2.00", "normal"),
        (1, 3, "Normal: score 1.00, 1.00 below the threshold 2.00, highest at the upper left", "anomalous"),
        (1, 1, "Normal: score 1.00, 1.00 below the threshold 2.00, highest at the upper left", "normal, too"),
    ],
)
def test_the_sentence_says_where_how_far_and_what_the_filter_changed(score, unfiltered_score, words, unfiltered):
    said = prediction(score, unfiltered_score=unfiltered_score).explain()
    assert said.startswith(f"{words}; unfiltered it is {unfiltered}. ")
    told = prediction(score, unfiltered_score=unfiltered_score, nuisance_by_family={"sensor": 0.1, "background": 0.6})
    assert told.explain().endswith(
        "75% of the deviation is acquisition-like, mostly background-like, and was filtered out."
    )
    families = {"sensor": 0.1, "photometric": 0.2}
    lamp = prediction(1, unfiltered_score=3, excess_filtered=0.9, nuisance_by_family=families)
    assert lamp.explain().endswith("90% of its excess over normal parts was filtered out, mostly illumination-like.")
    for told in (0.004, math.nan):
        none = prediction(1, unfiltered_score=3, excess_filtered=told, nuisance_by_family=families)
        assert "of the deviation is" in none.explain() and "excess" not in none.explain()
    one = prediction(score, unfiltered_score=unfiltered_score, nuisance_by_family={"photometric": 0.75})
    assert one.explain().endswith("75% of the deviation is illumination-like and was filtered out.")


@given(st.integers(0, 8), st.integers(30, 100), st.integers(30, 100))
def test_a_spot_is_where_it_is_in_the_photo(field, height, width):
    view, (row, column) = np.zeros((12, 12)), divmod(field, 3)
    view[4 * row + 1, 4 * column + 2] = 5.0
    whole = Geometry(height, width, 0, 0, height, width)
    assert places(view, 3.0) == places(view, 3.0, whole) == places(view, 9.0, whole) == [FIELDS[field]]
    assert places(view, -1.0)[0] == FIELDS[field] and len(places(view, -1.0)) == 9


def test_the_rim_of_a_spot_names_no_other_field():
    """One that lies in the centre and reaches a little into three more."""
    y, x = np.mgrid[:90, :90]
    view = np.exp(-((y - 52) ** 2 + (x - 52) ** 2) / (2 * 7.0**2))
    assert len({(row // 30, column // 30) for row, column in np.argwhere(view > 0.1)}) == 4
    assert places(view, 0.1) == ["centre"]


def test_a_centre_crop_sees_the_middle_of_the_photo():
    view = np.eye(3)[[2, 1, 0]]  # from the lower left to the upper right
    assert places(view, 0.5, Geometry(300, 300, 100, 100, 100, 100)) == ["centre"]
    assert set(places(view, 0.5)) == {"lower left", "centre", "upper right"}


def test_several_places_are_told_and_many_are_counted():
    assert places_told(["top"]) == "at the top"
    assert places_told(["left", "top", "centre"]) == "at the left, the top and the centre"
    assert places_told(["left", "top", "centre", "right"]) == "in 4 of 9 fields of the photo, most at the left"
