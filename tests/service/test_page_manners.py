"""The page for everybody: by keyboard, with a token, without an answer, on every screen, and safe."""

import io
import re
import shutil
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from service.browsing import PAGE, VIEWS, alert, file, judged, newest
from service.serving import image, serving

from nfad.report.rendering import source


def test_everything_by_keyboard(opened, client, past):
    page = opened()
    page.on("filechooser", lambda _: None)  # the browser is told at the first listener, which takes a moment
    page.locator("#inspect-title").wait_for()
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.id") != "choose":
        page.keyboard.press("Tab")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files([file("keys.png", defect=True)])
    page.locator("#inspect-detail article").wait_for()
    while page.evaluate("document.activeElement.ariaLabel") != "Strength of the filter in the map":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert page.get_by_label("Strength of the filter").get_attribute("aria-valuetext") == "99% of the filter"
    with page.expect_response("**/review"):
        page.keyboard.press("b")
    assert newest(client, search="keys.png")["review"]["verdict"] == "bad"

    page.keyboard.press("/")
    page.locator("#search:focus").wait_for()
    page.keyboard.type("cam1-0")
    page.locator("#history-count", has_text="6 inspections").wait_for()
    page.keyboard.press("Escape")  # out of the field
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    first = page.locator("#grid a").nth(1)
    assert first.evaluate("link => link === document.activeElement")
    page.keyboard.press("Enter")
    page.locator("#history-detail h1:focus").wait_for()
    name = page.locator("#history-detail h1").inner_text()
    page.keyboard.press("ArrowRight")
    page.locator("#history-detail h1", has_not_text=name).wait_for()
    with page.expect_response("**/review"):
        page.keyboard.press("u")
    page.keyboard.press("Escape")
    page.locator("#grid a:focus .badge.unsure").wait_for()  # back where one was, and marked

    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()
    page.keyboard.press("Escape")
    page.locator("#help:not([open])").wait_for(state="attached")


def test_a_few_keys_lead_to_the_tiles_and_one_leads_past_them(opened, client, past):
    page = opened("history?search=cam")
    tiles = page.locator("#grid a")
    tiles.nth(len(past) - 1).wait_for()
    focused = page.locator(":focus")
    for keys in (["Tab", "Enter", "Tab", "Enter"], ["Shift+Tab", "Tab"]):
        for key in keys:
            page.keyboard.press(key)
        assert focused.get_attribute("href") == tiles.first.get_attribute("href")
    assert page.evaluate("location.hash") == "#/history?search=cam"  # skipping leads nowhere else
    assert page.locator(".hint").is_visible()
    assert page.locator("#grid a[tabindex='0']").count() == 1
    row = len({tile.bounding_box()["x"] for tile in tiles.all()})
    assert 1 < row < len(past)
    for key, place in {
        "ArrowDown": row,
        "ArrowRight": row + 1,
        "ArrowUp": 1,
        "ArrowLeft": 0,
        "End": len(past) - 1,
        "Home": 0,
    }.items():
        page.keyboard.press(key)
        assert focused.get_attribute("href") == tiles.nth(place).get_attribute("href"), key
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert page.locator("#grid a:focus").count() == 0
    page.keyboard.press("Shift+Tab")  # back where one was
    assert focused.get_attribute("href") == tiles.nth(1).get_attribute("href")
    page.get_by_label("File name").fill("cam0")
    page.locator("#history-count", has_text="6 inspections").wait_for()
    assert page.locator("#grid a[tabindex='0']").count() == 1  # though the tile that was it is gone
    page.get_by_label("File name").fill("nothing like it")
    page.locator("#history-count", has_text="No inspection matches").wait_for()
    assert page.locator("#grid-skip").is_hidden()  # to nothing


def test_single_keys_can_be_switched_off(opened, past):
    page = opened("history")
    page.locator("#grid a").first.click()
    page.locator("#history-detail h1").wait_for()
    page.get_by_role("button", name="help").click()
    page.get_by_label("Use single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_hidden()
    page.reload()
    page.locator("#history-detail h1").wait_for()
    page.keyboard.press("/")
    assert page.locator("#history-detail").is_visible()


def test_a_token_is_asked_for(opened, model, tmp_path):
    with serving([model], tmp_path, token="correct-horse-battery") as guarded:
        page = opened(at=guarded)
        page.locator("#login").wait_for()
        assert page.locator("#views").is_hidden() and page.locator("#token:focus").count() == 1
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        alert(page, "That is no token of this service")
        page.get_by_label("Token").fill("correct-horse-battery")
        page.keyboard.press("Enter")
        page.locator("#inspect-title").wait_for()
        judged(page, file("mine.png"))
        page.get_by_role("button", name="Log out").click()
        page.locator("#login").wait_for()
        page.reload()
        page.locator("#login").wait_for()
        assert page.locator("#inspect").is_hidden()
        page.close()


def test_a_service_that_does_not_answer_is_told(opened):
    page = opened()
    page.locator("#inspect-title").wait_for()
    page.context.set_offline(True)
    page.get_by_role("link", name="Drift", exact=True).click()
    alert(page, "The service does not answer")
    page.context.set_offline(False)
    page.get_by_role("link", name="Review", exact=True).click()
    page.locator("#review-body .counts").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_object_to(opened, client, past, scheme):
    if find_spec("axe_playwright_python") is None:
        pytest.skip("there is no axe-core; pip install axe-playwright-python brings it")
    [folder] = find_spec("axe_playwright_python").submodule_search_locations
    page = opened("threshold", scripts=[Path(folder) / "axe.min.js"], color_scheme=scheme, reduced_motion="reduce")
    objections = {}

    rules = [] if scheme == "light" else ["color-contrast"]  # nothing else differs

    def examine(name):
        options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
        found = page.evaluate("options => axe.run(document, options)", options)["violations"]
        objections.update({f"{name}: {each['id']}": [node["html"] for node in each["nodes"]] for each in found})

    page.locator("#what-if .answer").wait_for()
    examine("threshold")
    for view, ready in (
        ("drift", ".chart"),
        ("review", "#review-body .counts"),
        ("history", "#grid a"),
        (f"history/{past[0]['id']}", "#history-detail .found:has-text('threshold')"),
        ("inspect", "#inspect-title"),
    ):
        page.goto(f"/#/{view}")
        page.locator(ready).first.wait_for()
        examine(view)
    client.post("/v1/inspect", files=image(name=f"{scheme}-1.png")).raise_for_status()
    page.goto(f"/#/history?search={scheme}")
    page.locator("#history-count", has_text=re.compile("^1 inspection$")).wait_for()
    page.locator("#grid a").first.focus()
    client.post("/v1/inspect", files=image(name=f"{scheme}-2.png")).raise_for_status()
    page.evaluate("dispatchEvent(new Event('online'))")
    page.locator("#news").wait_for()
    examine("news")
    page.goto("/#/inspect")
    page.set_input_files("#files", [file("x.txt") | {"buffer": b"no"}])
    page.locator("#alerts .note").wait_for()
    examine("refusal")
    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('online'))")
    alert(page, "Connection lost")
    examine("lost")
    page.keyboard.press("?")
    examine("help")
    assert not objections


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(1366, 900, "dark"), (1024, 768, "light"), (768, 1024, "dark"), (390, 844, "light")]
)
def test_it_fits_every_screen_in_light_and_dark(opened, past, width, height, scheme, tmp_path):
    page = opened(f"history/{past[0]['id']}", viewport={"width": width, "height": height}, color_scheme=scheme)
    page.locator("#history-detail .found", has_text="threshold").wait_for()
    shot = np.asarray(Image.open(io.BytesIO(page.screenshot(path=tmp_path / "page.png"))).convert("L"), dtype=float)
    edge = shot[-200:, :8].mean()  # the paper beside the content
    assert edge > 200 if scheme == "light" else edge < 50
    for view in VIEWS:
        page.goto(f"/#/{view}")
        page.locator(f"#{view}").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


@pytest.mark.parametrize("width", [390, 360])
def test_a_phones_header_is_a_row_and_the_views(opened, model, tmp_path, width):
    other = tmp_path / "another-long-name.nfad"
    shutil.copy(model, other)
    with serving([model, other], tmp_path / "data", token="correct-horse-battery") as two:
        page = opened(at=two, viewport={"width": width, "height": 700})
        page.get_by_label("Token").fill("correct-horse-battery")
        page.keyboard.press("Enter")
        page.locator("#model").wait_for()
        boxes = [
            page.locator(each).bounding_box() for each in (".brand", "#model", "#alarm", "#help-button", "#logout")
        ]
        middles = [box["y"] + box["height"] / 2 for box in boxes]
        assert max(middles) - min(middles) < 2 and boxes[0]["y"] > 8
        for left, right in pairwise(boxes):
            assert left["x"] + left["width"] <= right["x"]
        assert boxes[-1]["x"] + boxes[-1]["width"] <= width
        page.close()


def test_what_is_said_on_a_tile_stays_within_it(opened, client, past):
    for each, verdict in zip(past, ("unsure", "good", "bad")):
        client.put(f"/v1/inspections/{each['id']}/review", json={"verdict": verdict}).raise_for_status()
    page = opened("history?review=any", viewport={"width": 360, "height": 700})
    page.locator("#grid .badge.unsure").first.wait_for()
    room = "badge => badge.closest('.tile').getBoundingClientRect().right - badge.getBoundingClientRect().right"
    assert min(badge.evaluate(room) for badge in page.locator("#grid .badge").all()) >= 8
    assert re.search(r"\d:\d\d:\d\d", page.locator("#grid time").first.inner_text())


def test_the_page_has_the_reports_colours_and_no_others():
    styles = "".join((PAGE / name).read_text(encoding="utf-8") for name in ("look.css", "views.css"))
    assert len(re.findall(r"--[a-z-]+: #[0-9a-f]+", source("palette.css"))) > 30
    assert not re.search(r"--[a-z-]+: #[0-9a-f]+", styles)
    assert 'href="palette.css"' in (PAGE / "index.html").read_text(encoding="utf-8")


def test_no_script_or_style_is_inline_and_no_data_becomes_markup():
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son[a-z]+=|https?://", html)
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")
    for script in PAGE.glob("*.js"):
        assert not markup.search(script.read_text(encoding="utf-8")), script
