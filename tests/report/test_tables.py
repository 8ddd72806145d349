import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.evaluation.tally import Arm, EvaluationRow
from nfad.report.rendering import rendered
from nfad.report.tables import (
    alarm_rate,
    detection_rate,
    headline,
    image_table,
    pixel_table,
    remarks,
    signed,
    summary_row,
    told_gain,
    verdict_table,
)
from nfad.stats.intervals import Interval, rate_interval

NAN = math.nan
METRICS = {"i_auroc": 0.9, "i_ap": 0.8, "i_f1": 0.7, "p_auroc": 0.95, "p_ap": 0.3, "p_f1": 0.4, "aupro": 0.85}


def arm(low=0.85, **changes):
    rates = {
        "false_alarms": 0.5,
        "detections": 0.75,
        "verdict_error": 0.25,
        "intervals": {"i_auroc": (low, max(low, 0.94))},
    }
    return Arm(**(METRICS | rates | changes))


def row(domain="same", good=40, bad=40, unfiltered=None, filtered=None, gain=(0.02, 0.01, 0.03), **more):
    arms = {"unfiltered": unfiltered or arm(), "filtered": filtered or arm(false_alarms=0.05)}
    gains = {metric: Interval(*each) for metric, each in ({"i_auroc": gain} | more).items()}
    return EvaluationRow(domain, good, bad, arms, gains)


def shown(table):
    return rendered("domains.html", table=table)


@given(st.tuples(*[st.floats(-1, 1)] * 3).map(sorted))
def test_nothing_inside_its_interval_is_bold_or_claimed(triple):
    low, value, high = triple
    table = shown(image_table([row(gain=(value, low, high))]))
    outside = low > 0 or high < 0
    assert ("<strong>" in table) == outside
    told = told_gain(Interval(value, low, high))
    assert told == ("no certain difference" if not outside else "higher" if low > 0 else "lower")
    assert told in table


def test_an_unknown_gain_is_neither_bold_nor_claimed():
    table = shown(image_table([row(gain=(NAN, NAN, NAN))]))
    assert "<strong>" not in table and "nan" not in table and "higher" not in table


def test_numbers_stand_in_their_columns():
    one = row(unfiltered=arm(i_ap=0.123, false_alarms=0.25), filtered=arm(i_ap=0.456, detections=0.95))
    table = shown(image_table([one]))
    header = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
    _, *lines = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    unfiltered, filtered = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines)
    assert header[2:5] == ["AUROC", "Gain in AUROC", "AP"]
    assert unfiltered[1] == "unfiltered" and filtered[0] == "filtered"
    assert unfiltered[header.index("AP")] == "0.123"
    # The domain and the gain stand for both lines, so the second is two cells shorter.
    assert filtered[header.index("AP") - 2] == "0.456"
    assert "Bad found" not in header  # both errors stand in a table of their own:
    errors = verdict_table([one]).domains[0].lines
    assert [cell.value for cell in errors["unfiltered"]] == ["25%", "75%", "0.250", "–", "–"]
    assert [cell.value for cell in errors["filtered"]] == ["50%", "95%", "0.250", "0 (0%)", "0 (0%)"]
    assert len(unfiltered) == len(header) == len(filtered) + 2
    assert 'rowspan="2"' in table and "40 good, 40 bad" in table


def test_rates_have_the_exact_interval_of_their_counts():
    found = row(good=48, bad=20, unfiltered=arm(false_alarms=30 / 48, detections=0.95))
    assert alarm_rate(found, "unfiltered") == rate_interval(30, 48)
    assert detection_rate(found, "unfiltered") == rate_interval(19, 20)
    mean = alarm_rate(row(good=48, unfiltered=arm(false_alarms=0.123)), "unfiltered")  # of no number of 48 images
    assert mean.value == 0.123 and math.isnan(mean.low)


def test_what_is_not_judged_stands_beside_both_errors_with_its_interval():
    refused = row(good=40, bad=20, filtered=arm(good_not_judged=2, bad_not_judged=5))
    table = verdict_table([refused])
    good, bad = table.domains[0].lines["filtered"][-2:]
    low, high = rate_interval(5, 20).low, rate_interval(5, 20).high
    assert (good.value, bad.value, bad.span) == ("2 (5%)", "5 (25%)", f"{100 * low:.0f}–{100 * high:.0f}")
    assert [cell.value for cell in table.domains[0].lines["unfiltered"][-2:]] == ["–", "–"]  # knows no third verdict
    told = " ".join(remarks([refused]))
    assert "neither flagged nor passed: same (2 (5%))" in told and "stopped, though not found: same (5 (25%))" in told
    assert any(figure.value == "2 (5%)" and "5 (25%) bad" in figure.more for figure in headline(refused))


def test_pixel_gains_are_shown_where_there_are_any():
    assert "Gain" not in shown(pixel_table([row()], "mvtec"))
    table = shown(pixel_table([row(aupro=(0.1, -0.1, 0.2))], "mmr"))
    assert "Gain in AUPRO" in table and "Gain in AUROC" not in table and "<strong>" not in table
    assert "protocol mmr" in table


def test_without_masks_there_is_no_table():
    blind = arm(p_auroc=NAN, p_ap=NAN, p_f1=NAN, aupro=NAN)
    assert pixel_table([row(unfiltered=blind, filtered=blind)], "mvtec") is None
    assert "–" in shown(pixel_table([row(unfiltered=blind, filtered=blind), row("dark")], "mvtec"))


def test_few_images_are_told_in_words_with_what_one_of_them_can_do():
    (told,) = remarks([row("same", 12, 40), row("dark", 12, 40), row("blue", 40, 10), row("large"), row("all", 9, 9)])
    assert "same and dark (12 good, 40 bad); blue (40 good, 10 bad)" in told
    assert "up to 10 points" in told
    assert "large" not in told and "9 good" not in told
    assert not remarks([row("same"), row("all")])


def test_a_missing_class_is_told():
    assert any("no bad images" in words for words in remarks([row(bad=0)]))
    assert any("no good images" in words for words in remarks([row(good=0)]))


def test_a_perfect_interval_is_explained():
    assert any("no mistake to resample" in words for words in remarks([row(filtered=arm(low=1.0))]))


def test_a_broken_promise_is_named_only_where_it_is_certain():
    rows = [row("same", filtered=arm(false_alarms=0.1)), row("dark", filtered=arm(false_alarms=0.5))]
    unfiltered, filtered = remarks(rows, rate=0.05)
    assert "unfiltered" in unfiltered and "same (50%) and dark (50%)" in unfiltered
    assert "The filtered" in filtered and "dark (50%)" in filtered and "same" not in filtered
    assert "5%" in filtered


def test_the_headline_is_about_all_images():
    rows = [row("same"), row("all", 200, 100, unfiltered=arm(false_alarms=0.62), gain=(0.01, -0.01, 0.02))]
    row_of_all = summary_row(rows)
    told = headline(row_of_all)
    assert [figure.words for figure in told[:3]] == ["good parts flagged", "bad parts found", "verdict error"]
    assert (row_of_all.good, row_of_all.bad) == (200, 100) and told[0].value == "62 → 5%"
    assert told[3].more == "no certain difference: −0.010 to +0.020"
    assert summary_row(rows[:1]) is rows[0]
    assert "nan" not in str(headline(row(bad=0, filtered=arm(i_auroc=NAN, detections=NAN, aupro=NAN))))


@pytest.mark.parametrize(
    "value, told", [(0.0301, "+0.030"), (-0.0301, "−0.030"), (-0.0001, "0.000"), (0.0004, "0.000")]
)
def test_signs(value, told):
    assert signed(value) == told


def test_names_are_escaped():
    nasty = '<img src=x onerror="alert(1)">'
    for html in (shown(image_table([row(nasty)])), shown(pixel_table([row(nasty)], "mvtec"))):
        assert "<img" not in html and "&lt;img" in html
