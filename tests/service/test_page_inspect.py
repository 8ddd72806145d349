"""New photos on the page: sent, judged, looked at and reviewed."""

import re
import threading

import numpy as np
from scipy.ndimage import map_coordinates
from service.browsing import alert, file, judged, let_pass, levels, newest, painted
from service.serving import image, png, serving

from nfad.model import load_model


def test_from_upload_to_review_and_back_through_the_history(opened, client):
    page = opened()
    shown = judged(page, file("dent.png", defect=True), file("fine.png", seed=8))
    kept = newest(client, search="dent.png")
    assert page.locator("#jobs .tile").count() == 2
    assert shown.locator(".word").inner_text() == kept["verdict"].capitalize()
    assert shown.locator(".verdict").get_by_text(kept["explanation"]).is_visible()
    sign = ">" if kept["score"] > kept["threshold"] else "≤"
    assert f"{kept['score']:.2f} {sign} {kept['threshold']:.2f}" in shown.locator(".score").inner_text()
    assert kept["explanation"] in page.locator("#said").inner_text() or "fine.png" in page.locator("#said").inner_text()

    shown.get_by_label("Note").fill("dent <b>here</b>")
    with page.expect_response("**/review"):
        shown.get_by_role("button", name="Bad").click()
    page.locator("#inspect-detail h2:focus", has_text="fine.png").wait_for()  # the next part comes by itself
    said = client.get(f"/v1/inspections/{kept['id']}").json()["review"]
    assert (said["verdict"], said["note"]) == ("bad", "dent <b>here</b>")

    page.get_by_role("link", name="History").click()
    page.get_by_label("File name").fill("DENT")
    page.locator("#grid > li").nth(0).wait_for()
    page.locator("#history-count", has_text="1 inspection").wait_for()
    assert "operator: bad" in page.locator("#grid > li").inner_text()
    page.locator("#grid a").click()
    again = page.locator("#history-detail article")
    assert again.get_by_label("Note").input_value() == "dent <b>here</b>"
    assert again.get_by_role("button", name="Bad").get_attribute("aria-pressed") == "true"
    with page.expect_response("**/review"):
        again.get_by_role("button", name="Take back").click()
    again.locator(".state", has_text="Not reviewed").wait_for()
    assert client.get(f"/v1/inspections/{kept['id']}").json()["review"] is None


def test_the_slider_goes_from_the_unfiltered_map_to_the_filtered_one(opened, client):
    page = opened(reduced_motion="reduce")
    judged(page, file("slide.png", seed=8, defect=True))
    kept = newest(client, search="slide.png")
    assert kept["verdict"] == kept["unfiltered_verdict"] == "anomalous"  # either map is outlined
    slider = page.get_by_label("Strength of the filter")
    unfiltered, filtered = (levels(client, kept, name) for name in ("unfiltered_map", "map"))
    assert not np.array_equal(unfiltered, filtered)
    ends = {100: ("map", kept["threshold"]), 0: ("unfiltered_map", kept["unfiltered_threshold"])}
    for place, (name, threshold) in ends.items():
        slider.focus()
        page.keyboard.press("End" if place else "Home")
        wanted, shown = levels(client, kept, name, "heatmap"), painted(page)
        np.testing.assert_allclose(shown[..., 3], wanted[..., 3], atol=1)
        # A canvas keeps colours multiplied by their opacity, in 8 bits.
        rough = 255 / np.maximum(wanted[..., 3:], 1) + 1
        assert (np.abs(shown[..., :3] - wanted[..., :3]) <= rough).all()
        outlined(page, levels(client, kept, name), threshold / kept["scale"] * 255)
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "1% of the filter"
    page.get_by_role("button", name="With filter", exact=True).click()
    assert slider.get_attribute("aria-valuetext") == "with filter"
    page.keyboard.press("f")
    assert slider.get_attribute("aria-valuetext") == "without filter"


def outlined(page, map, level):
    """Every point of the outline is where the map, read between its pixels, has that level; and there are as many
    as pixels change sides."""
    path = page.locator(".outline path").get_attribute("d") or ""
    points = np.array([[float(n) for n in pair.split()] for pair in re.findall(r"[\d.]+ [\d.]+", path)]).reshape(-1, 2)
    crossings = np.unique(np.concatenate([crossed(map, level), crossed(map.T, level)[:, ::-1]]), axis=0)
    assert len(crossings) > 0 and len(np.unique(points.round(1), axis=0)) >= 0.9 * len(crossings)
    values = map_coordinates(map, points[:, ::-1].T - 0.5, order=1)
    steepest = max(np.abs(np.diff(map, axis=0)).max(), np.abs(np.diff(map, axis=1)).max())
    assert np.abs(values - level).max() <= 0.005 * 2 * steepest + 1e-3  # two decimals of a pixel


def crossed(map, level):
    """Where columns cross the level between two pixels, to a tenth of one: at a pixel of just that level they meet."""
    y, x = np.nonzero((map[1:] > level) != (map[:-1] > level))
    down = (level - map[y, x]) / (map[y + 1, x] - map[y, x])
    return np.stack([x + 0.5, y + down + 0.5], axis=1).round(1)


def test_only_what_is_rejected_is_outlined(opened, client):
    """Of a part that passes with the filter only: outlined without it, and not with it though there is a spot."""
    kept = let_pass(client)
    page = opened(f"history/{kept['id']}", reduced_motion="reduce")
    found, path = page.locator(".found"), page.locator(".outline path")
    found.filter(has_text="with the filter, too little to reject the part: no outline").wait_for()
    assert not path.get_attribute("d")
    slider = page.get_by_label("Strength of the filter")
    for strength, drawn in ((50, False), (49, True), (0, True), (51, False)):
        slider.fill(str(strength))
        assert bool(path.get_attribute("d")) == drawn, strength
        assert ("(outlined)" in found.inner_text()) == drawn
    slider.fill("0")
    outlined(page, levels(client, kept, "unfiltered_map"), kept["unfiltered_threshold"] / kept["scale"] * 255)


def test_names_and_notes_are_never_markup(opened, client):
    name = "<img src=x onerror=alert(1)>.png"
    page = opened()
    judged(page, file(name))
    assert page.locator("#inspect-detail h2").inner_text() == name
    kept, said = newest(client)["id"], {"verdict": "bad", "note": "<script>alert(2)</script>"}
    client.put(f"/v1/inspections/{kept}/review", json=said).raise_for_status()
    page.goto(f"/#/history/{kept}")
    page.locator("#history-detail h1").wait_for()
    assert page.locator("#history-detail h1").inner_text() == name
    assert page.locator("img[src=x]").count() == 0 and page.locator("main script").count() == 0


def test_a_refusal_is_one_sentence_and_stays_until_it_is_read(opened, client):
    page = opened()
    page.set_input_files("#files", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"}])
    sentence = client.post("/v1/inspect", files=image(b"no picture", "notes.txt")).json()["error"]
    alert(page, f"notes.txt: {sentence[0].upper()}{sentence[1:]}")
    assert page.get_by_text(sentence[5:]).count() == 1
    assert page.get_by_role("button", name="Try again").count() == 0  # it will never be an image
    page.get_by_role("button", name="Dismiss").click()
    assert page.locator("#alerts .note").count() == 0
    page.locator("#jobs").get_by_role("button", name="Why?").click()
    alert(page, sentence[5:])
    page.goto("/#/history/0000000000000000000000")
    alert(page, "There is no inspection of that id.")


def test_a_refused_photo_takes_no_more_room_than_a_judged_one(opened):
    page = opened()
    judged(page, file("room.png"))
    before = page.locator("#jobs").bounding_box()["height"]
    page.set_input_files("#files", [file("notes.txt") | {"buffer": b"no picture"}])
    page.locator("#jobs .tile.failed button").wait_for()
    assert page.locator("#jobs").bounding_box()["height"] <= before + 16  # a button is higher than a badge


def test_a_photo_that_met_no_answer_may_be_sent_again(opened):
    page = opened()
    page.locator("#inspect-title").wait_for()
    page.context.set_offline(True)
    page.set_input_files("#files", [file("later.png", 31)])  # no frame a third time: the camera is well
    again = page.locator("#jobs").get_by_role("button", name="Try again")
    again.wait_for()
    page.context.set_offline(False)
    page.wait_for_function("navigator.onLine")
    again.click()
    page.locator("#jobs .tile .badge:is(.normal, .anomalous)").wait_for()


def test_how_spread_out_a_deviation_is_comes_from_the_models_normals(opened, client, past):
    """Of a normal part as well as of defects, each compared as it is."""
    normals = client.get("/v1/drift").json()["normals"]
    least, most = (normals[end]["participation"] for end in ("low", "high"))
    said = set()
    for inspection in past:
        share = inspection["participation"]
        words = (
            "more concentrated than"
            if share < least
            else "more spread out than"
            if share > most
            else "as spread out as"
        )
        if words in said:
            continue
        said.add(words)
        page = opened(f"history/{inspection['id']}")
        page.locator(".spread", has_text=f"It is {words} on normal parts: over {100 * share:.0f}%").wait_for()
        assert "the rest: texture, noise, defects" in page.locator(".key").inner_text()
        page.close()
    assert len(said) > 1


class Held:
    """A model that waits until it is let."""

    def __init__(self, model, leave):
        self._model, self._leave = model, leave

    def __getattr__(self, name):
        return getattr(self._model, name)

    def predict_stream(self, *given, **options):
        assert self._leave.wait(30)
        return self._model.predict_stream(*given, **options)


def test_a_full_queue_is_waited_for(opened, model, tmp_path):
    leave = threading.Event()

    def held(path):
        return Held(load_model(path), leave)

    with serving([model], tmp_path, held, places=1) as busy:
        page = opened(at=busy)
        page.set_input_files("#files", [file(f"{seed}.png", seed) for seed in range(4)])
        page.locator("#jobs", has_text="The queue is full; trying again in").wait_for()
        leave.set()
        page.locator("#jobs .tile .badge").nth(3).wait_for()
        assert page.locator("#alerts .note").count() == 0
        assert len(busy.get("/v1/inspections").json()["inspections"]) == 4
        page.close()


def test_photos_are_dropped_pasted_and_taken(opened, client):
    page = opened()
    page.locator("#camera-button").click()
    page.locator("#video").evaluate("video => new Promise(done => video.requestVideoFrameCallback(done))")
    page.get_by_role("button", name="Take a photo").click()
    page.locator("#jobs .tile .badge").nth(0).wait_for()
    page.get_by_role("button", name="Close the camera").click()
    assert newest(client)["image"].startswith("camera-") and page.locator("#camera").is_hidden()
    # Both events carry files the same way; only a person can make them without a script.
    made = """([kind, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], `${kind}.png`, { type: 'image/png' }));
        const given = { bubbles: true, cancelable: true };
        const event = kind === 'paste' ? new ClipboardEvent(kind, { ...given, clipboardData: data })
            : new DragEvent(kind, { ...given, dataTransfer: data });
        document.body.dispatchEvent(event);
    }"""
    for number, kind in enumerate(("drop", "paste"), start=1):
        page.evaluate(made, [kind, list(png(60 + number))])
        page.locator("#jobs .tile .badge").nth(number).wait_for()
        assert newest(client)["image"] == f"{kind}.png"


def test_no_camera_is_offered_where_there_is_none(chromium, client):
    with chromium() as bare:
        page = bare.new_page(base_url=str(client.base_url))
        page.goto("/")
        page.locator("#inspect-title").wait_for()
        assert page.evaluate("navigator.mediaDevices.enumerateDevices().then(all => all.length)") == 0
        assert page.locator("#camera-button").is_hidden()
