import pytest

from nfad.verdict.strange import BELOW_OR_ABOVE, NOT_THE_PART, PLAIN, why_strange
from nfad.vision.photo import NUMBERS


def outside(content=0.0, **numbers):
    return [*(numbers.get(name, 0.0) for name in NUMBERS), content]


def test_every_number_of_a_photo_has_words_in_its_order():
    assert tuple(BELOW_OR_ABOVE) == NUMBERS and sorted(PLAIN) == sorted(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("above", [False, True])
def test_what_lies_outside_is_named_on_its_own_side(name, above):
    words = BELOW_OR_ABOVE[name][above]
    told = why_strange(outside(**{name: 1.01 if above else -1.01}))
    assert told == (words or NOT_THE_PART)
    assert why_strange(outside(**{name: 1.0 if above else -1.0})) == NOT_THE_PART  # its edge is inside


def test_a_photo_that_shows_something_else_is_not_explained_by_its_colour():
    assert why_strange(outside(content=2.0)) == NOT_THE_PART
    assert why_strange(outside(content=2.0, colour=3.0)) == NOT_THE_PART
    assert why_strange(outside(content=0.9, colour=3.0)) == "redder light than this model was fitted for"
    assert why_strange(outside(content=2.0, brightness=-3.0)).startswith("darker")


def test_the_plainest_reason_is_told_first():
    """A photo in the dark is black and flat, too."""
    assert why_strange(outside(brightness=-4, contrast=-9, dark=9, flat=9)).startswith("darker")
    assert why_strange(outside(contrast=-9, noise=-2)).startswith("blurred")
    assert why_strange(outside(flat=2, noise=-2)).startswith("nothing to see")  # a cover has no grain, and is no lens


def test_nine_numbers_are_wanted():
    with pytest.raises(ValueError):
        why_strange([0.0] * 8)
