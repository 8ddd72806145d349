"""The page in a real Chromium: where it is, and what a person does there again and again."""

import io
import itertools
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from parts import part
from PIL import Image
from service.serving import image, png

PAGE = Path(find_spec("nfad").submodule_search_locations[0]) / "service" / "page"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VIEWS = ("inspect", "line", "history", "threshold", "drift", "review")
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


def file(name="part.png", seed=7, defect=False):
    return {"name": name, "mimeType": "image/png", "buffer": png(seed, 96, defect)}


def judged(page, *files):
    """Send photos and wait for their verdicts; the first one's is shown."""
    page.set_input_files("#files", list(files))
    page.locator("#jobs .tile .badge").nth(len(files) - 1).wait_for()
    page.locator("#inspect-detail .found", has_text="above the threshold").wait_for()
    return page.locator("#inspect-detail article")


def let_pass(client):
    """A normal part, anomalous without the filter, with a spot above the threshold in both of its maps."""
    for seed, strength in itertools.product(range(200, 230), (0.4, 0.38, 0.36, 0.34, 0.32)):
        clean, spoilt = (part(seed, defect=defect).astype(float) for defect in (False, True))
        buffer = io.BytesIO()
        Image.fromarray(((1 - strength) * clean + strength * spoilt).astype(np.uint8)).save(buffer, "PNG")
        told = client.post("/v1/inspect", files=image(buffer.getvalue(), f"faint-{seed}.png")).json()
        spots = levels(client, told, "map") > told["threshold"] / told["scale"] * 255 + 1
        if (told["verdict"], told["unfiltered_verdict"]) == ("normal", "anomalous") and spots.any():
            return told
    raise AssertionError("no faint defect was let pass with a spot above the threshold")


def newest(client, **filters):
    return client.get("/v1/inspections", params=filters | {"limit": 1}).json()["inspections"][0]


def alert(page, text):
    page.locator("#alerts .note", has_text=text).wait_for()


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
