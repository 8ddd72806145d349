import pytest

from nfad.verdict.strange import BELOW_OR_ABOVE, NOT_THE_PART, PLAIN, why_strange
from nfad.vision.photo import NUMBERS


def why(content=0.0, pixels=9.0, **numbers):
    """The reason, of a photo whose pixels are so strange on the whole."""
    return why_strange([*(numbers.get(name, 0.0) for name in NUMBERS), content], max(content, pixels))


def test_every_number_of_a_photo_has_words_in_its_order():
    assert tuple(BELOW_OR_ABOVE) == NUMBERS and sorted(PLAIN) == sorted(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("above", [False, True])
def test_what_lies_outside_is_named_on_its_own_side(name, above):
    words = BELOW_OR_ABOVE[name][above]
    told = why(**{name: 1.01 if above else -1.01})
    assert told == (words or NOT_THE_PART)
    assert why(**{name: 1.0 if above else -1.0}) == NOT_THE_PART  # its edge is inside


def test_a_photo_that_shows_something_else_is_not_explained_by_its_colour():
    assert why(content=2.0) == NOT_THE_PART
    assert why(content=2.0, colour=3.0) == NOT_THE_PART
    assert why(content=0.9, colour=3.0) == "redder light than this model was fitted for"
    assert why(content=2.0, brightness=-3.0).startswith("darker")


def test_of_content_and_pixels_the_stranger_comes_first():
    """Another part is often a little darker; in the dark no part looks like itself."""
    assert why(content=3.0, pixels=1.2, brightness=-1.1) == f"{NOT_THE_PART}; {BELOW_OR_ABOVE['brightness'][0]}"
    assert why(content=3.0, pixels=6.0, brightness=-2.7) == BELOW_OR_ABOVE["brightness"][0]
    assert why(content=0.9, pixels=0.5, brightness=-1.1) == BELOW_OR_ABOVE["brightness"][0]


def test_the_plainest_reason_is_told_first():
    """A photo in the dark is black and flat, too."""
    assert why(brightness=-4, contrast=-9, dark=9, flat=9).startswith("darker")
    assert why(contrast=-9, noise=-2).startswith("blurred")
    assert why(flat=2, noise=-2).startswith("nothing to see")  # a cover has no grain, and is no lens


def test_nine_numbers_are_wanted():
    with pytest.raises(ValueError):
        why_strange([0.0] * 8, 0.0)
