import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from browser import objections
from markup import Balanced

from nfad.model import load_model
from nfad.report.stress import figures_of, prediction_at, ranges_of, shown_image, write_results
from nfad.stress.axes import AXES, photographed
from nfad.stress.findings import judge
from nfad.stress.measure import Step
from nfad.stress.session import stress
from nfad.stress.words import range_told
from nfad.verdict.threshold import Threshold

COUNT = 24
AXES_TRIED = {name: AXES[name] for name in ("exposure", "noise")}
FLAGGED, PASSED = (2.0,) * COUNT, (0.0,) * COUNT


def findings(breaking=(), missing=()):
    """All normals are flagged at the named strengths, and none elsewhere; every defect is found but where missing."""
    places = [("", 0.0), *((axis.name, strength) for axis in AXES_TRIED.values() for strength in axis.strengths)]
    steps = {}
    for place in places:
        normal = FLAGGED if place in breaking else PASSED
        damaged = PASSED if place in missing else FLAGGED
        steps[place] = Step({"unfiltered": normal, "filtered": normal}, {"unfiltered": damaged, "filtered": damaged})
    return judge(steps, AXES_TRIED, [f"{i}.png" for i in range(COUNT)], {"unfiltered": 1.0, "filtered": 1.0}, 0.01)


@pytest.fixture(scope="module")
def page(detector, found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    written = write_results(found, detector, "What <b>part</b> bears", folder)
    assert [path.name for path in written] == ["report.html", "results.csv", "results.json"]
    return written[0].read_text(encoding="utf-8")


def test_the_page_is_whole_needs_nothing_else_and_trusts_no_name(page, found):
    parsed = Balanced(page)
    assert not re.search(r"https?://|//cdn|@import|<link", page)
    images = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert all(image["src"].startswith("data:image/") and "onerror" not in image for image in images)
    assert "What &lt;b&gt;part&lt;/b&gt; bears" in page and "<b>part" not in page
    assert any(shown_image(found.findings, curve)[1] is not None for curve in found.findings.curves)  # a card is shown
    assert "&lt;img src=x onerror=" in page
    targets = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    assert {attributes["href"][1:] for tag, attributes in parsed.tags if tag == "a"} <= targets


def test_every_axis_has_all_curves_a_picture_a_strength_and_its_sentence(page, found):
    numbers = json.loads(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1]))
    for curve in found.findings.curves:
        title = curve.axis.title
        for name in ("False alarms", "Synthetic defects found", "Not judged"):
            assert page.count(f'aria-label="{title}: {name}"') == 1
        assert len(re.findall(rf'<img alt="{title}: ', page)) == len(curve.points)
        assert numbers["axes"][curve.axis.name]["told"] in unescape(page)
    assert page.count('<figure class="asis">') == len(found.findings.curves)


def test_the_first_screen_says_how_far_each_condition_may_go(page, found):
    first = page[: page.index('<dl class="metadata">')]
    rows = re.findall(r'<li><a class="title" href="#([\w-]+)">(.*?)</li>', first, re.DOTALL)
    assert {name for name, _ in rows} == {curve.axis.name for curve in found.findings.curves}
    for name, row in rows:
        curve = next(curve for curve in found.findings.curves if curve.axis.name == name)
        for arm in ("filtered", "unfiltered"):
            assert range_told(found.findings, curve, arm) in unescape(row)
            [(left, right)] = re.findall(rf'<i class="{arm}" style="left: ([\d.]+)%; right: ([\d.]+)%">', row)
            holds = [side.holds / max(map(abs, curve.axis.of_side(side.side))) for side in
                     found.findings.both(curve.axis, arm)]  # fmt: skip
            length = sum(map(abs, holds)) / len(holds)
            assert 100 - float(left) - float(right) == pytest.approx(100 * length, abs=0.1)


@pytest.mark.parametrize("kind", ["fitted", "exported"])
def test_the_card_of_a_moved_part_says_what_was_counted(detector, shipped, odd, kind):
    stricter = replace(detector, held_out=Threshold((-9.0,) * 20, (-9.0,) * 20))
    if kind == "exported":
        stricter = replace(load_model(shipped.folder), held_out=stricter.held_out)
    found = stress(stricter, odd, ["shift-x"], images=6, limit=0.3)
    [curve] = found.findings.curves
    # As it is everything is flagged, so the first strength shown is 0; beyond it the card must tell the same scores.
    index, step = 0, found.findings.steps["shift-x", 12]
    told = prediction_at(stricter, found.parts, found.findings, curve.axis, 12, index)
    assert (told.score, told.unfiltered_score) == (step.normal["filtered"][index], step.normal["unfiltered"][index])
    known = photographed(curve.axis, 12, told.map.shape[-1]).numpy()
    assert (np.isnan(told.map) == ~known).all() and (np.isnan(told.unfiltered_map) == ~known).all()


@pytest.mark.parametrize("axis", ["shift-x", "noise"])
def test_a_card_never_calls_what_was_not_judged_anomalous(detector, odd, refusing, axis):
    """However far above the threshold its score is."""
    stricter = replace(detector, held_out=Threshold((-9.0,) * 20, (-9.0,) * 20))
    for model, verdict in ((stricter, "anomalous"), (refusing(stricter, lambda _: True), "not judged")):
        found = stress(model, odd, [axis], images=6, limit=0.3)
        [curve] = found.findings.curves
        strength = curve.axis.strengths[0]
        told = prediction_at(model, found.parts, found.findings, curve.axis, strength, 0)
        assert told.verdict == told.unfiltered_verdict == verdict
        assert told.is_anomalous == (verdict == "anomalous") and told.score > told.threshold


def test_axe_finds_nothing_to_object_to(page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    assert objections(file) == {}


def test_the_gate_is_explained_only_where_there_is_one(page, detector, shipped, odd, tmp_path):
    assert detector.config.localization == "detection" and not re.search(r"\bgate\b", page, re.IGNORECASE)
    assert shipped.detector.config.localization == "global"
    found = stress(shipped.detector, odd, ["exposure"], images=6, limit=0.3)
    text = write_results(found, shipped.detector, "x", tmp_path)[0].read_text(encoding="utf-8")
    assert "The gate says" in text and text.count("<article") == text.count("<p>Gate ")


def test_the_part_shown_is_one_of_what_ends_it(found):
    for curve in found.findings.curves:
        place, strength, damaged = shown_image(found.findings, curve)
        if strength is not None:
            step = found.findings.steps[curve.axis.name, strength]
            for arm, threshold in found.findings.thresholds.items():
                ends = [side for side in found.findings.both(curve.axis, arm) if side.ends == strength]
                score = (step.damaged if damaged else step.normal)[arm][place]
                refused = np.isnan(score) and any(side.refuses == strength for side in ends)
                if ends and (refused or (score > threshold) != damaged):
                    break
            else:
                raise AssertionError(curve.axis.name)


def test_where_defects_are_missed_a_missed_one_is_shown():
    missed = findings(missing=[("noise", 5)])
    curve = next(curve for curve in missed.curves if curve.axis.name == "noise")
    assert shown_image(missed, curve)[1:] == (5, True)
    assert figures_of(missed)[0].value == "1 of 2"


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        ([("noise", 2)], "2% is where noise ends it, before all else: too many good parts flagged noisier"),
        (
            [("noise", 15), ("exposure", -0.5)],
            "−0.5 stops is where exposure ends it, before all else: too many good parts flagged darker",
        ),
        ([("", 0.0)], "as they are too many good parts flagged already no change is needed"),
        ([], "none of the conditions tried ends it"),
    ],
)
def test_the_figure_of_the_first_break_names_its_condition(breaking, words):
    assert " ".join(figures_of(findings(breaking))[1]).strip() == words


def test_the_first_screen_tells_both_errors_as_far_as_it_holds_and_what_ends_it():
    for arm in next(row for row in ranges_of(findings([("noise", 2)])) if row.axis == "noise").arms:
        assert [words.partition(" not")[0] for words in arm.there] == [
            "as it is: 0% of good parts flagged, 100% of defects found"
            + (", 0% of good parts" if arm.name == "filtered" else "")
        ]
        assert arm.then == ["2%: too many good parts flagged"] and arm.ends_at_once
    for arm in ranges_of(findings())[0].arms:
        assert arm.then == [] and not arm.ends_at_once


def test_the_first_condition_to_break_stands_at_the_top():
    assert [row.axis for row in ranges_of(findings([("noise", 15)]))] == ["noise", "exposure"]
    assert [row.axis for row in ranges_of(findings([("noise", 15), ("exposure", 0.25)]))] == ["exposure", "noise"]
