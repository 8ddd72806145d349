"""The rule that makes a verdict of numbers."""

import math

import numpy as np
import pytest

from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED
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


def test_what_the_fit_does_not_span_is_not_judged_whatever_its_score():
    for score in (-5.0, 100.0):
        prediction = judged(score, strangeness=1.01, strange="does not look like the fitted part")
        assert (prediction.verdict, prediction.is_anomalous) == (NOT_JUDGED, False)
        assert prediction.explain() == "Not judged: does not look like the fitted part."
    assert judged(0.0, strangeness=1.0, strange="does not look like the fitted part").verdict == NORMAL
