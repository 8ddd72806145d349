"""The rule that makes a verdict of numbers."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, Geometry
from nfad.verdict.prediction import Outputs, Rule
from nfad.verdict.threshold import Threshold

RULE = Rule.at(Threshold(tuple(map(float, range(20))), tuple(map(float, range(20)))), 0.1)
MAP = np.zeros((4, 4), np.float32)


def judged(score, unfiltered=0.0, **more):
    return RULE(Outputs(score, unfiltered, MAP, MAP, participation=0.5, nuisance_fraction=0.1, **more))


def test_above_its_threshold_a_part_is_anomalous():
    assert judged(RULE.threshold).verdict == NORMAL
    assert judged(RULE.threshold + 1e-9).verdict == ANOMALOUS


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("arm", ["score", "unfiltered"])
def test_a_score_that_is_no_number_is_never_normal(number, arm):
    prediction = judged(*((number, 0.0) if arm == "score" else (0.0, number)))
    assert prediction.verdict == NOT_JUDGED and not prediction.is_anomalous
    assert "no finite score" in prediction.explain()


def test_without_a_score_there_is_no_p_value_and_no_unfiltered_verdict_either():
    prediction = judged(math.nan)
    assert math.isnan(prediction.p_value) and prediction.unfiltered_verdict == NOT_JUDGED


def test_above_all_held_out_normals_the_p_value_is_the_smallest_there_is():
    prediction = judged(1000.0)
    assert prediction.normals == 20 and prediction.p_value == RULE.held_out.smallest_rate


STRANGE = "does not look like the fitted part"


@pytest.mark.parametrize(("score", "strangeness"), [(-5.0, 1.01), (19.0, 1.01), (19.0, 1.5), (19.1, 1.51), (1e6, 9.0)])
def test_what_the_fit_does_not_span_is_not_judged(score, strangeness):
    prediction = judged(score, strangeness=strangeness, strange=STRANGE)
    assert (prediction.verdict, prediction.is_anomalous) == (NOT_JUDGED, False)
    assert prediction.explain() == f"Not judged: {STRANGE}."


def test_what_the_fit_spans_is_judged():
    assert judged(0.0, strangeness=1.0, strange=STRANGE).verdict == NORMAL


@pytest.mark.parametrize("rate", [1 / 21, 0.1, 0.5, 0.9])
def test_a_little_outside_and_above_every_normal_is_a_defect_at_any_rate(rate):
    rule = Rule.at(RULE.held_out, rate)
    out = Outputs(19.1, 0.0, MAP, MAP, participation=0.5, nuisance_fraction=0.1, strangeness=1.5, strange=STRANGE)
    assert rule(out).verdict == ANOMALOUS


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_photo_of_another_shape_is_not_judged(one, other):
    """It would be stretched; a view, with no photo around it, is judged, and all is by a model that cannot tell."""
    low, high = sorted((one, other))
    rule = dataclasses.replace(RULE, ratios=(low, high))
    numbers = Outputs(0.0, 0.0, MAP, MAP, participation=0.5, nuisance_fraction=0.1)
    for ratio in (low * 0.99, low * 1.001, high * 1.01):
        geometry = Geometry(100, 100, 0, 0, 1.0, ratio)
        assert rule(numbers, geometry).is_judged == (low <= ratio <= high)
        assert rule(numbers).is_judged and RULE(numbers, geometry).is_judged
