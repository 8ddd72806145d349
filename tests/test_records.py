import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.records import Prediction

MAPS = {name: np.zeros((2, 2), np.float32) for name in ("map", "detection_map", "unfiltered_map")}
numbers = st.floats(-50, 50)
shares = st.floats(0, 1)


def prediction(score=1.0, threshold=2.0, unfiltered_score=3.0, unfiltered_threshold=2.0, **changes):
    given = {"gate": 0.25, "participation": 0.5, "nuisance_fraction": 0.75, "p_value": 0.125, **changes}
    return Prediction(
        score=score, is_anomalous=score > threshold, threshold=threshold, unfiltered_score=unfiltered_score,
        unfiltered_threshold=unfiltered_threshold, **MAPS, **given,
    )  # fmt: skip


@given(numbers, numbers, numbers, numbers, st.dictionaries(st.sampled_from(["photometric", "sensor"]), shares))
def test_facts_are_the_fields_of_the_same_name_and_two_verdicts(score, threshold, control, limit, families):
    judged = prediction(score, threshold, control, limit, nuisance_by_family=families, excess_filtered=0.5)
    facts = judged.facts()
    assert facts.pop("verdict") == ("anomalous" if score > threshold else "normal")
    assert facts.pop("unfiltered_verdict") == ("anomalous" if control > limit else "normal")
    assert facts == {name: getattr(judged, name) for name in facts}


def test_facts_are_all_that_is_neither_a_map_nor_a_place():
    names = {field.name for field in dataclasses.fields(Prediction)}
    verdicts = {"verdict", "unfiltered_verdict"}
    assert set(prediction().facts()) == names - set(MAPS) - {"is_anomalous", "geometry", "source"} | verdicts


def test_facts_are_a_copy():
    families = {"photometric": 0.5}
    prediction(nuisance_by_family=families).facts()["nuisance_by_family"].clear()
    assert families == {"photometric": 0.5}


@pytest.mark.parametrize(
    ("score", "unfiltered_score", "words"),
    [
        (3, 3, "Anomalous, with and without the filter"),
        (3, 1, "Anomalous; only the filtered view shows it"),
        (1, 3, "Normal; would have been rejected without the filter"),
        (1, 1, "Normal, with and without the filter"),
    ],
)
def test_the_sentence_says_what_the_filter_changed(score, unfiltered_score, words):
    assert prediction(score, unfiltered_score=unfiltered_score).explain().startswith(words)
    told = prediction(score, unfiltered_score=unfiltered_score, nuisance_by_family={"sensor": 0.1, "background": 0.6})
    assert told.explain().endswith(
        "75% of the deviation is acquisition-like, mostly background-like, and was filtered out."
    )
    families = {"sensor": 0.1, "photometric": 0.2}
    lamp = prediction(1, unfiltered_score=3, excess_filtered=0.9, nuisance_by_family=families)
    assert lamp.explain().endswith("90% of its excess over normal parts was filtered out, mostly illumination-like.")
    one = prediction(score, unfiltered_score=unfiltered_score, nuisance_by_family={"photometric": 0.75})
    assert one.explain().endswith("75% of the deviation is illumination-like and was filtered out.")
