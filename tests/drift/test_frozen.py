from hypothesis import given
from hypothesis import strategies as st

from nfad.drift.frozen import FROZEN_FROM, SameFrames

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
