"""Drift on the page."""

from dataclasses import replace

import numpy as np
from service.browsing import VIEWS
from service.serving import image, png, serving

from nfad.drift.state import ABSORBED, UNSETTLED
from nfad.service.record import new_id


def test_drift_is_told_drawn_and_tabled(opened, client, past):
    page = opened("drift")
    told = client.get("/v1/drift").json()
    page.locator("#drift-body .verdict").get_by_text(told["sentence"]).wait_for()
    names = [name for name in told["normals"]["median"] if name != "nuisance_fraction"]
    charts = page.locator(".chart")
    assert charts.count() == len(names)
    assert all("the fit’s normals have" in label for label in labels(charts.get_by_role("img")))
    charts.first.locator("summary").click()
    rows = charts.first.locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 1 + len(told["blocks"])
    for view in VIEWS:  # the alarm's state is there wherever one looks
        page.goto(f"/#/{view}")
        assert page.locator("#alarm").is_visible()
        assert page.locator("#alarm").inner_text() == ("Drift" if told["alarm"] else "Steady")


def labels(found):
    return [each.get_attribute("aria-label") for each in found.all()]


def test_the_drift_view_never_says_otherwise_than_the_alarm(opened, model, tmp_path):
    with serving([model], tmp_path) as line:
        page = opened("drift", at=line)
        page.locator("#drift-body .verdict.normal").wait_for()
        files = [("image", (f"{seed}.png", png(seed, defect=True), "image/png")) for seed in range(60)]
        line.post("/v1/batch", files=files).raise_for_status()
        told = line.get("/v1/drift").json()
        assert told["alarm"]
        page.evaluate("dispatchEvent(new Event('online'))")
        page.locator("#drift-body .verdict").get_by_text(told["sentence"]).wait_for()
        assert page.locator("#alarm").inner_text() == "Drift"
        for card, question in zip(page.locator(".questions .card").all(), told["questions"].values(), strict=True):
            assert card.get_by_text("Yes", exact=True).count() == question["alarm"]
            assert card.get_by_text("Cannot be told", exact=True).count() == (question["level"] is None)
            assert card.get_by_text("enough for an alarm", exact=True).count() == question["alarm"]
        assert told["questions"]["bulk"]["alarm"]  # all are flagged
        page.close()


def test_drift_that_is_absorbed_is_told_calmly(opened, model, tmp_path):
    with serving([model], tmp_path) as line:
        one = line.service.store.get(line.post("/v1/inspect", files=image(png(1))).json()["id"])
        normals = line.service.models["part"].model.normals
        random = np.random.default_rng(0)

        def part(times):
            at = random.integers(len(normals["score"]))
            numbers = {name: float(values[at]) for name, values in normals.items()}
            families = {name[9:]: times * share for name, share in numbers.items() if name.startswith("nuisance:")}
            same = {name: numbers[name] for name in ("score", "unfiltered_score", "participation", "nuisance_fraction")}
            return replace(one, id=(id := new_id()), sha256=id, nuisance_by_family=families, **same)

        line.service.store.add([part(1) for _ in range(200)] + [part(4) for _ in range(60)])
        line.put("/v1/models/part/rate", json={"rate": 0.2}).raise_for_status()  # drift is told anew, from the store
        assert line.get("/v1/drift").json()["state"] == ABSORBED
        page = opened("drift", at=line)
        page.locator("#drift-body .verdict.calm").wait_for()
        assert page.locator("#alarm.calm").inner_text() == "Drift"
        assert page.locator("#drift-body .anomalous").count() == 0
        page.close()


def test_what_cannot_be_told_is_told_in_words(opened, model, tmp_path):
    """Two of three parts flagged: a change of the line, or many defects, and nobody can know which."""
    with serving([model], tmp_path) as line:
        page = opened("drift", at=line)
        page.locator("#drift-body .verdict.normal").wait_for()

        def batch(first, defects):
            files = [
                ("image", (f"{seed}.png", png(seed, defect=seed % 10 < defects), "image/png"))
                for seed in range(first, first + 60)
            ]
            return [each["inspection"] for each in line.post("/v1/batch", files=files).json()["results"]]

        batch(100, defects=0)
        flagged = sum(each["verdict"] == "anomalous" for each in batch(200, defects=7))
        assert 0.5 < flagged / 60 < 0.9
        told = line.get("/v1/drift").json()
        assert told["state"] == UNSETTLED and told["questions"]["bulk"]["level"] is None
        page.evaluate("dispatchEvent(new Event('online'))")
        page.locator("#drift-body .verdict .word", has_text="More flagged parts, cause not settled").wait_for()
        assert page.locator("#drift-body .verdict").get_by_text(told["sentence"]).is_visible()
        assert "More than half of the parts are flagged since about part" in told["sentence"]
        card = page.locator(".questions .card", has_text="Do ordinary parts score differently?")
        assert card.locator(".answered").inner_text() == "Cannot be told"
        assert card.get_by_text("ordinary parts cannot be told from defects").is_visible()
        assert card.get_by_text("Evidence").count() == 0  # there is none to draw a bar of
        answers = page.locator(".questions .answered").all_inner_texts()
        assert answers == ["No alarm", "Cannot be told", "Yes", "No alarm"]
        shapes = page.locator(".questions .answered .icon").evaluate_all("all => all.map(each => each.innerHTML)")
        assert len(set(shapes)) == 3
        page.get_by_role("link", name="See the flagged parts").click()
        page.locator("#grid .badge.anomalous").first.wait_for()
        assert page.locator("#grid .badge.normal").count() == 0
        page.close()


def test_every_chart_has_two_marks_or_more_on_its_scale(opened, past):
    page = opened("drift")
    page.locator(".chart").first.wait_for()
    spans = [(low, low + length) for low in (-3, 0, 2.2, 6) for length in (0.0069, 0.9, 1, 1.9, 3, 6.8, 8, 9999)]
    marks = page.evaluate(
        "async spans => { const { ticks } = await import('/chart.js'); return spans.map(each => ticks(...each)); }",
        spans,
    )
    for (low, high), found in zip(spans, marks, strict=True):
        assert 2 <= len(found) <= 5, (low, high)
        rounding = 1e-9 * (high - low)
        assert low - rounding <= min(found) and max(found) <= high + rounding
