import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nfad.drift.betting import SHIFTS, shift
from nfad.drift.evidence import CEILING, Evidence, alarm_level


def feed(evidence, returns, played, cuts=()):
    """All parts, in pieces; the alarms after each part that changed one."""
    heard = []
    for piece in np.split(np.arange(len(returns)), sorted(cuts)):
        while len(piece):
            taken, new = evidence.update(returns[piece], played[piece], int(piece[0]) + 1)
            if new.any():
                heard.append((int(piece[taken - 1]) + 1, new.tolist(), evidence.since.tolist()))
            piece = piece[taken:]
    return heard


def slow(returns, level, head_start):
    """One stream, one bet: Shiryaev and Roberts, Page, and Page against the bet, as they are written down."""
    total, page, back, alarmed, heard, began = head_start * level, 1.0, 1.0, False, [], 1
    for part, factor in enumerate(returns, start=1):
        if page <= 1:
            page, began = 1.0, part
        total, page = min((total + 1) * factor, CEILING * level), min(page * factor, CEILING * level)
        back = max(back, 1) / factor
        if alarmed and back >= level:
            total, page, alarmed = 0.0, 1.0, False
        elif not alarmed and total >= level:
            alarmed, back = True, 1.0
            heard.append((part, [True], [began]))
    return heard


@given(st.data(), st.integers(1, 80))
def test_alarms_are_those_of_the_definition_however_the_parts_come(data, parts):
    returns = data.draw(hnp.arrays(np.float64, (parts, 1), elements=st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0])))
    cuts = data.draw(st.lists(st.integers(0, parts), max_size=4))
    found = feed(Evidence([1], [1.0], 50.0, 0.01), returns, np.ones((parts, 1), dtype=bool), cuts)
    assert found == slow(returns[:, 0], 50.0, 0.01)


def test_a_stream_that_is_not_played_stands_still():
    evidence = Evidence([1, 1], [0.5, 0.5], 100.0, 0.0)
    feed(evidence, np.array([[1.0, 3.0]] * 3), np.array([[False, True]] * 3))
    assert evidence.levels == pytest.approx([0.0, 0.5 * (3 + 9 + 27) / 100])


def test_the_level_gives_the_promised_run_length():
    """Adding up the bound on P(no alarm yet) over all parts."""
    for rate, run_length in ((0.01, 10_000), (0.2, 50)):
        level = alarm_level(rate, run_length)
        waiting = sum(max(0.0, 1 - rate - part / level) for part in range(math.ceil(level)))
        assert run_length <= waiting <= run_length * 1.02 + 1


def first_alarms(rate, run_length, runs, longest, seed):
    """Parts to the first alarm of one stream under fair chance; `longest` where there was none."""
    random = np.random.default_rng(seed)
    heard = []
    for _ in range(runs):
        evidence = Evidence([SHIFTS], [1.0], alarm_level(rate, run_length), rate)
        taken, new = evidence.update(shift(random.random(longest)), np.ones((longest, 1), dtype=bool), 1)
        heard.append(taken if new.any() else longest + 1)
    return np.array(heard)


@pytest.mark.parametrize(("rate", "run_length"), [(0.01, 50), (0.2, 50)])
def test_false_alarms_are_as_rare_as_stated(rate, run_length):
    runs, longest = 200, 250
    heard = first_alarms(rate, run_length, runs, longest, seed=1)
    for parts in (5, 20, 40):
        bound = rate + parts / alarm_level(rate, run_length)
        assert (heard <= parts).sum() <= runs * bound + 4 * math.sqrt(runs * bound * (1 - bound))
    assert heard.mean() > run_length
    assert (heard <= longest).mean() > 0.3  # the bound is not held by never saying anything


def test_an_alarm_ends_when_things_are_as_before_and_can_come_again():
    random = np.random.default_rng(2)
    spells = [random.random(200), random.beta(0.3, 1, 60), random.random(300), random.beta(1, 0.3, 60)]
    returns = shift(np.concatenate(spells))
    evidence = Evidence([SHIFTS], [1.0], alarm_level(0.01, 10_000), 0.01)
    found = feed(evidence, returns, np.ones((len(returns), 1), dtype=bool))
    assert len(found) == 2 and evidence.alarmed.all()
    for (raised, _, [since]), start in zip(found, (200, 560)):
        assert start < raised <= start + 60 and abs(since - start) <= 25
