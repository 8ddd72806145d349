import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nfad import NfadError
from nfad.stats.intervals import rate_interval
from nfad.stress.axes import AXES
from nfad.stress.findings import (
    ENDS,
    LEAST_FOUND,
    NEAR,
    default_limit,
    first_above,
    first_blind,
    judge,
    least_hits,
    require,
)
from nfad.stress.measure import Step
from nfad.stress.words import as_dict, as_rows, sentence

COUNT = 24
THRESHOLDS = {"unfiltered": 1.0, "filtered": 2.0}
EXPOSURE, BLUR = AXES["exposure"], AXES["blur"]


def step(alarms=(0, 0), found=(COUNT, COUNT), refused=(0, 0)):
    """So many of the images flagged, first without and then with the filter; so many normals and defects not judged."""

    def scores(flagged, unjudged):
        counts = zip(THRESHOLDS.items(), flagged, (0, unjudged))  # only the filtered arm knows a third verdict
        return {
            arm: (math.nan,) * none + (level + 1,) * hits + (level,) * (COUNT - hits - none)
            for (arm, level), hits, none in counts
        }

    return Step(scores(alarms, refused[0]), scores(found, refused[1]))


def findings(axis, changed, rate=0.01, **more):
    """Nothing flagged and all found, save where told otherwise."""
    steps = {("", 0.0): changed.get(0, step())} | {(axis.name, s): changed.get(s, step()) for s in axis.strengths}
    return judge(steps, {axis.name: axis}, [f"{i}.png" for i in range(COUNT)], THRESHOLDS, rate, **more)


def told(found):
    """How far it holds; what was counted there is in the sentences after."""
    whole = sentence(found, found.curves[0])
    return whole.partition(" Counted with the filter, ")[0]


@given(st.integers(2, 60), st.floats(0.01, 0.9))
def test_the_fewest_hits_that_show_a_break_are_the_fewest(images, limit):
    hits = least_hits(images, limit)
    lows = [rate_interval(each, images).low for each in range(images + 1)]
    assert all(low <= limit for low in (lows if hits is None else lows[:hits]))
    assert hits is None or lows[hits] > limit


@given(st.lists(st.integers(0, COUNT), min_size=1, max_size=6), st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_a_higher_limit_never_brings_a_break_nearer(hits, one, other):
    rates = [rate_interval(each, COUNT) for each in hits]
    low, high = (first_above(rates, limit) for limit in sorted((one, other)))
    assert (math.inf if low is None else low) <= (math.inf if high is None else high)
    for limit, place in ((min(one, other), low), (max(one, other), high)):
        assert place is None or (rates[place].low > limit and all(rate.low <= limit for rate in rates[:place]))


def stopped(count, of=10):
    return np.arange(of) < count


@given(st.lists(st.integers(0, COUNT), min_size=1, max_size=6))
@example([20, 16])  # exactly enough
def test_blind_is_clearly_less_than_is_stopped_as_it_is_or_next_to_nothing(hits):
    place = first_blind([stopped(each, COUNT) for each in hits])
    if place is not None:
        assert hits[place] < max(NEAR * hits[0], LEAST_FOUND * COUNT) and (place == 0 or hits[0] - hits[place] > 1)
    for each in hits[:place]:
        assert each > hits[0] - 4 or each >= NEAR * hits[0]
        assert each >= LEAST_FOUND * COUNT or each > hits[0] - 2


@pytest.mark.parametrize(("as_it_is", "now", "blind"), [(3, 2, False), (4, 3, False), (10, 7, False), (10, 6, True)])
def test_of_ten_defects_one_miss_is_no_failure_and_four_are(as_it_is, now, blind):
    assert (first_blind([stopped(as_it_is), stopped(now)]) == 1) == blind


def test_what_is_gained_speaks_against_what_is_lost_and_of_a_few_all_may_be_lost():
    assert first_blind([stopped(6), ~stopped(6)]) is None  # six lost, four gained
    assert first_blind([stopped(3, 3), stopped(0, 3)]) == 1 and first_blind([stopped(0), stopped(9)]) == 0


rates = st.tuples(*[st.integers(0, COUNT)] * 4).map(
    lambda four: step((0, four[0]), (COUNT, four[1]), (min(four[2], COUNT - four[0]), min(four[3], COUNT - four[1])))
)


@given(st.lists(rates, min_size=len(EXPOSURE.strengths) + 1, max_size=len(EXPOSURE.strengths) + 1))
def test_it_never_holds_where_defects_are_missed_good_parts_flagged_or_nothing_is_judged(steps):
    """Whatever the curves: as far as it holds, both errors are small and parts are judged."""
    found = findings(EXPOSURE, dict(zip((0, *EXPOSURE.strengths), steps)))
    usual = found.normal.stopped("filtered")
    for side in found.both(EXPOSURE, "filtered"):
        for point in found.curves[0].outwards(side.side):
            if side.ends == 0 or abs(point.strength) > abs(side.holds):
                break
            arm = point.arms["filtered"]
            assert arm.false_alarms.low <= found.limit and arm.good_not_judged.low <= found.limit
            left = 1 - arm.passed.value
            assert left >= max(NEAR * usual, LEAST_FOUND) or round((usual - left) * COUNT) < 4
        assert (side.ends is None) == (side.why == "") == all(getattr(side, name) is None for name in ENDS)
    whole = all(side.ends is None for side in found.both(EXPOSURE, "filtered"))
    assert whole == ("all that was tried" in sentence(found, found.curves[0]).partition(";")[0])


def test_the_limit_is_three_times_the_rate_and_at_least_5_percent():
    assert default_limit(0.001) == 0.05 and default_limit(0.05) == pytest.approx(0.15)


def test_rates_are_counted_above_the_threshold_and_not_at_it():
    found = findings(BLUR, {2: step((7, 3), (20, 12))})
    point = found.curves[0].at(2)
    assert point.alarms["unfiltered"] == rate_interval(7, COUNT) and point.alarms["filtered"] == rate_interval(3, COUNT)
    assert point.found["unfiltered"] == rate_interval(20, COUNT) and point.found["filtered"] == rate_interval(12, COUNT)


def test_sentences_say_how_far_it_holds_and_what_ends_it_with_the_filter_and_without():
    all_, none = COUNT, 0
    changed = {s: step((all_, none)) for s in (-2, -1, -0.5, 0.5, 1)} | {2: step((all_, all_))}
    found = findings(EXPOSURE, changed)
    flagged = ENDS["breaks"]
    assert told(found) == (
        f"Holds from −2 to +1 stops (at +2 stops {flagged}); without the filter from −0.25 to +0.25 stops "
        f"(at −0.5 stops {flagged}; at +0.5 stops {flagged})."
    )
    assert [side.breaks for side in found.both(EXPOSURE, "filtered")] == [None, 2]
    assert [side.breaks for side in found.both(EXPOSURE, "unfiltered")] == [-0.5, 0.5]
    assert told(findings(BLUR, {3: step((all_, none))})) == (
        f"Holds up to 3 px, all that was tried; without the filter up to 2 px (at 3 px {flagged})."
    )
    first = {s: step((all_, none)) for s in (-0.25, 0.25)}
    assert told(findings(EXPOSURE, first)).endswith(
        "without the filter it ends at the weakest strength tried, "
        f"−0.25 stops ({flagged}) and +0.25 stops ({flagged})."
    )
    assert told(findings(EXPOSURE, {})) == "Holds from −2 to +2 stops, all that was tried, with and without the filter."
    assert told(findings(EXPOSURE, {0: step((all_, all_))})) == (
        f"Does not hold even for unchanged photos: {flagged}, with and without the filter."
    )


def test_sentences_tell_both_errors_and_what_is_not_judged_as_it_is_and_at_the_ends():
    found = findings(BLUR, {0: step(found=(COUNT, 18)), 3: step((COUNT, 6), (COUNT, 12), (12, 6))})
    assert sentence(found, found.curves[0]).endswith(
        " Counted with the filter, unchanged: 0% of good parts flagged, 75% of defects found, "
        "0% of good parts not judged; "
        "at 3 px: 25% of good parts flagged, 50% of defects found, 50% of good parts not judged (25% of defects). "
        "Without the filter, unchanged: 0% of good parts flagged, 100% of defects found; "
        "at 3 px: 100% of good parts flagged, 100% of defects found."
    )


def test_what_holds_only_for_want_of_images_is_told():
    assert told(findings(BLUR, {1: step((0, 3))})).endswith(
        "At 1 px 12% are flagged, 0% as they are: more images would tell whether that is luck."
    )
    assert "luck" not in told(findings(BLUR, {1: step((0, 1))}))
    assert "luck" not in told(findings(BLUR, {1: step((0, COUNT))}))  # that is no luck
    assert "luck" not in told(findings(BLUR, {1: step((0, COUNT)), 2: step((0, 3))}))  # beyond the break


def test_what_is_flagged_as_it_is_is_not_laid_to_the_condition():
    four = {0: step((0, 4))}
    every = {strength: step((0, 4)) for strength in (0, *EXPOSURE.strengths)}
    for changed in (four, every):
        assert told(findings(EXPOSURE, changed)).endswith(
            "Within that no more are flagged than as they are, 17%: more images would tell whether that is luck."
        )
        assert "At " not in told(findings(EXPOSURE, changed))
    assert " At 1 px 17% are flagged, 12% as they are: " in told(findings(BLUR, {0: step((0, 3)), 1: step((0, 4))}))


def test_what_breaks_once_does_not_hold_beyond():
    found = findings(EXPOSURE, {0.5: step((0, COUNT))})
    assert found.side(EXPOSURE, 1, "filtered").breaks == 0.5 and found.side(EXPOSURE, 1, "filtered").holds == 0.25


def test_a_filter_that_sees_nothing_any_more_does_not_hold():
    found = findings(EXPOSURE, {2: step((0, 0), (COUNT, 1)), -2: step((0, 0), (COUNT, 20))})
    assert told(found).startswith(
        "Holds from −2 to +1 stops (at +2 stops too many defects missed); without the filter from"
    )
    assert require(found, {"exposure": 1}) == []
    assert require(found, {"exposure": 2}) == ["Exposure: too many defects missed at +2 stops; +2 stops is required."]
    assert found.side(EXPOSURE, 1, "filtered").blind == found.side(EXPOSURE, 1, "filtered").ends == 2
    assert found.side(EXPOSURE, -1, "filtered").ends is None  # 20 of 24 is near enough


def test_a_model_that_finds_nothing_as_it_is_holds_nowhere():
    found = findings(BLUR, {strength: step(found=(COUNT, 0)) for strength in (0, *BLUR.strengths)})
    assert told(found).startswith(
        "Does not hold even for unchanged photos: too many defects missed; without the filter it holds"
    )
    assert found.side(BLUR, 1, "filtered").ends == 0


def test_a_defect_that_is_not_judged_is_not_missed_and_a_good_part_not_flagged():
    """All defects refused, no good part: as good as found. Good parts refused as well: it judges nothing."""
    stopped = findings(BLUR, {2: step(found=(COUNT, 0), refused=(0, COUNT))})
    assert stopped.side(BLUR, 1, "filtered").ends is None
    idle = findings(BLUR, {2: step(found=(COUNT, 0), refused=(COUNT, COUNT))})
    side = idle.side(BLUR, 1, "filtered")
    assert (side.breaks, side.blind, side.refuses, side.why) == (None, None, 2, "too many good parts not judged")
    assert require(idle, {"blur": 2}) == ["Blur: too many good parts not judged at 2 px; 2 px is required."]
    point = idle.curves[0].at(2)
    assert point.alarms["filtered"].value == point.arms["filtered"].verdict_error == 0
    assert point.not_judged["filtered"] == rate_interval(COUNT, COUNT)
    assert point.not_judged["unfiltered"].value == 0


def test_a_requirement_is_met_only_if_both_sides_hold_within_it():
    found = findings(EXPOSURE, {-1: step((0, COUNT))})
    assert require(found, {"exposure": 0.5}) == [] and require(found, {}) == []
    assert require(found, {"exposure": 1}) == [
        "Exposure: too many good parts flagged at −1 stops; −1 stops is required."
    ]


def test_the_nearest_break_comes_first_whatever_its_unit():
    axes = {"exposure": EXPOSURE, "blur": BLUR}
    steps = {(axis.name, s): step() for axis in axes.values() for s in axis.strengths} | {("", 0.0): step()}
    steps |= {("exposure", 2): step((0, COUNT)), ("blur", 1): step((0, COUNT)), ("exposure", -1): step((COUNT, 0))}
    found = judge(steps, axes, ["a"] * COUNT, THRESHOLDS, 0.01)
    assert [(side.axis.name, side.side, side.told()) for side in found.sides()] == [
        ("blur", 1, "1 px"), ("exposure", 1, "+2 stops"), ("exposure", -1, "holds to −2 stops"),
    ]  # fmt: skip


def test_machines_get_every_rate_with_its_interval_and_every_break():
    found = findings(BLUR, {3: step((COUNT, 0))})
    rows = as_rows(found)
    assert len(rows) == 2 * (len(BLUR.strengths) + 1)
    assert all(row["false_alarms_low"] <= row["false_alarms"] <= row["false_alarms_high"] for row in rows)
    sides = {side["arm"]: side for side in as_dict(found)["axes"]["blur"]["sides"]}
    assert sides["unfiltered"]["breaks"] == 3
    assert sides["filtered"]["breaks"] is sides["filtered"]["ends"] is None and sides["filtered"]["holds"] == 3
    assert sides["unfiltered"]["ends"] == 3 and sides["unfiltered"]["why"] == ENDS["breaks"]
    assert all(row["found_low"] <= row["found"] <= row["found_high"] for row in rows)
    assert all(row["not_judged_low"] <= row["not_judged"] == row["defects_not_judged"] == 0 for row in rows)
    assert all(row["verdict_error"] == (row["false_alarms"] + 1 - row["found"]) / 2 for row in rows)


def test_too_few_images_and_odd_limits_are_refused_in_a_sentence():
    steps = {("", 0.0): step()} | {("blur", s): step() for s in BLUR.strengths}
    with pytest.raises(NfadError, match="2 images cannot show a false-alarm rate above 30%.*give more normals"):
        judge(steps, {"blur": BLUR}, ["a", "b"], THRESHOLDS, 0.1)
    for limit in (0, 1, -0.1, math.nan):
        with pytest.raises(NfadError, match="the limit must lie between 0 and 1"):
            findings(BLUR, {}, limit=limit)


def test_judging_changes_nothing_it_was_given():
    axis = replace(BLUR, strengths=(1.0,))
    steps = {("", 0.0): step(), ("blur", 1.0): step()}
    before = dict(steps)
    judge(steps, {"blur": axis}, ["a"] * COUNT, THRESHOLDS, 0.01)
    assert steps == before
