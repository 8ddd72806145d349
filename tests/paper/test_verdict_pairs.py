"""Differences of verdicts, paired over photos."""

import numpy as np
import pytest
from parts import tiny

from nfad.evaluation.metrics import image_metrics
from nfad.paper.verdict import AS_TAKEN, HELD_BACK, VerdictCell
from nfad.paper.verdict_pairs import as_markdown, differences
from nfad.paper.verdict_rows import row_of
from nfad.records import Dataset, Sample

DATASET = Dataset("folder", "x", (), (Sample(None, False),))  # type: ignore[arg-type]


def measured(method, gap, lights=False, seed=0, count=30):
    """Scores of good photos about 0 and of bad ones about `gap`, the same draws for every gap."""
    draw = np.random.default_rng(seed)
    rows = []
    for index in range(2 * count):
        bad = index % 2
        first, *others = ("warm" if index % 4 < 2 else "blue",) if lights else (AS_TAKEN, "noise")
        for shift in (first, *([] if bad else [HELD_BACK]), *others):
            score = float(draw.normal() + bad * gap)
            rows.append([shift, bad, score, score, draw.random() > 0.1])
    result = {"limits": {"0.05": (1.5, 1.5)}, "rows": rows, "strangers": [], "fitted": 20}
    return VerdictCell(DATASET, (), tiny(seed=seed), method, 20, count), result


@pytest.mark.parametrize("lights", [False, True])
def test_a_difference_is_that_of_the_rows_and_lies_in_its_interval(lights):
    both = [
        measured(method, gap, lights, seed) for method, gap in (("nfad", 3), ("filter alone", 1)) for seed in (0, 1)
    ]
    cells, results = zip(*both, strict=True)
    (found,) = differences(cells, results)
    rows = [row_of(cell, result) for cell, result in both]
    for name in ("error", "auroc"):
        ours, others = (np.mean([getattr(row, name) for row in some]) for some in (rows[:2], rows[2:]))
        interval = getattr(found, name)
        assert interval.value == pytest.approx(ours - others)
        assert interval.low < interval.value < interval.high and interval.excludes_zero
    assert found.error.value < 0 < found.auroc.value
    if lights:
        assert np.isnan(found.auroc_as_taken.value) and "| – |" in as_markdown([found])
    else:
        taken = [[(row[2], row[1]) for row in result["rows"] if row[0] == AS_TAKEN] for result in results]
        aurocs = [image_metrics(*(np.array(each) for each in zip(*some, strict=True))).auroc for some in taken]
        assert found.auroc_as_taken.value == pytest.approx(np.mean(aurocs[:2]) - np.mean(aurocs[2:]))


def test_a_method_does_not_differ_from_itself():
    both = [measured(method, 2) for method in ("nfad", "filter alone")]
    (found,) = differences(*zip(*both, strict=True))
    assert (found.error.low, found.error.high, found.auroc.low, found.auroc.high) == (0, 0, 0, 0)
    assert "**" not in as_markdown([found])


def test_the_interval_covers_as_often_as_it_says():
    """Of two methods equally good, on photos of their own: 95 % intervals exclude zero in about one of twenty."""
    wrong = 0
    for seed in range(60):
        ours, other = measured("nfad", 2, seed=2 * seed), measured("filter alone", 2, seed=2 * seed + 1)
        (found,) = differences(*zip(ours, other, strict=True))
        wrong += found.auroc.excludes_zero
    assert wrong <= 11  # 60 at 5 %: above eleven in 1 of 10,000
