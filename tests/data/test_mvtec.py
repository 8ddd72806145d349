from pathlib import Path

import pytest

from nfad.data.catalog import load

REAL = Path(__file__).parents[3] / "shared" / "data" / "mvtec_256"


@pytest.mark.skipif(not REAL.exists(), reason=f"needs MVTec AD in {REAL}")
def test_the_real_set_has_the_published_counts_and_every_mask():
    sets = {each.category: each for each in load("mvtec-ad", REAL)}
    bottle, screw = sets["bottle"], sets["screw"]
    assert all(each.notes == () for each in sets.values())
    assert len(bottle.train) == 209 and len(screw.test) == 41 + 119
    assert {s.kind for s in bottle.test} == {"good", "broken_large", "broken_small", "contamination"}
    assert all(s.mask.is_file() and s.path.stem in s.mask.stem for s in bottle.test + screw.test if s.anomalous)
