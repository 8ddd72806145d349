import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from browser import objections
from commands import nfad
from markup import Balanced
from parts import tiny
from PIL import Image

from nfad import Detector
from nfad.data.demo import DOMAINS
from nfad.records import NOT_JUDGED, Prediction, Sample
from nfad.report import demonstration
from nfad.report.demonstration import demonstrate, shown
from nfad.report.tables import alarm_rate, detection_rate, rate_told, refusals
from nfad.verdict.prediction import Rule
from nfad.vision.render import render_stranger

COUNTS = {"train": 14, "good": 2, "bad": 1}
CONFIG = tiny(false_alarm_rate=0.2, foreground=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def found(folder):
    return demonstrate(folder, config=CONFIG, counts=COUNTS)


@pytest.fixture(scope="module")
def page(found):
    return found.page.read_text(encoding="utf-8")


def lines_of(page):
    """The table's lines, each by its cells."""
    [table] = re.findall(r"<table.*?</table>", page, re.DOTALL)
    lines = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.S) for line in re.findall(r"<tr>.*?</tr>", table, re.S)]
    return [[unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in line] for line in lines if line]


def test_everything_is_in_the_folder(found, folder):
    assert found.page == folder / "index.html"
    assert {path.name for path in folder.iterdir()} == {"set", "demo.nfad", "index.html", "stranger.png"}
    with Image.open(folder / "stranger.png") as image:
        np.testing.assert_array_equal(np.asarray(image), render_stranger())


def test_the_page_is_whole_and_needs_nothing_else(page):
    Balanced(page)
    assert not re.search(r"https?://|//cdn|@import|<link", page)
    for domain in DOMAINS:
        assert f"Domain: {domain}" in page


def test_parts_whose_verdict_the_filter_changed_are_shown_first_for_better_or_worse():
    zeros = np.zeros((2, 2), np.float32)

    def judged(number, domain, anomalous, score, unfiltered):
        sample = Sample(Path(f"{number}.png"), anomalous, domain=domain)
        said = Prediction(
            score=score, is_anomalous=score > 1, threshold=1.0, map=zeros, unfiltered_map=zeros, participation=0.5,
            nuisance_fraction=0.5, unfiltered_score=unfiltered, unfiltered_threshold=1.0,
        )  # fmt: skip
        return sample, said

    plain = [judged(number, "view", False, 0.0, 0.0) for number in range(5)]
    cleared, lost = judged(5, "view", False, 0.0, 2.0), judged(6, "view", True, 0.0, 2.0)
    others = [judged(7, "same", False, 0.0, 2.0), judged(8, "view", True, 2.0, 2.0)]
    assert shown([*plain, others[1], cleared, lost, others[0]], "view") == [cleared, *plain[:2], lost, others[1]]


def test_the_table_tells_both_errors_of_both_arms_in_every_domain(page, found):
    head, *lines = lines_of(page)
    assert [row.domain for row in found.rows] == [*DOMAINS, "all"]
    assert len(lines) == 2 * len(found.rows)
    for row, pair in zip(found.rows, zip(lines[::2], lines[1::2], strict=True), strict=True):
        for arm, line in zip(("unfiltered", "filtered"), pair, strict=True):
            cells = dict(zip(head, line, strict=True))
            assert cells["domain"].startswith(row.domain) and cells["score"] == arm
            assert cells["good flagged"] == rate_told(alarm_rate(row, arm))
            assert cells["bad found"] == rate_told(detection_rate(row, arm))
            assert cells["verdict error"] == f"{row.arms[arm].verdict_error:.3f}"
            assert cells["bad not judged"] == refusals(row, arm, "bad")


def test_the_rate_is_told_in_the_words_of_every_command(page, found):
    assert (
        "of good parts flagged, under the acquisitions it was fitted for" in found.promise
        and found.promise in unescape(page)
    )


def test_the_stranger_is_shown_with_its_verdict(page, found):
    section = page[page.index("A stranger") : page.index("Domain: same")]
    assert section.count("<article") == 1 and "no blade" in section
    assert found.stranger.explain() in unescape(section)


def test_a_stranger_that_is_not_judged_is_told_so_in_page_and_terminal(folder, monkeypatch, found):
    judge, predict = Rule.__call__, Detector.predict

    def strange(rule, out, *more):
        return judge(rule, replace(out, strangeness=1.5, strange="does not look like the fitted part"), *more)

    def predict_strangely(detector, image):
        """Only the stranger is judged alone."""
        with monkeypatch.context() as here:
            here.setattr(Rule, "__call__", strange)
            return predict(detector, image)

    monkeypatch.setattr(Detector, "predict", predict_strangely)
    seen = demonstrate(folder, config=CONFIG, counts=COUNTS)
    assert seen.stranger.verdict == NOT_JUDGED and seen.rows == found.rows
    assert "Not judged: does not look like the fitted part." in unescape(seen.page.read_text(encoding="utf-8"))
    monkeypatch.setattr(demonstration, "demonstrate", lambda *_: seen)
    told = nfad("demo", "--out", folder).stdout
    assert seen.stranger.explain() in " ".join(told.split())
    assert "good flagged" in told and "bad found" in told and "verdict" in told and seen.promise in told
    numbers = json.loads(nfad("demo", "--out", folder, "--json").stdout)
    assert numbers["stranger"]["verdict"] == "not judged" and numbers["stranger"]["strangeness"] == 1.5


def test_axe_finds_nothing_to_object_to(found):
    assert objections(found.page) == {}
