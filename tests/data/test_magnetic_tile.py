import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.data import magnetic_tile
from nfad.data.magnetic_tile import _tiles
from nfad.errors import NfadError

REAL = Path(__file__).parents[3] / "shared" / "data" / "magnetic_tile"
SORTED = [
    *(f"free/exposure{e}/tile{k:03d}.jpg" for e in range(1, 7) for k in range(8) if (e, k) != (3, 0)),
    *(f"crack/exposure{e}/tile000.jpg" for e in range(1, 7)),
    *(f"crack/exposure{e}/tile000_mask.png" for e in range(1, 7)),
    "uneven/exposure1/tile000.jpg",
    "uneven/exposure1/tile000_mask.png",
]
BOTH = ("jpg", "png")  # even a good tile has a mask there, an empty one
RELEASED = [
    *(f"MT_Free/Imgs/exp{e}_num_{1000 * k + 20 * e}.{end}" for e in range(1, 7) for k in range(8) for end in BOTH),
    *(f"MT_Crack/Imgs/exp{e}_num_{300 + 20 * e}.{end}" for e in range(1, 7) for end in BOTH),
    "MT_Uneven/Imgs/exp1_num_9.jpg",
    "MT_Uneven/Imgs/exp1_num_9.png",
    "MT_Free/Imgs/exp0_num_743.jpg",
    "MT_Free/Imgs/readme.txt",
]


def tile_of(path: Path, released: bool) -> str:
    return str(int(path.stem.split("_")[-1]) // 1000) if released else path.stem


@pytest.mark.parametrize("released", [False, True])
def test_tiles_are_split_and_every_exposure_is_tested(plant, released):
    root = plant(*(RELEASED if released else SORTED))
    assert magnetic_tile.recognises(root)
    assert magnetic_tile.categories(root) == [f"exposure{e}" for e in range(1, 7)]
    reads = [magnetic_tile.read(root, category) for category in magnetic_tile.categories(root)]
    for read in reads:
        assert {s.domain for s in read.train} == {read.category}
        good = [s for s in read.test if not s.anomalous]
        fitted = {tile_of(s.path, released) for other in reads for s in other.train}
        tested = {tile_of(s.path, released) for s in good}
        assert len(fitted) == len(tested) == 4 and not fitted & tested
        assert {s.domain for s in good} == set(magnetic_tile.categories(root))
        bad = [s for s in read.test if s.anomalous]
        assert Counter(s.kind for s in bad) == {"crack": 6} and all(s.mask.is_file() for s in bad)
        assert not any("neven" in str(s.path.relative_to(root)) for s in read.train + read.test)
        assert f"{read.category}: of 8 good tiles 4 are fitted on, the others tested (seed 0)" in read.notes
        assert any("1 photos of uneven tiles" in note for note in read.notes)
    assert len({read.test for read in reads}) == 1


def test_photos_at_no_known_exposure_are_left_out_and_that_is_said(plant):
    read = magnetic_tile.read(plant(*RELEASED), "exposure1")
    assert not any("exp0" in s.path.name for s in read.train + read.test)
    assert "exposure1: 1 photos at none of the exposures 1 to 6 are left out" in read.notes


def test_the_split_is_that_of_the_benchmark(plant):
    names = [f"tile{k:03d}" for k in range(8)]
    random.Random(0).shuffle(names)
    read = magnetic_tile.read(plant(*SORTED), "exposure1")
    assert {s.path.stem for s in read.train} == set(names[:4])


def test_a_tile_is_a_run_of_rising_exposures():
    """As in the release: whole tiles, one that starts at exposure 4, one photographed from 3 over 6 to 2."""
    whole = [(3191, 1), (3211, 2), (3223, 3), (3234, 4), (3247, 5), (3279, 6)]
    part = [(85602, 4), (85642, 5), (85665, 6)]
    next_ = [(85781, 1), (85846, 2), (85897, 3), (85998, 4), (86031, 5), (86064, 6)]
    turned = [(186246, 3), (186258, 4), (186269, 5), (186280, 6), (186290, 1), (186302, 2)]
    assert _tiles(turned + next_ + whole + part) == [whole, part, next_, turned]


@given(st.lists(st.integers(1, 6), unique=True, min_size=1), st.lists(st.sets(st.integers(1, 6), min_size=1)))
def test_photos_of_one_rising_run_are_never_parted(first, others):
    runs = [sorted(first), *map(sorted, others)]
    shots = [(1000 * i + exposure, exposure) for i, run in enumerate(runs) for exposure in run]
    tiles = _tiles(shots)
    assert sorted(shot for tile in tiles for shot in tile) == sorted(shots)
    home = {shot: i for i, tile in enumerate(tiles) for shot in tile}
    for i, run in enumerate(runs):
        assert len({home[1000 * i + exposure, exposure] for exposure in run}) == 1
    assert all(len({exposure for _, exposure in tile}) == len(tile) for tile in tiles)


def test_a_missing_mask_is_counted(plant):
    root = plant(*(name for name in SORTED if name != "crack/exposure2/tile000_mask.png"))
    assert "exposure1: 1 of 6 anomalous test images have no mask" in magnetic_tile.read(root, "exposure1").notes


def test_a_wrong_root_and_a_wrong_exposure_are_named(plant, tmp_path):
    with pytest.raises(NfadError, match="Magnetic tile was not found in .*free/exposure1 or MT_Free/Imgs"):
        magnetic_tile.categories(tmp_path)
    with pytest.raises(NfadError, match="no category 'exposure7' here; it has exposure1, exposure2"):
        magnetic_tile.read(plant(*SORTED), "exposure7")


@pytest.mark.skipif(not REAL.exists(), reason=f"needs the magnetic tiles in {REAL}")
def test_the_real_tiles():
    read = magnetic_tile.read(REAL, "exposure1")
    good = [s for s in read.test if not s.anomalous]
    assert {s.path.stem for s in read.train}.isdisjoint(s.path.stem for s in good)
    assert len(read.train) + sum(s.domain == "exposure1" for s in good) == len(list(REAL.glob("free/exposure1/*.jpg")))
    assert all(s.mask.is_file() for s in read.test if s.anomalous)
    assert {s.kind for s in read.test} == {"good", "blowhole", "break", "crack", "fray"}
