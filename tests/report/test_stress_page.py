import json
import re
import shutil
from dataclasses import replace
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from markup import Balanced
from nfad.evaluation.exported import Exported
from nfad.judge import load_judge

from nfad.report.stress_page import prediction_at, shown_image
from nfad.stress.axes import photographed
from nfad.stress.findings import range_told
from nfad.stress.session import stress, write_results
from nfad.verdict.threshold import Threshold

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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


def test_every_axis_has_both_curves_a_picture_a_strength_and_its_sentence(page, found):
    numbers = json.loads(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1]))
    for curve in found.findings.curves:
        title = curve.axis.title
        for name in ("False alarms", "Synthetic defects found"):
            assert page.count(f'aria-label="{title}: {name}"') == 1
        assert len(re.findall(rf'<img alt="{title}: ', page)) == len(curve.points)
        assert numbers["axes"][curve.axis.name]["told"] in unescape(page)
    assert page.count('<figure class="asis">') == len(found.findings.curves)


def test_the_first_screen_says_how_far_each_condition_may_go(page, found):
    first = page[: page.index('<dl class="facts">')]
    rows = re.findall(r'<li><a class="title" href="#([\w-]+)">(.*?)</li>', first)
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
        judge = load_judge(shipped.folder)
        stricter = Exported(replace(judge, engine=replace(judge.engine, held_out=stricter.held_out)))
    found = stress(stricter, odd, ["shift-x"], images=6, limit=0.3)
    [curve] = found.findings.curves
    # As it is everything is flagged, so the first strength shown is 0; beyond it the card must tell the same scores.
    index, step = 0, found.findings.steps["shift-x", 12]
    told = prediction_at(stricter, found.parts, found.findings, curve.axis, 12, index)
    assert (told.score, told.unfiltered_score) == (step.normal["filtered"][index], step.normal["unfiltered"][index])
    known = photographed(curve.axis, 12, told.map.shape[-1]).numpy()
    assert (np.isnan(told.map) == ~known).all() and (np.isnan(told.unfiltered_map) == ~known).all()


def test_axe_finds_nothing_to_object_to(page, tmp_path):
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; install it to look at the page")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright drives the browser")
    if find_spec("axe_playwright_python") is None:
        pytest.skip("there is no axe-core; pip install axe-playwright-python brings it")
    from playwright.sync_api import sync_playwright

    [folder] = find_spec("axe_playwright_python").submodule_search_locations
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    objections = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for width, scheme in ((1280, "light"), (390, "light"), (820, "dark")):
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.add_init_script(path=Path(folder) / "axe.min.js")
            tab.goto(file.as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}  # nothing else differs
            options = {"resultTypes": ["violations"]} | rules
            found = tab.evaluate("options => axe.run(document, options)", options)["violations"]
            objections |= {(width, each["id"]): [node["html"] for node in each["nodes"]] for each in found}
            assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing is cut off
        browser.close()
    assert objections == {}


def test_the_part_shown_is_one_that_is_flagged_where_it_breaks(found):
    for curve in found.findings.curves:
        index, strength = shown_image(found.findings, curve)
        if strength is not None:
            step = found.findings.steps[curve.axis.name, strength]
            assert any(step.normal[arm][index] > found.findings.thresholds[arm] for arm in ("unfiltered", "filtered"))
