"""The threshold and the reviews on the page."""

from service.browsing import alert
from service.serving import image, png, serving


def test_a_rate_is_tried_before_it_is_applied(opened, client, past):
    page = opened("threshold")
    model = client.get("/v1/models").json()["models"][0]
    other = next(each for each in model["rates"] if each["rate"] != model["false_alarm_rate"])
    page.locator("#rates input").first.wait_for()
    assert page.locator("#rates input").count() == len(model["rates"])
    page.locator("#what-if .answer").wait_for()
    assert page.get_by_role("button", name="Apply").is_disabled()
    page.locator("#rates input").nth(model["rates"].index(other)).check()
    told = client.get("/v1/models/part/what-if", params={"rate": other["rate"]}).json()
    page.locator("#what-if h2", has_text="If it were").wait_for()
    page.locator("#what-if .answer", has_text=f"Of {told['inspections']} past inspections, ").wait_for()
    assert f"{told['anomalous']['at_rate']} would be rejected" in page.locator("#what-if").inner_text()
    assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == model["false_alarm_rate"]
    page.get_by_role("button", name="Apply").click()
    alert(page, "Applied")
    assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == other["rate"]
    assert "in use" in page.locator(".rate:has(:checked)").inner_text()
    client.put("/v1/models/part/rate", json={"rate": model["false_alarm_rate"]}).raise_for_status()


def test_the_parts_that_would_change_sides_are_shown_and_lead_back(opened, model, tmp_path):
    with serving([model], tmp_path) as strict:
        strict.put("/v1/models/part/rate", json={"rate": 0.9}).raise_for_status()
        files = [("image", (f"{seed}.png", png(seed), "image/png")) for seed in range(20, 44)]
        strict.post("/v1/batch", files=files).raise_for_status()
        told = strict.get("/v1/models/part/what-if", params={"rate": 0.2}).json()
        assert told["newly_accepted"] > len(told["accepted"]) == 12
        page = opened("threshold", at=strict)
        page.locator("#rates input[value='0.2']").check()
        tiles = page.get_by_role("region", name="would be accepted, the 12 nearest").get_by_role("link")
        tiles.first.wait_for()
        addresses = [each.get_attribute("href") for each in tiles.all()]
        assert addresses == [f"#/history/{each['id']}" for each in told["accepted"]]
        assert f"{told['accepted'][0]['score']:.2f} ≤ {told['threshold']:.2f}" in tiles.first.inner_text()
        assert all(tile.locator(".line").first.inner_text().startswith("Anomalous →") for tile in tiles.all())
        assert tiles.locator(".badge.normal").count() == 12 and tiles.locator(".badge.anomalous").count() == 0
        page.locator("#said", has_text="would be rejected").wait_for(state="attached")
        tiles.last.focus()
        page.keyboard.press("Enter")
        page.locator("#history-detail h1:focus", has_text=told["accepted"][-1]["image"]).wait_for()
        assert page.get_by_role("link", name="← Threshold").is_visible()
        page.keyboard.press("Escape")
        page.locator(f"#what-if a[href='{addresses[-1]}']:focus").wait_for()  # where one was, with the same choice
        assert page.locator("#rates input[value='0.2']").is_checked()
        page.close()


def test_reviews_are_summed_up(opened, client, past):
    page = opened("review")
    told = client.get("/v1/review").json()
    page.locator("#review-body .counts").wait_for()
    shown = page.locator("#review-body").inner_text()
    recall = told["recall"]
    assert f"{100 * recall['value']:.0f}%, 95% interval {100 * recall['low']:.0f}%" in shown
    assert all(note in shown for note in told["notes"])
    if told["suggestion"]:
        assert told["suggestion"]["sentence"] in shown
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.path().read_bytes()[:2] == b"PK"
    page.get_by_role("link", name="Review further parts").click()
    page.locator("#grid a").first.wait_for()
    assert page.locator("[name=review]").input_value() == "none" and page.locator("#grid .badge.good").count() == 0


def test_another_rate_is_applied_only_after_what_it_would_do_was_seen(opened, model, tmp_path):
    with serving([model], tmp_path) as line:
        line.put("/v1/models/part/rate", json={"rate": 0.9}).raise_for_status()
        for seed in range(60, 84):
            part = line.post("/v1/inspect", files=image(png(seed, defect=seed % 2 == 0))).json()
            said = {"verdict": "good" if seed % 2 else "bad"}
            line.put(f"/v1/inspections/{part['id']}/review", json=said).raise_for_status()
        suggestion = line.get("/v1/review").json()["suggestion"]
        assert suggestion is not None
        page = opened("review", at=line)

        def rate():
            return line.get("/v1/models").json()["models"][0]["false_alarm_rate"]

        assert page.get_by_role("button", name="Apply").count() == 0
        page.get_by_role("button", name="See what").click()
        told = line.get("/v1/models/part/what-if", params={"rate": suggestion["rate"]}).json()
        page.locator(".asked .answer", has_text=f"{told['anomalous']['at_rate']} would be rejected").wait_for()
        assert rate() == 0.9
        page.get_by_role("button", name="Leave it").click()
        page.get_by_role("button", name="Apply").wait_for(state="detached")
        assert rate() == 0.9
        page.get_by_role("button", name="See what").click()
        page.get_by_role("button", name="Apply").click()
        alert(page, "Applied")
        assert rate() == suggestion["rate"]
        page.close()


def test_among_parts_to_be_reviewed_the_next_one_comes_by_itself(opened, model, tmp_path):
    with serving([model], tmp_path) as line:
        parts = [line.post("/v1/inspect", files=image(png(seed), f"{seed}.png")).json() for seed in range(3)]
        page = opened("history?review=none", at=line)
        page.locator("#grid a").first.click()
        for part, key in zip(parts[::-1], "gbu"):
            page.locator("#history-detail h1:focus", has_text=part["image"]).wait_for()
            with page.expect_response("**/review"):
                page.keyboard.press(key)
        page.locator("#history-detail .state", has_text="Reviewed").wait_for()  # there is none behind the last
        said = [line.get(f"/v1/inspections/{part['id']}").json()["review"]["verdict"] for part in parts]
        assert said == ["unsure", "bad", "good"]
        page.close()
