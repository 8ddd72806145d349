"""The line view: for a person with gloves, three metres away."""

import math

import pytest
from service.browsing import newest
from service.serving import image, png, serving

SCREENS = [(768, 1024), (1280, 800), (390, 844), (1024, 600)]


@pytest.fixture
def line(model, tmp_path, opened):
    """A station of its own with a few parts, and the view on one of them."""
    with serving([model], tmp_path) as client:
        for seed in range(4):
            client.post("/v1/inspect", files=image(png(60 + seed, defect=seed == 1), f"part-{seed}.png"))
        yield client, lambda **options: opened("line", at=client, **options)


def wait_for_part(page, name):
    page.locator("#line-name", has_text=name).wait_for()
    page.wait_for_timeout(800)  # a touch before that is not meant for this part


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_verdict_and_targets_are_large_and_all_on_one_screen(line, width, height):
    _, go = line
    page = go(viewport={"width": width, "height": height}, has_touch=True)
    wait_for_part(page, "part-3")
    size = page.locator("#line-verdict span").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert size >= min(0.105 * width, 0.13 * height, 88)
    if height > width >= 600:  # capitals of 15 mm, seven tenths of the size, on a screen of ten inches
        assert 0.7 * size * 254 / math.hypot(width, height) >= 14.5
    for words in ("Anomalous", "Not judged"):
        sides = "(e, words) => (e.textContent = words, [e.offsetWidth, e.offsetHeight, e.parentElement.clientWidth])"
        wide, high, room = page.locator("#line-verdict span").evaluate(sides, words)
        assert wide <= room and high < 1.5 * size, words  # on one line
    boxes = [page.locator("#line-buttons button").nth(i).bounding_box() for i in range(3)]
    for box in boxes:
        assert box["height"] >= 64  # 17 mm, on a screen of 16 cm and box["width"] >= 100
        assert box["y"] + box["height"] <= height and box["x"] + box["width"] <= width
    gaps = [
        max(b["x"] - a["x"] - a["width"], b["y"] - a["y"] - a["height"]) for a, b in zip(boxes, boxes[1:], strict=False)
    ]
    assert min(gaps) >= 16
    assert page.evaluate("[document.documentElement.scrollHeight, document.documentElement.scrollWidth]") == [
        height,
        width,
    ]
    photo = page.locator("#line-photo").bounding_box()
    assert photo["height"] * photo["width"] > 0.2 * width * height


def test_the_next_part_comes_by_itself_and_a_verdict_can_be_undone(line):
    client, go = line
    page = go()
    wait_for_part(page, "part-3")
    with page.expect_response("**/review"):
        page.get_by_role("button", name="Bad", exact=True).click()
    assert newest(client)["review"]["verdict"] == "bad"
    page.get_by_role("button", name="Undo: Bad").click()
    page.locator("#line-undo").wait_for(state="hidden")
    assert newest(client)["review"] is None
    client.post("/v1/inspect", files=image(png(70), "next.png")).raise_for_status()
    page.locator("#line-name", has_text="next.png").wait_for()
    page.get_by_role("button", name="Good", exact=True).click()  # at once: meant for the part before
    page.wait_for_timeout(300)
    assert newest(client)["review"] is None
    assert "%" not in page.locator("#line").inner_text()  # no statistics


def test_no_verdict_stands_for_a_part_that_the_camera_does_not_show(line):
    """The same frame again is normal to the model; three metres away that would be a good part."""
    client, go = line
    page = go(viewport={"width": 390, "height": 844})
    wait_for_part(page, "part-3")
    for number in range(3):
        client.post("/v1/inspect", files=image(png(70), f"same-{number}.png")).raise_for_status()
    page.locator("#line-verdict.not-judged", has_text="Camera stopped").wait_for()
    assert page.evaluate("document.documentElement.scrollHeight") == 844
    client.post("/v1/inspect", files=image(png(71), "other.png")).raise_for_status()
    judged = page.locator("#line-verdict.normal, #line-verdict.anomalous")
    judged.wait_for()
    page.route("**/v1/inspections*", lambda route: route.abort())
    page.locator("#line-verdict.not-judged", has_text="No connection").wait_for()
    page.unroute("**/v1/inspections*")
    judged.wait_for()


def test_worst_first_on_request(line):
    client, go = line
    page = go()
    wait_for_part(page, "part-3")
    page.get_by_label("Worst first").check()
    kept = client.get("/v1/inspections").json()["inspections"]
    order = sorted(
        kept, key=lambda each: -(each["score"] / each["threshold"] if each["verdict"] != "not judged" else 1e9)
    )
    for each in order[:3]:
        wait_for_part(page, each["image"])
        with page.expect_response("**/review"):
            page.get_by_role("button", name="Unsure", exact=True).click()
    page.get_by_role("button", name="Undo: Unsure").click()
    wait_for_part(page, order[2]["image"])


def test_a_rate_that_was_applied_can_be_taken_back_and_both_are_noted(line, opened):
    client, _ = line
    page = opened("threshold", at=client)
    before = client.get("/v1/models").json()["models"][0]["false_alarm_rate"]
    page.locator("#rates .rate").nth(1).wait_for()
    page.locator("#rates input:not(:checked)").last.check()
    page.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    page.locator("#alerts", has_text="Taken back").wait_for()
    assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == before
    page.locator("#changes li", has_text="rate").nth(1).wait_for()
