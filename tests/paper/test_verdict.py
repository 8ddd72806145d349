"""The benchmark of verdicts: both errors, strangers, and a run that resumes."""

import csv
import io
import json

import pytest
from commands import TINY, nfad
from parts import part, tiny
from PIL import Image

from nfad.paper.verdict import METHODS, VerdictCell
from nfad.paper.verdict_rows import row_of, shares_of, shifts_as_markdown, verdict_of
from nfad.records import Dataset, Sample


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    found = []
    for name, start in (("one", 0), ("two", 500)):
        root = tmp_path_factory.mktemp(name) / name
        for place, count, bad in (("train/good", 12, False), ("test/good", 4, False), ("test/hole", 4, True)):
            (root / place).mkdir(parents=True)
            for index in range(count):
                pixels = part(start + 100 * bad + index + len(place), defect=bad)
                Image.fromarray(255 - pixels if name == "two" else pixels).save(root / place / f"{index}.png")
        found.append(root)
    return found


def test_the_command_measures_every_method_and_goes_on_where_it_stopped(roots, tmp_path):
    arguments = (
        "benchmark", "verdict", *roots, "--seeds", "1", "--normals", "10", "--photos", "4", "--out", tmp_path, *TINY,
        "--set", "batch=4",
    )  # fmt: skip
    rows = json.loads(nfad(*arguments, "--json").stdout)
    assert {(row["part"], row["method"]) for row in rows} == {
        (name, method) for name in ("one", "two") for method in METHODS
    }
    for row in rows:
        assert row["error"] == pytest.approx(
            (row["flagged"] + 1 - row["found"] - row["bad_not_judged"]) / 2
        )  # what is not judged is not passed
        assert row["strangers"] == 8 + 2 * 4 + 4
    cells = sorted((tmp_path / "cells").iterdir())
    before = [path.stat().st_mtime_ns for path in cells]
    text = nfad(*arguments).stdout
    assert "verdict error" in text and "strangers called normal" in text and (tmp_path / "verdict-one-two.png").exists()
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "cells").iterdir())] == before
    table = list(csv.DictReader(io.StringIO((tmp_path / "verdict-one-two.csv").read_text())))
    assert len(table) == len(rows)


def test_options_of_other_tables_are_refused(roots, tmp_path):
    told = nfad("benchmark", "verdict", roots[0], "--ranks", "8", "--out", tmp_path, code=2).stderr
    assert "does not use --ranks" in told
    assert "does not use --photos" in nfad("benchmark", "aebad", roots[0], "--photos", "8", code=2).stderr


def test_a_row_counts_as_a_person_would():
    rows = [["as taken", 0, 1.0, 5.0, True], ["as taken", 0, 3.0, 1.0, True], ["as taken", 0, 9.0, 1.0, False]]
    rows += [["as taken", 1, 9.0, 9.0, True], ["as taken", 1, 1.0, 9.0, True], ["as taken", 1, None, None, False]]
    strangers = [["black", 0.0, 9.0, True], ["white", 0.0, 9.0, False], ["grey", None, None, False]]
    result = {"limits": {"0.05": (2.0, 4.0)}, "rows": rows, "strangers": strangers, "fitted": 20}
    dataset = Dataset("folder", "x", (), (Sample(None, False),))  # type: ignore[arg-type]
    found = row_of(VerdictCell(dataset, (), tiny(), "nfad", 20, 3), result)
    assert (found.flagged, found.found, found.good_not_judged, found.bad_not_judged) == pytest.approx((1 / 3,) * 4)
    assert found.error == pytest.approx((1 / 3 + 1 / 3) / 2) and (found.strangers, found.strangers_passed) == (3, 1)
    plain = row_of(VerdictCell(dataset, (), tiny(), "unfiltered", 20, 3), result)
    assert plain.flagged == pytest.approx(1 / 3) and plain.found == pytest.approx(2 / 3) and not plain.good_not_judged


def test_where_the_errors_are_is_told_shift_by_shift():
    """One good and one bad part a shift: flagged and found in one, refused in the next; a second seed differs."""
    dataset = Dataset("folder", "x", (), (Sample(None, False),))  # type: ignore[arg-type]
    cells = [VerdictCell(dataset, (), tiny(seed=seed), "nfad", 20, 3) for seed in (1, 2)]
    rows = [["blur", 0, 3.0, 0.0, True], ["blur", 1, 4.0, 0.0, True], ["held back", 0, 9.0, 0.0, True]]
    rows += [["noise", 0, 1.0, 0.0, False], ["noise", 1, 4.0, 0.0, False]]
    result = {"limits": {"0.05": (2.0, 4.0)}, "rows": rows, "strangers": [], "fitted": 20}
    other = result | {"limits": {"0.05": (3.5, 4.0)}}
    assert shares_of(cells[0], result)["blur"][:3] == (1, 1, 0.5) and "held back" not in shares_of(cells[0], result)
    text = shifts_as_markdown(cells, [result, other])
    assert "| x | blur | 50% / 100% / 0.250 (0% / 0%) |" in text
    assert "| x | noise | 0% / 0% / 0.000 (100% / 100%) |" in text
    assert row_of(cells[0], result).error == pytest.approx(0.25)


def test_rates_are_told_apart_for_the_light_of_the_fit():
    """Every good photo comes once as it is and once under a held-back acquisition."""
    lights = [("warm", 1.0, 3.0), ("warm", 1.0, 1.0), ("cold", 1.0, 3.0), ("cold", 3.0, 3.0)]
    rows = [
        row for light, score, held in lights for row in ([light, 0, score, 0, True], ["held back", 0, held, 0, True])
    ]
    rows += [[light, 1, 9.0, 0, True] for light in ("warm", "cold")]
    result = {"limits": {"0.05": (2.0, 2.0)}, "rows": rows, "strangers": [], "fitted": 20}
    dataset = Dataset("folder", "x", (Sample(None, False, domain="warm"),), ())  # type: ignore[arg-type]
    found = row_of(VerdictCell(dataset, (), tiny(), "nfad", 20, 3), result)
    assert (found.held_back, found.in_own_light, found.flagged) == ((3, 4), (1, 2), 0.25)


def test_no_score_is_no_verdict():
    assert [verdict_of(None, True, 1), verdict_of(2, False, 1), verdict_of(2, True, 1), verdict_of(1, True, 1)] == [
        "not judged", "not judged", "anomalous", "normal",
    ]  # fmt: skip
