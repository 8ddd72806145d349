import json
import os
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.records import RECORD_FIELDS, InspectionRecord
from nfad.watch.record import (
    FIELDS,
    Fingerprint,
    NoPrediction,
    as_line,
    as_path,
    as_text,
    as_values,
    from_values,
    record_of,
)

numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
FILE = Fingerprint("a.png", 1, 2, "s")


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    numbers,
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 1)),
)
def test_a_record_comes_back_from_the_ledger_as_it_was(record, image, score, families):
    one = record(image, score=score, nuisance_by_family=families, id="ledger-7")
    assert from_values(as_values(one)) == one and one.position == 7
    assert len(as_values(one)) == len(FIELDS)


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


def test_a_line_is_strict_json_of_the_inspection_records_fields_in_order_and_then_our_own(record):
    text = as_line(record("a\nb.png", id="abc-3"))
    assert "\n" not in text
    given = json.loads(text, parse_constant=pytest.fail)
    assert tuple(given) == FIELDS == (*RECORD_FIELDS, "arrived", "size", "mtime_ns", "camera")
    assert given["id"] == "abc-3" and given["image"] == "a\nb.png" and given["p_value"] is None


def test_a_prediction_is_recorded_as_everywhere_else(detector, folder, png):
    (folder / "a.png").write_bytes(png(1, defect=True))
    prediction = detector.predict(folder / "a.png")
    record = record_of(prediction, FILE, "now", detector, "part", 12.34)
    wanted = InspectionRecord.of(
        prediction, id="", time=record.time, image="a.png", sha256="s", model="part", model_sha256=detector.sha256,
        false_alarm_rate=detector.false_alarm_rate, milliseconds=12.34,
    )  # fmt: skip
    assert record.as_dict() == wanted.as_dict() | {"arrived": "now", "size": 1, "mtime_ns": 2, "camera": None}
    assert record.is_readable and record.position == 0 and record.time.endswith("Z")
    assert datetime.fromisoformat(record.time).utcoffset().total_seconds() == 0


def test_an_unreadable_file_has_a_reason_and_no_numbers(detector):
    record = record_of(NoPrediction("unreadable", "torn"), FILE, "now", detector, "part", 1.26)
    assert (record.verdict, record.explanation, record.milliseconds) == ("unreadable", "torn", 1.3)
    assert not record.is_readable and record.unfiltered_verdict is None and record.nuisance_by_family == {}
    names = ("score", "threshold", "false_alarm_rate", "p_value", "excess_filtered", "participation", "gate")
    assert {getattr(record, name) for name in names} == {None}


LETTERS = st.sampled_from([*"\\u05cdc8fFé", *map(chr, (0xD800, 0xDBFF, 0xDC80, 0xDCFF))])
PIECES = st.lists(LETTERS | st.sampled_from(["\\udc80", "\\u005c", "\\u00", "udfff"]), min_size=1).map("".join)


@given(PIECES)
def test_every_name_is_text_and_leads_back_to_its_file(name):
    text = as_text(name)
    assert str(as_path(text)) == name and text.encode().decode() == text


@given(PIECES, PIECES)
def test_two_names_are_never_told_alike(one, other):
    assert (as_text(one) == as_text(other)) == (one == other)
