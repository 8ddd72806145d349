import numpy as np
import pytest

from nfad.drift import words
from nfad.drift.state import VERDICTS, Answer
from nfad.evaluation.intervals import rate_interval


def test_a_family_is_named_and_measured_against_the_fit():
    found = words.nuisance_effect("nuisance:photometric", np.array([0.1, 0.1, 0.9]), np.array([0.23, 0.0, 5.0]))
    assert found == "the illumination-like share of the deviation is 2.3× the fit's median"
    assert "of none" not in words.nuisance_effect("nuisance:own", np.array([0.2]), np.array([0.1]))
    assert "own share" in words.nuisance_effect("nuisance:own", np.array([0.2]), np.array([0.1]))
    assert "0.1 at the median instead of none" in words.nuisance_effect("nuisance:x", np.zeros(3), np.full(3, 0.1))


def test_the_control_score_may_be_negative():
    found = words.nuisance_effect("control_score", np.array([-1.0]), np.array([2.5]))
    assert found == "the score without the filter is 2.5 at the median instead of -1"


def test_bulk_by_hand():
    found = words.bulk_effect(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 5.0, 6.0]))
    assert found == "parts score 4.5 at the median instead of 2, 75% of them above it"


def test_flagged_with_its_interval():
    interval = rate_interval(7, 100)
    found = words.tail_effect(1.0, 0.01, np.array([2.0] * 7 + [1.0] * 93))
    assert found.startswith("flagged 7.0% of 100 parts") and found.endswith("instead of 1.0%")
    assert f"{interval.low:.1%} to {interval.high:.1%}" in found


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_sentence_for_every_verdict(verdict):
    answers = [Answer(name, True, 2.0, 1200, ("score",), f"<{name}>") for name in ("nuisance", "bulk", "tail")]
    found = words.sentence(verdict, 1200, 2400, *answers)
    assert found.endswith(".") and found[0].isupper()
    if verdict == "steady":
        assert "2,400 parts" in found and "<" not in found
    else:
        assert "since about part 1,200" in found
        assert ("<tail>" in found) == (verdict != "acquisition drift, absorbed by the filter")
        assert ("<bulk>" in found) == (verdict == "drift the filter does not absorb")
