"""What a fit says of the evidence it chose."""

from nfad.verdict.choice import Choice


def choice(rate=0.03, loosely=None):
    arms = {"filtered": 0.5, "unfiltered": 0.25}
    return Choice("placed", {"filtered": 0.2, "placed": 0.8}, rate, arms, arms, 84, loosely)


def test_the_sentence_names_its_rate_and_both_errors():
    said = choice().sentence()
    assert said.startswith("At a rate of 3.0%, under changed light 50% of normal parts are flagged")
    assert "50% of synthetic defects are found where it finds 25%" in said and "would be" not in said


def test_a_looser_rate_is_told_of_where_it_finds_more():
    assert choice(loosely=0.75).sentence().endswith("At a rate of 10% it would be 75% of them.")
    assert "would be" not in choice(loosely=0.54).sentence() and "would be" not in choice(0.1, 0.9).sentence()


def test_a_choice_of_an_older_fit_is_read():
    values = choice().as_dict()
    for name in ("defects", "candidates", "chosen", "found_loosely"):
        del values[name]
    assert Choice.from_dict(values).found == choice().found
