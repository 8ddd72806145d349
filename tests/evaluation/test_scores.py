from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nfad.errors import NfadError
from nfad.evaluation.scores import Scores, grouped, worth_showing


@st.composite
def judged(draw):
    images = draw(st.integers(0, 40))
    values = hnp.arrays(np.float64, images, elements=st.floats(0, 10) | st.sampled_from([4.0, 5.0]))
    domains = draw(st.lists(st.sampled_from(["same", "dark", "blue"]), min_size=images, max_size=images))
    return Scores(draw(values), draw(values), draw(hnp.arrays(np.bool_, images)), domains, 4.0, 5.0)


def made(*rows):
    score, control, label, domain = zip(*rows)
    return Scores(score, control, label, domain, threshold=4.0, unfiltered_threshold=5.0)


def test_each_group_by_hand():
    scores = made(
        (4.5, 9.0, False, "same"),  # both flag a good part
        (3.0, 5.1, False, "same"),  # silenced
        (3.0, 9.0, False, "same"),  # silenced, and the control was surer
        (4.0, 5.0, False, "same"),  # at the threshold is not above it
        (9.0, 1.0, False, "same"),  # only the filter flags a good part
        (3.0, 5.0, True, "same"),  # missed by both
        (1.0, 2.0, True, "same"),  # missed by both, further off
        (3.0, 6.0, True, "same"),  # lost
        (5.0, 3.0, True, "same"),  # found
        (5.0, 6.0, True, "same"),  # right either way
    )
    assert {name: list(members) for name, members in grouped(scores).items()} == {
        "false_alarms": [4, 0],
        "misses": [6, 5],
        "lost": [7],
        "silenced": [2, 1],
        "found": [8],
        "not_judged": [],
    }


@given(judged())
def test_groups_are_the_images_on_which_someone_errs_each_once(scores):
    flagged, control = scores.score > scores.threshold, scores.unfiltered_score > scores.unfiltered_threshold
    members = [index for group in grouped(scores).values() for index in group.tolist()]
    assert sorted(members) == np.flatnonzero((flagged != scores.label) | (control != scores.label)).tolist()


@given(judged(), st.data())
def test_what_is_not_judged_is_in_its_own_group_and_in_no_other(scores, data):
    is_judged = data.draw(hnp.arrays(np.bool_, len(scores.label)))
    one = replace(scores, judged=is_judged, score=np.where(is_judged, scores.score, np.nan))
    groups = grouped(one)
    assert sorted(groups.pop("not_judged").tolist()) == np.flatnonzero(~is_judged).tolist()
    before = grouped(scores)
    for name, members in groups.items():
        assert members.tolist() == [index for index in before[name].tolist() if is_judged[index]]


@given(judged(), st.integers(1, 8))
def test_no_domain_hides_another_and_the_order_is_the_group_s(scores, shown):
    chosen = worth_showing(scores, shown)
    for name, members in grouped(scores).items():
        picked, ranks = chosen[name], {index: place for place, index in enumerate(members.tolist())}
        assert len(picked) == min(shown, len(members))
        assert picked == sorted(picked, key=ranks.__getitem__)
        counts = {domain: sum(scores.domain[index] == domain for index in picked) for domain in scores.domain[members]}
        for domain, count in counts.items():
            of_domain = [index for index in members.tolist() if scores.domain[index] == domain]
            assert [index for index in picked if scores.domain[index] == domain] == of_domain[:count]
            # One that has more to show is not passed over for one that already shows more.
            assert len(of_domain) == count or count >= max(counts.values()) - 1


def test_a_row_is_about_its_domain_or_all():
    scores = made((1, 1, False, "same"), (1, 1, True, "dark"))
    assert scores.of("dark").tolist() == [False, True]
    assert scores.of("all").tolist() == [True, True]
    assert not scores.of("mean").any()
    assert scores.by_arm("unfiltered")[1] == 5.0 and scores.by_arm("filtered")[1] == 4.0


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(NfadError, match="as many"):
        Scores([1.0], [1.0, 2.0], [True], ["same"], 1.0, 1.0)
    with pytest.raises(NfadError, match="as many"):
        Scores([1.0], [1.0], [True], ["same"], 1.0, 1.0, names=["a", "b"])
    with pytest.raises(NfadError, match="finite"):
        Scores([np.nan], [1.0], [True], ["same"], 1.0, 1.0)
