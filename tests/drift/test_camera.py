import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.drift import words
from nfad.drift.camera import FROZEN_FROM, SHIFTED_FROM, Camera, SameFrames, fault_of
from nfad.drift.state import CAMERA, COVERED, DEFOCUSED, FROZEN, MISPLACED, SHIFTED, SILENT
from nfad.verdict.strange import BELOW_OR_ABOVE, NOT_THE_PART, why_strange

FRAMES = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from([None, 1, 2])), min_size=1)


def seen(photos):
    frames = SameFrames()
    for number, (sha256, frame) in enumerate(photos):
        frames.update(str(number), sha256, frame)
    return frames


def test_the_same_bytes_or_the_same_pixels_in_a_row_are_a_camera_that_has_stopped():
    assert not seen([("a", 1), ("a", 1)]).frozen
    assert seen([("x", 0), *FROZEN_FROM * [("a", None)]]).frozen
    assert seen([("a", 1), ("b", 1), ("c", 1)]).frozen  # another date in every file
    assert seen([("a", 1), ("a", None), ("a", 2)]).frozen
    told = seen([("x", 0), ("a", 1), ("b", 1), ("c", 1)])
    assert (told.count, told.since) == (3, "1")
    assert not seen([("a", 1), ("a", 1), ("a", 1), ("b", 2)]).frozen


def test_what_is_not_known_is_not_the_same():
    assert not seen(9 * [("", None)]).frozen


@given(FRAMES)
def test_the_count_is_that_of_the_last_photos_which_are_each_as_the_one_before(photos):
    count = 1
    while count < len(photos):
        (one, left), (other, right) = photos[-count], photos[-count - 1]
        if not ((one and one == other) or (left is not None and left == right)):
            break
        count += 1
    assert seen(photos).count == count and seen(photos).since == str(len(photos) - count)


@pytest.mark.parametrize(
    ("outside", "state"),
    [
        ({"brightness": -3}, COVERED), ({"dark": 2}, COVERED), ({"uneven": 2}, COVERED), ({"noise": -2}, DEFOCUSED),
        ({}, MISPLACED), ({"brightness": 3}, None),
    ],
)  # fmt: skip
def test_three_photos_that_are_not_judged_for_the_camera_s_reason_are_its_state(outside, state):
    why = why_strange([*(outside.get(name, 0) for name in BELOW_OR_ABOVE), 0 if outside else 2], 2)
    camera = Camera()
    for number in range(2):
        camera.update(f"t{number}", str(number), f"Not judged: {why}.")
        assert camera.state is None
    camera.update("t2", "2", f"Not judged: {why}.")
    assert camera.state == state and (state is None or camera.since == "t0")
    camera.update("t3", "3", "Normal, with and without the filter.")
    assert camera.state is None


def test_a_camera_that_sends_nothing_is_silent_until_it_does():
    now = 0.0
    camera = Camera(30, lambda: now)
    assert camera.state is None
    now = 31.0
    assert camera.state == SILENT and camera.silence == 31
    camera.update("t", "a", "Normal.")
    assert camera.state is None
    now = 1e6
    assert Camera(None, lambda: now).state is None and camera.state == SILENT


def test_a_camera_has_moved_when_photos_in_a_row_lie_further_off_than_all_of_the_fit():
    camera = Camera(off_at_fit=(0.01, 0.03))
    for number in range(SHIFTED_FROM - 1):
        camera.update(f"t{number}", str(number), "Normal.", moved=0.031)
        assert camera.state is None
    camera.update("none", "not judged", "Not judged.")  # says nothing of it
    camera.update("t4", "4", "Normal.", moved=0.031)
    assert (camera.state, camera.since) == (SHIFTED, "t0")
    camera.update("t5", "5", "Normal.", moved=0.03)
    assert (camera.state, camera.since) == (None, "")
    steady = Camera(off_at_fit=(0.0, 0.0))
    for number in range(9):  # parts are laid down by hand
        steady.update(f"t{number}", str(number), "Normal.", moved=0.02)
    assert steady.state is None


def test_every_state_has_its_sentence_which_is_neither_steady_nor_absorbed():
    for state in CAMERA:
        told = words.camera(state, 3, 42) if state != FROZEN else words.frozen(3)
        assert "teady" not in told and "absorbed" not in told and told.endswith(".")


@pytest.mark.parametrize(("number", "state"), [("dark", MISPLACED), ("noise", DEFOCUSED)])
def test_of_two_reasons_the_first_counts_but_for_blur(number, state):
    """Another part is often darker, too; out of focus no part looks like itself."""
    outside = {"dark": 2, "noise": -2}
    why = why_strange([*(outside[name] if name == number else 0 for name in BELOW_OR_ABOVE), 3], 3)
    assert why.startswith(NOT_THE_PART + ";") and fault_of(f"Not judged: {why}.") == state
