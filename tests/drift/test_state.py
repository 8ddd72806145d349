from itertools import product

import numpy as np

from nfad.drift import state


def test_every_combination_has_a_verdict():
    found = {flags: state.verdict(*flags) for flags in product((False, True), repeat=5)}
    assert set(found.values()) == set(state.VERDICTS) - {state.UNJUDGED, *state.CAMERA}  # photos, not parts
    assert found[(False,) * 5] == state.STEADY
    for (nuisance, tail, bulk, doubtful, lower), verdict in found.items():
        fell = nuisance and lower
        assert (verdict == state.STEADY) == (not (nuisance or tail or bulk))
        assert (verdict == state.UNABSORBED) == (bulk and not fell)
        assert ("more defects" in verdict) == (tail and not bulk and not doubtful)
        absorbed = nuisance and (fell or not bulk) and not (tail and (bulk or doubtful))
        assert ("absorbed by" in verdict) == absorbed


def test_a_block_is_by_name():
    found = state.block(("a", "b"), np.array([[0.0, 10.0], [5.0, 20.0], [10.0, 90.0]]), first=7, flagged=1)
    assert (found.first, found.parts, found.flagged) == (7, 3, 1)
    assert found.median == {"a": 5.0, "b": 20.0} and found.low["a"] == 1.0 and found.high["a"] == 9.0
