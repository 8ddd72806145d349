"""What is not judged, on the page: its own colour, sign and words, and nothing that makes it pass for good or bad."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from service.browsing import VIEWS
from service.judging import BLACK, WHITE, choosy
from service.serving import image, png, serving

SENT = {"black.png": BLACK, "white.png": WHITE, "good.png": png(1), "dent.png": png(2, defect=True)}


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    with serving([model], tmp_path_factory.mktemp("data"), load=choosy) as client:
        for seed in range(30):
            client.post("/v1/inspect", files=image(png(10 + seed), f"early-{seed}.png")).raise_for_status()
        client.kept = {
            name: client.post("/v1/inspect", files=image(content, name)).json() for name, content in SENT.items()
        }
        yield client


def colour(node):
    return node.evaluate("node => getComputedStyle(node).color")


def test_a_photo_that_is_sent_is_told_to_be_neither(opened):
    page = opened()
    files = [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in SENT.items()]
    page.set_input_files("#files", files)
    page.locator("#jobs .tile .badge").nth(3).wait_for()
    tiles = {name: page.locator("#jobs button", has_text=name) for name in SENT}
    assert tiles["black.png"].get_attribute("aria-label") == "black.png: Not judged"
    assert page.locator("#jobs .badge.not-judged").count() == 2
    box = page.locator("#inspect-detail .verdict")
    box.get_by_text("Does not look like the fitted part.").wait_for()
    assert "Not judged" in box.inner_text() and "Neither good nor bad" in box.inner_text()
    assert box.locator(".turned").count() == 0  # its unfiltered score is high, but no verdict was changed
    shapes, colours = set(), set()
    for name, kind in (("black.png", "not-judged"), ("good.png", "normal"), ("dent.png", "anomalous")):
        badge = tiles[name].locator(f".badge.{kind}")
        shapes.add(badge.locator("svg").inner_html())
        colours.add(colour(badge))
    assert len(shapes) == len(colours) == 3
    tiles["white.png"].click()
    box.get_by_text("The model found no finite score for this photo.").wait_for()
    assert page.locator("#inspect-detail .score").count() == 0


@pytest.mark.parametrize("name", ["black.png", "white.png"])
def test_its_numbers_are_compared_with_nothing_and_its_map_is_hidden_and_never_outlined(opened, client, name):
    page = opened(f"history/{client.kept[name]['id']}")
    detail = page.locator("#history-detail")
    detail.locator(".found", has_text="not judged").wait_for()
    assert detail.locator(".score").count() == 0
    shown = detail.inner_text()
    assert "≤" not in shown and ">" not in shown and "above the threshold" not in shown and "normal parts" not in shown
    assert detail.locator(".track.over, .track u").count() == 0
    assert detail.locator(".heat").evaluate("heat => getComputedStyle(heat).opacity") == "0"
    for place in ("0", "30", "100"):
        page.get_by_label("Strength of the filter").fill(place)
        assert not detail.locator(".outline path").get_attribute("d")
    page.get_by_label("Opacity of the map").fill("100")
    assert detail.locator(".heat").evaluate("heat => getComputedStyle(heat).opacity") == "1"
    assert ("Strangeness 1.50" in shown) == (name == "black.png")


def test_the_history_finds_it_and_says_why_on_its_tile(opened, client):
    page = opened("history")
    page.get_by_label("Verdict").select_option("not judged")
    kept = client.get("/v1/inspections", params={"verdict": "not judged"}).json()["inspections"]
    page.locator("#history-count", has_text=re.compile(rf"^{len(kept)} inspections$")).wait_for()
    assert page.url.endswith("#/history?verdict=not+judged")
    tiles = page.locator("#grid a")
    assert page.locator("#grid .badge.not-judged").count() == tiles.count() == len(kept) >= 2
    assert all("≤" not in text and ">" not in text and "changed" not in text for text in tiles.all_inner_texts())
    assert "Does not look like the fitted part" in tiles.filter(has_text="black.png").first.inner_text()
    page.reload()
    page.locator("#grid .badge.not-judged").first.wait_for()
    assert page.get_by_label("Verdict").input_value() == "not judged"


def test_news_of_it_say_so(opened, client):
    page = opened("history?search=late-")
    page.locator("#history-count", has_text="No inspection matches").wait_for()
    late = {"late-1.png": BLACK, "late-2.png": png(3), "late-3.png": png(2, defect=True)}
    found = [client.post("/v1/inspect", files=image(content, name)).json() for name, content in late.items()]
    bad = sum(each["verdict"] == "anomalous" for each in found)
    assert found[0]["verdict"] == "not judged" and bad
    page.evaluate("dispatchEvent(new Event('online'))")
    page.locator("#said", has_text=f"3 new inspections, {bad} anomalous, 1 not judged.").wait_for(state="attached")


def test_no_threshold_moves_it(opened, client):
    page = opened("threshold")
    rates = page.locator("#rates input")
    rates.first.wait_for()
    for at in range(rates.count()):
        rates.nth(at).check()
        told = client.get("/v1/models/part/what-if", params={"rate": rates.nth(at).get_attribute("value")}).json()
        page.locator("#what-if .answer", has_text=f"{told['anomalous']['at_rate']} would be rejected").wait_for()
        shown = page.locator("#what-if").inner_text()
        assert f"Of {told['inspections']} judged parts" in shown
        assert f"{told['not_judged']} photos not judged, and no threshold changes that." in shown
        assert page.locator("#what-if .few", has_text=re.compile("black|white|late-1")).count() == 0
    page.locator("#what-if .apart a").click()
    page.locator("#grid .badge.not-judged").first.wait_for()


def test_an_operator_may_review_it_and_it_is_counted_apart(opened, client):
    page = opened(f"history/{client.kept['black.png']['id']}")
    page.locator("#history-detail .found", has_text="not judged").wait_for()
    before = client.get("/v1/review").json()
    page.keyboard.press("b")
    page.locator("#history-detail .state", has_text="Reviewed today").wait_for()
    told = client.get("/v1/review").json()
    assert told["not_judged"]["bad"] == 1 and told["table"] == before["table"] and told["recall"] == before["recall"]
    page.goto("/#/review")
    row = page.locator("#review-body tr", has_text="Not judged")
    row.wait_for()
    assert [text.strip() for text in row.locator("td").all_inner_texts()] == ["1", "0"]  # neither right nor wrong
    shown = " ".join(page.locator("#review-body .counts").inner_text().split())
    assert f"{told['not_judged']['inspections']} not judged 1 reviewed: 0 good, 1 bad, 0 unsure" in shown
    page.get_by_role("link", name="See the photos that are not judged").click()
    page.locator("#grid .badge.not-judged").first.wait_for()


def test_a_covered_camera_is_an_alarm_and_not_steady(opened, model, tmp_path):
    with serving([model], tmp_path, load=choosy) as line:
        for content in (png(1), png(2), *(12 * [BLACK])):
            line.post("/v1/inspect", files=image(content)).raise_for_status()
        told = line.get("/v1/drift").json()
        page = opened("drift", at=line, viewport={"width": 1280, "height": 800})
        page.locator("#drift-body .verdict.not-judged").get_by_text(told["sentence"]).wait_for()
        for view in VIEWS:
            page.goto(f"/#/{view}")
            assert page.locator("#alarm.not-judged").inner_text() == "Not judged"
        page.goto("/#/drift")
        card = page.locator(".questions .card", has_text="Are many photos not judged?")
        assert card.get_by_text("Yes", exact=True).is_visible()
        assert "The first of them was inspected" in page.locator("#drift-body .verdict").inner_text()
        page.get_by_role("link", name="See the photos that are not judged").click()
        page.locator("#history-count", has_text="12 inspections").wait_for()
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="axe is not installed")
def test_nobody_is_shut_out(opened, client, scheme):
    [folder] = find_spec("axe_playwright_python").submodule_search_locations
    page = opened("threshold", scripts=[Path(folder) / "axe.min.js"], color_scheme=scheme, reduced_motion="reduce")
    objections = {}
    for view, ready in (
        ("threshold", "#what-if .apart"),
        ("review", "#review-body .counts"),
        ("history?verdict=not+judged", "#grid .badge.not-judged"),
        (f"history/{client.kept['black.png']['id']}", "#history-detail .found:has-text('not judged')"),
        ("drift", ".questions"),
    ):
        page.goto(f"/#/{view}")
        page.locator(ready).first.wait_for()
        found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
        objections.update({f"{view}: {each['id']}": [node["html"] for node in each["nodes"]] for each in found})
    assert not objections


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(opened, client, width):
    page = opened("history?verdict=not+judged", viewport={"width": width, "height": 844})
    page.locator("#grid .badge").first.wait_for()
    room = "badge => badge.closest('.tile').getBoundingClientRect().right - badge.getBoundingClientRect().right"
    assert min(badge.evaluate(room) for badge in page.locator("#grid .badge").all()) >= 8
    for view in (f"history/{client.kept['black.png']['id']}", "threshold", "review", "drift"):
        page.goto(f"/#/{view}")
        page.locator(f"#{view.split('/')[0]}").wait_for()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
