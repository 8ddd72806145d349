import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.watch.record import (
    COLUMNS,
    Judgement,
    Seen,
    as_line,
    as_path,
    as_text,
    as_values,
    from_values,
    judged,
    unreadable,
)

numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    numbers,
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 1)),
)
def test_a_row_comes_back_as_it_was(path, score, families):
    row = Judgement(path, 1, 2, "s", "now", "normal", "m", 1.0, score=score, nuisance_by_family=families, id=7)
    assert from_values(as_values(row)) == row
    assert len(as_values(row)) == len(COLUMNS)


@given(
    st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name and b"/" not in name and b"\\" not in name)
)
def test_any_bytes_can_be_a_name_and_become_text(name):
    path = os.fsdecode(name)
    text = as_text(path)
    text.encode()  # no lone surrogates: fit for SQLite and JSON
    assert os.fsencode(str(as_path(text))) == os.fsencode(str(as_path(path)))
    if path.isascii():
        assert text == path


def test_a_line_is_one_line_of_strict_json_with_a_key(row):
    text = as_line(row("a\nb.png", p_value=float("nan"), id=3), "abc")
    assert "\n" not in text
    given = json.loads(text, parse_constant=pytest.fail)
    assert given["key"] == "abc-3" and given["image"] == "a\nb.png" and given["p_value"] is None
    assert set(given) == set(COLUMNS) - {"path"} | {"key", "image"}


def test_a_prediction_keeps_its_numbers_and_an_unreadable_file_has_none(detector, folder, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    prediction = detector.predict(folder / "a.png")
    seen = Seen("a.png", 1, 2, "s")
    row = judged(seen, prediction, "now", "m", 12.34)
    for name in ("score", "threshold", "unfiltered_score", "unfiltered_threshold", "p_value", "nuisance_fraction"):
        assert getattr(row, name) == getattr(prediction, name)
    assert row.verdict == ("anomalous" if prediction.is_anomalous else "normal") and row.milliseconds == 12.3
    assert set(row.nuisance_by_family) == {"photometric", "background", "sensor"}
    bad = unreadable(seen, "torn", "now", "m", 1)
    assert (bad.verdict, bad.error, bad.score) == ("unreadable", "torn", None)
