"""The page in a real Chromium, against the real service with a real (tiny) detector."""

import io
import re
import shutil
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import map_coordinates
from service.serving import image, png, serving

from nfad.judge import load_judge
from nfad.page_look import STYLE
from nfad.service.record import new_id

PAGE = Path(find_spec("nfad").submodule_search_locations[0]) / "service" / "page"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VIEWS = ("inspect", "history", "threshold", "drift", "review")
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@pytest.fixture(scope="module")
def chromium():
    """Starts browsers, with options."""
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("there is no Chromium or no playwright; install both to test the page in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield lambda *options: playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *options])


@pytest.fixture(scope="module")
def browser(chromium):
    """With a camera that shows a test picture."""
    with chromium(*CAMERA) as browser:
        yield browser


@pytest.fixture
def opened(browser, client):
    """Opens the page; fails the test if a script did, or if the policy had to stop something."""
    contexts, complaints = [], []

    def go(view="inspect", at=client, scripts=(), **options):
        context = browser.new_context(base_url=str(at.base_url), **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        for script in scripts:
            context.add_init_script(path=script)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.goto(f"/#/{view}")
        return page

    yield go
    for context in contexts:
        context.close()
    # A refusal on purpose is told in the console too.
    assert not [said for said in complaints if not said.startswith("Failed to load resource")]


@pytest.fixture(scope="module")
def past(client):
    """Inspections to look at, some of defects, some reviewed."""
    found = []
    for seed in range(12):
        name = f"cam{seed % 2}-{seed:03d}.png"
        found.append(client.post("/v1/inspect", files=image(png(40 + seed, defect=seed % 3 == 0), name)).json())
    for seed in (0, 3, 6, 9, 1, 2, 4, 5, 7):
        said = {"verdict": "good" if seed % 3 else "bad"}
        client.put(f"/v1/inspections/{found[seed]['id']}/review", json=said).raise_for_status()
    return found


def file(name="part.png", seed=7, defect=False):
    return {"name": name, "mimeType": "image/png", "buffer": png(seed, 96, defect)}


def judged(page, *files):
    """Send photos and wait for their verdicts; the first one's is shown."""
    page.set_input_files("#files", list(files))
    page.locator("#jobs .tile .badge").nth(len(files) - 1).wait_for()
    page.locator("#inspect-detail .found", has_text="above the threshold").wait_for()
    return page.locator("#inspect-detail article")


def newest(client, **filters):
    return client.get("/v1/inspections", params=filters | {"limit": 1}).json()["inspections"][0]


def alert(page, text):
    page.locator("#refusals .note", has_text=text).wait_for()


def levels(client, inspection, name, look="levels"):
    content = client.get(inspection["images"][name], params={"look": look}).content
    return np.asarray(Image.open(io.BytesIO(content)), dtype=float)


def painted(page):
    """The heat map's pixels as the canvas has them."""
    values = page.locator(".heat").evaluate(
        "c => [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    width, height, *data = values
    return np.array(data, dtype=float).reshape(height, width, 4)


def test_from_upload_to_review_and_back_through_the_history(opened, client):
    page = opened()
    shown = judged(page, file("dent.png", defect=True), file("fine.png", seed=8))
    kept = newest(client, search="dent.png")
    assert page.locator("#jobs .tile").count() == 2
    assert shown.locator(".word").inner_text() == kept["verdict"].capitalize()
    assert shown.locator(".verdict").get_by_text(kept["sentence"]).is_visible()
    sign = ">" if kept["score"] > kept["threshold"] else "≤"
    assert f"{kept['score']:.2f} {sign} {kept['threshold']:.2f}" in shown.locator(".score").inner_text()
    assert kept["sentence"] in page.locator("#said").inner_text() or "fine.png" in page.locator("#said").inner_text()

    shown.get_by_label("Note").fill("dent <b>here</b>")
    with page.expect_response("**/review"):
        shown.get_by_role("button", name="Bad").click()
    shown.locator(".state", has_text="Reviewed").wait_for()
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


def test_the_slider_goes_from_the_control_map_to_the_filtered_one(opened, client):
    page = opened(reduced_motion="reduce")
    judged(page, file("slide.png", defect=True))
    kept = newest(client, search="slide.png")
    slider = page.get_by_label("Strength of the filter")
    control, filtered = (levels(client, kept, name) for name in ("control_map", "map"))
    assert not np.array_equal(control, filtered)
    ends = {100: ("map", kept["threshold"]), 0: ("control_map", kept["control"]["threshold"])}
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
    above = map > level
    crossings = (above[1:] != above[:-1]).sum() + (above[:, 1:] != above[:, :-1]).sum()
    assert crossings > 0 and len(np.unique(points, axis=0)) >= 0.9 * crossings
    values = map_coordinates(map, points[:, ::-1].T - 0.5, order=1)
    steepest = max(np.abs(np.diff(map, axis=0)).max(), np.abs(np.diff(map, axis=1)).max())
    assert np.abs(values - level).max() <= 0.005 * 2 * steepest + 1e-3  # two decimals of a pixel


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


def test_the_history_filters_and_pages(opened, client, past):
    page = opened("history")
    page.locator("#grid a").first.wait_for()
    page.get_by_label("Verdict").select_option("anomalous")
    wanted = client.get("/v1/inspections", params={"verdict": "anomalous"}).json()["inspections"]
    page.locator("#history-count", has_text=re.compile(rf"^{len(wanted)} inspections?$")).wait_for()
    page.get_by_role("button", name="Clear").click()
    one = client.service.store.get(past[0]["id"])
    client.service.store.add([replace(one, id=new_id(), file_name=f"more-{i}.png") for i in range(60)])
    page.get_by_label("File name").fill("more-")
    page.locator("#history-count", has_text="48 inspections shown").wait_for()
    page.get_by_role("button", name="Show older ones").click()
    page.locator("#history-count", has_text="60 inspections").wait_for()
    assert page.locator("#grid > li").count() == 60 and page.locator("#more").is_hidden()
    page.get_by_label("From").fill("2099-01-01")
    page.locator("#history-count", has_text="No inspection matches").wait_for()


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
    assert page.locator("[role=alert]").get_by_text(sentence[5:]).count() == 1
    assert sentence in page.locator("#jobs .tile.failed").inner_text()
    assert page.locator("#jobs").get_by_role("button", name="Try again").is_visible()
    page.get_by_role("button", name="Dismiss").click()
    assert page.locator("#refusals .note").count() == 0
    page.goto("/#/history/0000000000000000000000")
    alert(page, "There is no inspection of that id.")


class Held:
    """A detector that judges when it is let."""

    def __init__(self, detector, leave):
        self._detector, self._leave = detector, leave

    def __getattr__(self, name):
        return getattr(self._detector, name)

    def predict_stream(self, *given):
        assert self._leave.wait(30)
        return self._detector.predict_stream(*given)


def test_a_full_queue_is_waited_for(opened, model, tmp_path):
    leave = threading.Event()

    def held(path):
        judge = load_judge(path)
        return replace(judge, engine=Held(judge.engine, leave), batch=1)

    with serving([model], tmp_path, held, places=1) as busy:
        page = opened(at=busy)
        page.set_input_files("#files", [file(f"{seed}.png", seed) for seed in range(4)])
        page.locator("#jobs", has_text="The queue is full; trying again in").wait_for()
        leave.set()
        page.locator("#jobs .tile .badge").nth(3).wait_for()
        assert page.locator("#refusals .note").count() == 0
        assert len(busy.get("/v1/inspections").json()["inspections"]) == 4
        page.close()


def test_a_token_is_asked_for(opened, model, tmp_path):
    with serving([model], tmp_path, token="correct-horse-battery") as guarded:
        page = opened(at=guarded)
        page.locator("#login").wait_for()
        assert page.locator("#views").is_hidden() and page.locator("#token:focus").count() == 1
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        alert(page, "That is not the token of this service")
        page.get_by_label("Token").fill("correct-horse-battery")
        page.keyboard.press("Enter")
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


def test_photos_are_dropped_pasted_and_taken(opened, client):
    page = opened()
    page.locator("#camera-button").click()
    page.locator("#video").evaluate("video => new Promise(done => video.requestVideoFrameCallback(done))")
    page.get_by_role("button", name="Take a photo").click()
    page.locator("#jobs .tile .badge").nth(0).wait_for()
    page.get_by_role("button", name="Close the camera").click()
    assert newest(client)["file_name"].startswith("camera-") and page.locator("#camera").is_hidden()
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
        assert newest(client)["file_name"] == f"{kind}.png"


def test_no_camera_is_offered_where_there_is_none(chromium, client):
    with chromium() as bare:
        page = bare.new_page(base_url=str(client.base_url))
        page.goto("/")
        page.locator("#inspect-title").wait_for()
        assert page.evaluate("navigator.mediaDevices.enumerateDevices().then(all => all.length)") == 0
        assert page.locator("#camera-button").is_hidden()


def test_an_inspection_whose_pictures_are_gone_is_still_told(opened, client, past):
    client.service.store.pictures_gone([past[1]["id"]])
    page = opened(f"history/{past[1]['id']}")
    page.get_by_text("were removed to keep the disk free").wait_for()
    assert page.locator("#history-detail .verdict").get_by_text(past[1]["sentence"]).is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_object_to(opened, past, scheme):
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
    page.set_input_files("#files", [file("x.txt") | {"buffer": b"no"}])
    page.locator("#refusals .note").wait_for()
    examine("refusal")
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


def test_the_page_has_the_reports_colours():
    style = (PAGE / "look.css").read_text(encoding="utf-8")
    ours, reports = (re.findall(r"(--[a-z-]+): (#[0-9a-f]+)", text) for text in (style, STYLE))
    assert len(reports) == 2 * 15 and ours[: len(reports)] == reports


def test_no_script_or_style_is_inline_and_no_data_becomes_markup():
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son[a-z]+=|https?://", html)
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")
    for script in PAGE.glob("*.js"):
        assert not markup.search(script.read_text(encoding="utf-8")), script
