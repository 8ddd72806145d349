import dataclasses
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.service.record import ID_PATTERN, Inspection, as_text, first_id, iso, new_id, time_of
from nfad.service.store import Filters, Store

START = 1_770_000_000_000


@pytest.fixture
def store(url):
    store = Store(url)
    yield store
    store.close()


def inspection(number=0, **changes):
    id = first_id(START + number * 1000)
    plain = Inspection(
        id=id, time=iso(time_of(id)), model="part", model_sha256="aa", image=f"{number}.png", sha256="",
        suffix=".png", verdict="normal", score=1.0, threshold=2.0, false_alarm_rate=0.01, p_value=0.5,
        unfiltered_verdict="normal", unfiltered_score=1.0, unfiltered_threshold=2.0, gate=1.0, participation=0.5,
        nuisance_fraction=0.1, excess_filtered=0.2, explanation="Normal.", milliseconds=1.0, width=64, height=64,
        scale=9.0, nuisance_by_family={"photometric": 0.1}, view={"left": 0.0, "top": 0.0, "width": 1.0, "height": 1.0},
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def test_what_was_added_is_there_for_the_next_process(store, url):
    given = inspection(1, p_value=None, image="é'; DROP TABLE inspections; --")
    store.add([given])
    again = Store(url)
    assert again.identity == store.identity
    assert again.get(given.id) == given
    assert again.get(first_id(0)) is None
    again.close()


def test_all_or_none(store):
    store.add([inspection(1)])
    with pytest.raises(sa.exc.IntegrityError):
        store.add([inspection(2), inspection(1)])
    assert [each.image for each in store.find(Filters(), 9)] == ["1.png"]
    store.add([])
    assert len(store.find(Filters(), 9)) == 1


def test_filters_agree_with_plain_python(store):
    rows = [
        inspection(
            number,
            model="part" if number % 3 else "other",
            verdict="anomalous" if number % 2 else "normal",
            unfiltered_verdict="anomalous" if number % 4 else "normal",
            review_verdict=[None, "good", "bad", "unsure"][number % 4],
            image=f"{'Cam' if number % 5 else '100%_'}{number}.png",
        )
        for number in range(24)
    ]
    store.add(rows)
    moment = time_of(rows[10].id)
    cases = {
        Filters(): lambda r: True,
        Filters(model="other"): lambda r: r.model == "other",
        Filters(verdict="anomalous", changed=True): lambda r: r.verdict == "anomalous" != r.unfiltered_verdict,
        Filters(changed=False): lambda r: r.verdict == r.unfiltered_verdict,
        Filters(review="none"): lambda r: r.review_verdict is None,
        Filters(review="any"): lambda r: r.review_verdict is not None,
        Filters(review="bad"): lambda r: r.review_verdict == "bad",
        Filters(since=moment): lambda r: r.id >= rows[10].id,
        Filters(until=moment): lambda r: r.id < rows[10].id,
        Filters(search="cAM"): lambda r: "Cam" in r.image,
        Filters(search="%_"): lambda r: "%_" in r.image,
        Filters(before=rows[5].id): lambda r: r.id < rows[5].id,
        Filters(since=datetime(1, 1, 1, tzinfo=UTC), until=datetime(9999, 12, 31, tzinfo=UTC)): lambda r: True,
    }
    for filters, wanted in cases.items():
        expected = [row for row in reversed(rows) if wanted(row)]
        assert store.find(filters, 100) == expected == list(store.every(filters)), filters
        assert store.find(filters, 3) == expected[:3]


def test_a_search_reads_names_from_an_index_and_no_other_row(tmp_path):
    store, plans = Store(f"sqlite:///{tmp_path}/s.db"), []
    store.add([inspection(number) for number in range(3)])

    @sa.event.listens_for(store.engine, "before_cursor_execute")
    def ask(connection, _, statement, parameters, *__):
        if statement.startswith("SELECT") and "LIKE" in statement:
            plans.extend(row[3] for row in connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    assert store.find(Filters(search="nobody"), 5) == []
    assert any("COVERING INDEX by_name" in each for each in plans) and not any(
        each.startswith("SCAN inspections") and "by_name" not in each for each in plans
    )


def test_a_time_is_found_that_its_id_is_far_ahead_of(store, url):
    """As after a clock was set back; also by the next process."""
    rows = [inspection(number) for number in range(3)]
    store.add(rows)
    late = inspection(3, time=iso(time_of(rows[0].id) - timedelta(days=400)))
    store.add([late])
    again = Store(url)
    for opened in (store, again):
        assert opened.find(Filters(until=time_of(rows[0].id)), 9) == [late]
        assert opened.find(Filters(since=time_of(rows[1].id)), 9) == rows[:0:-1]
        assert opened.with_pictures(until=time_of(rows[0].id)) == [late.id]
        assert opened.find(Filters(), 9) == [late, *rows[::-1]]
    again.close()


def test_counts_agree_with_plain_python(store):
    rows = [
        inspection(
            number,
            score=float(number),
            verdict="anomalous" if number > 6 else "normal",
            review_verdict=[None, "good", "bad", "unsure"][number % 4],
            model_sha256="aa" if number < 12 else "bb",
        )
        for number in range(16)
    ]
    store.add(rows)
    counts, mine = store.counts("part", "aa", 3.0), rows[:12]
    assert counts["inspections"] == 12 and counts["anomalous"] == 5 and counts["anomalous_then"] == 8
    assert counts["newly_rejected"] == 3 and counts["newly_accepted"] == 0
    good, bad = ([row for row in mine if row.review_verdict == verdict] for verdict in ("good", "bad"))
    assert counts["false_alarms"] == sum(row.score > 6 for row in good)
    assert counts["false_alarms_then"] == sum(row.score > 3 for row in good)
    assert counts["missed"] == sum(row.score <= 6 for row in bad)
    assert counts["missed_then"] == sum(row.score <= 3 for row in bad)
    assert (counts["good"], counts["bad"], counts["unsure"]) == (3, 3, 3)
    assert sorted(store.reviewed_scores("part", "aa", "bad")) == [row.score for row in bad]
    assert store.latest("part", "aa", 2) == mine[-2:]
    assert store.time_of("part", "aa", 1, judged=True) == mine[-2].time


def unjudged(number, **changes):
    plain = {"verdict": "not judged", "unfiltered_verdict": "anomalous", "strangeness": 1.5}
    return inspection(number, **plain | changes)


def test_counts_go_on_with_what_is_added_by_several_threads(store, url):
    model = inspection().model, inspection().model_sha256
    store.add([inspection(number) for number in range(3)])
    store.counts(*model, 1.0)
    with ThreadPoolExecutor(4) as pool:
        for number in range(3, 40):
            pool.submit(store.add, [inspection(number, verdict=("normal", "anomalous", "not judged")[number % 3])])
            pool.submit(store.counts, *model, 1.0)
    with pytest.raises(sa.exc.IntegrityError):
        store.add([inspection(0, id=store.newest().id)])  # there is one of that id, so nothing was added
    again = Store(url)
    assert store.counts(*model, 1.0) == again.counts(*model, 1.0)
    again.close()
    assert store.counts(*model, 1.0)["not_judged"] == len(range(5, 40, 3))


def test_what_is_not_judged_is_counted_apart_and_changes_sides_at_no_threshold(store):
    judged = [
        inspection(n, score=float(n), verdict="anomalous" if n > 2 else "normal", review_verdict=["good", "bad"][n % 2])
        for n in range(5)
    ]
    store.add(judged)
    before = store.counts("part", "aa", 1.0)
    assert before["not_judged"] == 0
    others = [
        unjudged(10, score=9.0, review_verdict="good"), unjudged(11, score=0.0, review_verdict="bad"),
        unjudged(12, score=None, unfiltered_score=None, unfiltered_verdict=None), unjudged(13, review_verdict="unsure"),
    ]  # fmt: skip
    store.add(others)
    after = store.counts("part", "aa", 1.0)
    apart = {"not_judged": 4, "not_judged_good": 1, "not_judged_bad": 1, "not_judged_unsure": 1}
    assert after == before | apart
    for threshold in (-1.0, 1.0, 99.0):
        changing = store.changing("part", "aa", threshold, 99)
        assert {each.verdict for some in changing.values() for each in some} <= {"normal", "anomalous"}
    assert sorted(store.reviewed_scores("part", "aa", "good")) == [0.0, 2.0, 4.0]
    assert store.time_of("part", "aa", 1, judged=True) == judged[-2].time
    assert store.time_of("part", "aa", 1, judged=False) == others[-2].time
    assert store.find(Filters(verdict="not judged"), 9) == others[::-1]


def test_the_filter_neither_changed_nor_left_a_verdict_that_there_is_not(store):
    store.add([inspection(1), inspection(2, verdict="anomalous"), unjudged(3), unjudged(4, unfiltered_verdict=None)])
    assert [each.image for each in store.find(Filters(changed=True), 9)] == ["2.png"]
    assert [each.image for each in store.find(Filters(changed=False), 9)] == ["1.png"]


def test_reviews_rates_and_pictures(store):
    rows = [inspection(number) for number in range(6)]
    store.add(rows)
    assert store.review(rows[0].id, "bad", "dent", "2026").review_note == "dent"
    assert store.review(rows[0].id, None, None, None) == rows[0]
    assert store.review(first_id(0), "bad", "", "") is None
    assert store.rate("part") is None
    for rate in (0.1, 0.2):
        store.set_rate("part", rate)
        assert store.rate("part") == rate
    ids = [row.id for row in rows]
    assert store.with_pictures(beyond=4) == ids[1::-1]
    assert store.with_pictures(until=time_of(ids[3])) == ids[2::-1]
    store.mark_pictures_removed(ids[:2])
    assert store.with_pictures(beyond=4) == [] and store.get(ids[0]).pictures is False
    assert store.known([ids[0], first_id(7)]) == {ids[0]}


def test_more_ids_than_a_question_may_name_are_known(store):
    """SQLite takes 32,766 by default, PostgreSQL 65,535."""
    if store.engine.name == "sqlite":
        sa.event.listen(
            store.engine, "checkout", lambda raw, *_: raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        )
    store.add([inspection(number) for number in range(3)])
    ids = [first_id(START + number * 1000) for number in range(70_000)]
    assert store.known(iter(ids)) == set(ids[:3])


@given(st.text(max_size=40))
def test_any_text_becomes_text_a_database_takes(text):
    kept = as_text(text, 20)
    assert "\0" not in kept and len(kept) <= 20
    assert kept.encode().decode() == kept


def test_strange_text_is_no_error_anywhere(store):
    for text in ("\0", "\ud800", "%", "'", "\\", "é" * 300):
        store.find(Filters(search=as_text(text, 255), model=as_text(text, 64)), 1)
        store.add([inspection(id=new_id(), image=as_text(text, 255))])


def test_ids_sort_by_time_and_tell_it():
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    ids = [new_id() for _ in range(500)]
    assert len(set(ids)) == 500 and all(re.fullmatch(ID_PATTERN, id) for id in ids)
    assert [id[:12] for id in ids] == sorted(id[:12] for id in ids)
    assert before <= time_of(ids[0]) <= time_of(ids[-1]) <= datetime.now(UTC)


def test_what_cannot_be_opened_is_a_sentence(tmp_path):
    for url in ("nonsense", "mysql://x/y", f"sqlite:///{tmp_path}/none/a.db", "postgresql://nobody@127.0.0.1:1/x"):
        with pytest.raises(NfadError):
            Store(url)
    (tmp_path / "b.db").write_bytes(b"this is not a database, however long it may be" * 99)
    with pytest.raises(NfadError, match="not a database"):
        Store(f"sqlite:///{tmp_path}/b.db")


def test_a_search_reads_so_many_names_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr("nfad.service.store.SEARCHED", 4)
    store, read, before = Store(f"sqlite:///{tmp_path}/s.db"), [], None
    store.add([inspection(number) for number in range(10)])
    newest = [each.id for each in store.find(Filters(), 20)]
    while (last := store.searched_to(before)) is not None:
        read.append([each.id for each in store.find(Filters(search="", before=before, least=last), 20)])
        before = last
    assert read == [newest[:4], newest[4:8]]
    assert [each.id for each in store.find(Filters(before=before), 20)] == newest[8:]


def test_no_number_of_inspections_is_a_statement_of_its_own(store):
    """A connection remembers many statements, which over months is memory that creeps."""
    said = set()
    sa.event.listen(store.engine, "before_cursor_execute", lambda *given: said.add(given[2]))
    after, number = [], 0
    for count in range(1, 9):
        some = [inspection(number + each) for each in range(count)]
        number += count
        store.add(some)
        assert len(store.with_pictures()) == count
        store.mark_pictures_removed([each.id for each in some])
        assert store.with_pictures() == []
        after.append(len(said))
    assert after[2:] == after[1:-1]
