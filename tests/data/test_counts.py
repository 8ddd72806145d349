from pathlib import Path

import pytest

from nfad.data.catalog import READERS
from nfad.data.counts import TOTAL, Counts, count_notes, published, published_categories, total_notes
from nfad.records import Dataset, Sample


def made(name: str, category: str, train: int, good: int, bad: int) -> Dataset:
    test = [Sample(Path("x"), anomalous) for anomalous, count in ((False, good), (True, bad)) for _ in range(count)]
    return Dataset(name, category, tuple(Sample(Path("x"), False) for _ in range(train)), tuple(test))


def test_the_numbers_as_published_are_no_news():
    assert count_notes(made("mvtec-ad", "bottle", 209, 20, 63)) == ()


@pytest.mark.parametrize(
    "counts, note",
    [
        ((209, 20, 60), "bottle: 209 training images, as published; test 20 good / 60 bad, published 20 / 63"),
        ((208, 20, 63), "bottle: 208 training images, published 209; test 20 good / 63 bad, as published"),
        ((0, 0, 0), "bottle: 0 training images, published 209; test 0 good / 0 bad, published 20 / 63"),
    ],
)
def test_a_difference_is_one_sentence(counts, note):
    assert count_notes(made("mvtec-ad", "bottle", *counts)) == (note,)


def test_nothing_is_said_of_what_nobody_published():
    assert count_notes(made("folder", "bottle", 1, 1, 1)) == ()
    assert count_notes(made("mvtec-ad", "teapot", 1, 1, 1)) == ()
    assert count_notes(made("real-iad", "audiojack", 1, 1, 1)) == ()


def test_a_total_is_compared_once_all_categories_are_there():
    names = published_categories("real-iad")
    parts = [made("real-iad", name, 1, 2, 3) for name in names]
    assert total_notes(parts[1:]) == total_notes([]) == ()
    assert total_notes(parts) == (
        "real-iad: 30 training images, published 36465; test 60 good / 90 bad, published 63256 / 51329",
    )


def test_a_total_as_published_is_no_news():
    known = [made("mpdd", name, *published()["mpdd", name]) for name in published_categories("mpdd")]
    assert total_notes(known) == ()


@pytest.mark.parametrize("name, size", [("mvtec-ad", 15), ("visa", 12), ("mpdd", 6)])
def test_categories_add_up_to_the_published_total(name, size):
    rows = [published()[name, category] for category in published_categories(name)]
    assert len(rows) == size
    assert Counts(*map(sum, zip(*rows))) == published()[name, TOTAL]


def test_mvtec_ad_2_adds_up_to_its_paper():
    """2528 training, 302 validation and 1084 public test images."""
    rows = [published()["mvtec-ad-2", category] for category in published_categories("mvtec-ad-2")]
    assert len(rows) == 8
    assert sum(row.train for row in rows) == 2528 + 302
    assert sum(row.good + row.bad for row in rows) == 1084


def test_the_totals_of_the_others():
    assert published()["aebad-s", "blade"] == (521, 490, 1149)
    assert len(published_categories("real-iad")) == 30
    assert sum(published()["real-iad", TOTAL]) == 151_050  # as the set is advertised


def test_the_table_speaks_of_sets_that_are_read():
    assert {name for name, _ in published()} <= set(READERS)
