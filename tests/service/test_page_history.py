"""Past inspections on the page, and those that are made while somebody looks."""

import re
from dataclasses import replace

import pytest
from service.browsing import alert
from service.serving import image, png

from nfad.service.record import new_id


def test_the_history_filters_and_pages(opened, client, past):
    page = opened("history")
    page.locator("#grid a").first.wait_for()
    page.get_by_label("Verdict").select_option("anomalous")
    wanted = client.get("/v1/inspections", params={"verdict": "anomalous"}).json()["inspections"]
    page.locator("#history-count", has_text=re.compile(rf"^{len(wanted)} inspections?$")).wait_for()
    page.get_by_role("button", name="Clear").click()
    one = client.service.store.get(past[0]["id"])
    client.service.store.add([replace(one, id=new_id(), image=f"more-{i}.png") for i in range(60)])
    page.get_by_label("File name").fill("more-")
    page.locator("#history-count", has_text="48 inspections shown").wait_for()
    page.get_by_role("button", name="Show older ones").click()
    page.locator("#history-count", has_text="60 inspections").wait_for()
    assert page.locator("#grid > li").count() == 60 and page.locator("#more").is_hidden()
    page.get_by_label("From").fill("2099-01-01")
    page.locator("#history-count", has_text="No inspection matches").wait_for()


def test_an_inspection_whose_pictures_are_gone_is_still_told(opened, client, past):
    client.service.store.mark_pictures_removed([past[1]["id"]])
    page = opened(f"history/{past[1]['id']}")
    page.get_by_text("were removed to keep the disk free").wait_for()
    assert page.locator("#history-detail .verdict").get_by_text(past[1]["explanation"]).is_visible()


@pytest.fixture
def machine(client, past):
    """Makes inspections as a line would, while somebody looks at the page."""

    def inspect(count, name):
        files = [("image", (f"{name}-{number}.png", png(number), "image/png")) for number in range(count)]
        return [each["inspection"]["id"] for each in client.post("/v1/batch", files=files).json()["results"]]

    return inspect


def soon(page):
    """What the page would do within seconds; coming back to a network is a reason to look at once."""
    page.evaluate("dispatchEvent(new Event('online'))")


def listed(opened, **options):
    page = opened("history", **options)
    page.locator("#grid a").first.wait_for()
    return page


def test_what_the_line_makes_appears_by_itself_where_it_disturbs_nobody(opened, client, past):
    page = listed(opened)
    page.get_by_label("File name").fill("fresh-")
    page.locator("#history-count", has_text="No inspection matches").wait_for()
    client.post("/v1/inspect", files=image(png(70), "fresh-0.png")).raise_for_status()
    client.post("/v1/inspect", files=image(png(71), "other.png")).raise_for_status()
    page.locator("#grid .name", has_text="fresh-0").wait_for()  # nothing was touched: its own few seconds
    page.locator("#said", has_text="1 new inspection").wait_for(state="attached")
    assert page.locator("#grid > li").count() == 1 and page.locator("#news").is_hidden()
    assert page.locator("#history-count").inner_text() == "1 inspection"
    assert page.locator("#search:focus").input_value() == "fresh-"
    client.post("/v1/inspect", files=image(png(72), "fresh-1.png")).raise_for_status()
    soon(page)
    page.locator("#grid .name", has_text="fresh-1").wait_for()
    assert [each.split(".")[0] for each in page.locator("#grid .name").all_inner_texts()] == ["fresh-1", "fresh-0"]
    assert "fresh" not in page.locator("#said").inner_text() and "1 new" in page.locator("#said").inner_text()


def test_who_reads_further_down_is_told_and_not_moved(opened, machine):
    page = listed(opened, viewport={"width": 800, "height": 500})
    page.mouse.move(1, 1)
    page.evaluate("scrollTo(0, 400)")
    first = page.locator("#grid .name").first.inner_text()
    machine(5, "below")
    soon(page)
    page.get_by_role("button", name=re.compile("^5 new inspections")).wait_for()
    machine(2, "further")
    soon(page)
    page.get_by_role("button", name=re.compile("^7 new inspections")).wait_for()
    assert page.evaluate("scrollY") == 400 and page.locator("#grid .name").first.inner_text() == first
    page.keyboard.press("n")
    page.locator("#grid a:focus", has_text="further-").wait_for()
    assert page.evaluate("scrollY") == 0 and page.locator("#news").is_hidden()
    names = page.locator("#grid .name").all_inner_texts()[:7]
    assert [name.split("-")[0] for name in names] == 2 * ["further"] + 5 * ["below"] and len(set(names)) == 7


def test_the_tile_under_the_keyboard_stays_where_it_is(opened, machine):
    page = listed(opened)
    page.keyboard.press("ArrowRight")
    focused = page.locator("#grid a:focus")
    before = focused.bounding_box()
    machine(1, "focus")
    soon(page)
    page.get_by_role("button", name=re.compile("^1 new inspection")).wait_for()
    assert focused.bounding_box() == before


def test_an_open_inspection_is_left_alone_and_the_newer_ones_follow_it(opened, machine):
    page = listed(opened)
    page.locator("#grid a").first.click()
    page.locator("#history-detail .found", has_text="threshold").wait_for()
    page.get_by_label("Strength of the filter").fill("40")
    page.get_by_label("Note").fill("half a sen")
    [made] = machine(1, "newer")
    with page.expect_response("**/v1/inspections?*"):
        soon(page)
    page.locator(f"#grid [data-id='{made}']").wait_for(state="attached")
    assert page.get_by_label("Note").input_value() == "half a sen"
    assert page.get_by_label("Strength of the filter").input_value() == "40"
    assert page.locator("#history-detail textarea:focus").count() == 1
    page.get_by_role("button", name="Newer").click()
    page.locator("#history-detail h1", has_text="newer-0").wait_for()


def test_more_than_a_page_of_new_ones_leaves_no_gap(opened, client, machine):
    page = listed(opened)
    made = machine(60, "many")
    soon(page)
    page.locator(f"#grid [data-id='{max(made)}']").wait_for()
    page.get_by_role("button", name="Show older ones").click()
    page.locator("#grid > li").nth(60).wait_for()
    shown = [each.get_attribute("data-id") for each in page.locator("#grid > li").all()]
    kept = client.get("/v1/inspections", params={"limit": len(shown)}).json()["inspections"]
    assert shown == [each["id"] for each in kept]


def test_a_lost_connection_is_told_and_made_up_for(opened, machine):
    page = opened("history")
    page.clock.install()
    page.locator("#grid a").first.click()
    page.get_by_label("Note").fill("kept")
    page.context.set_offline(True)
    page.clock.fast_forward(6_000)
    alert(page, "Connection lost")
    assert page.locator("#alarm").inner_text() == "Connection lost"
    machine(1, "missed")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert 1 <= len(asked) <= 5  # less and less often
    page.context.set_offline(False)
    alert(page, "Connected again")
    assert page.locator("#alarm").inner_text() in ("Drift", "Steady")
    assert page.locator("#alerts .note").count() == 1 and page.get_by_label("Note").input_value() == "kept"
    page.keyboard.press("Escape")  # out of the field
    page.keyboard.press("Escape")
    page.locator("#grid .name", has_text="missed-0").wait_for()


def test_nothing_is_asked_while_nobody_looks(opened, past):
    page = opened("history")
    page.locator("#grid a").first.wait_for()
    page.clock.install()
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    page.wait_for_load_state("networkidle")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert not asked
    with page.expect_response("**/v1/inspections?*"):
        page.evaluate(hide, False)
