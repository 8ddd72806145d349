"""A camera that has stopped is told as that by the API and the metrics: never steady, never absorbed."""

import io
import re
import time

import numpy as np
import pytest
from nails import nail
from parts import part
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from service.serving import image, png, serving

from nfad import Config, Detector
from nfad.drift.camera import STOPPED
from nfad.drift.state import COVERED, FROZEN, SHIFTED, SILENT, UNJUDGED


def dated(seed, date):
    """The same pixels in another file."""
    buffer, told = io.BytesIO(), PngInfo()
    told.add_text("date", str(date))
    Image.fromarray(part(seed)).save(buffer, "PNG", pnginfo=told)
    return buffer.getvalue()


def drift(client):
    told = client.get("/v1/drift").json()
    [model] = client.get("/v1/models").json()["models"]
    metric = 'nfad_camera_frozen{model="part"} 1.0' in client.get("/metrics").text
    assert (told["state"] == FROZEN) == (model["drift"] == FROZEN) == metric
    return told


@pytest.mark.parametrize("again", [lambda i: png(7), lambda i: dated(7, i)])
def test_a_frame_that_stands_still_is_told_and_over_with_the_next(model, tmp_path, again):
    with serving([model], tmp_path) as client:

        def send(content):
            return client.post("/v1/inspect", files=image(content)).json()

        for seed in range(4):
            send(png(seed))
        first = send(again(0))
        send(again(1))
        told = drift(client)
        assert told["state"] == "steady" and told["same_frames"] == 2
        third = send(again(2))
        assert third["camera"] == FROZEN and first["camera"] is None  # also for whoever sends photos
        assert third["verdict"] == "not judged" and STOPPED in third["explanation"]
        assert first["verdict"] != "not judged" and third["score"] is None
        assert client.get(f"/v1/inspections/{third['id']}").json()["verdict"] == "not judged"
        assert 'verdict="not judged"} 1.0' in client.get("/metrics").text
        told = drift(client)
        assert told["state"] == FROZEN and told["alarm"] and told["same_frames"] == 3
        assert told["since_time"] == first["time"] and told["sentence"].startswith("The last 3 photos show the very")
        assert "teady" not in told["sentence"] and "absorbed" not in told["sentence"]
        new = send(png(8))
        assert new["camera"] is None and new["verdict"] != "not judged"
        told = drift(client)
        assert told["state"] == "steady" and told["parts"] == 7  # not the frame that came a third time


def test_it_stands_still_after_a_restart_too(model, tmp_path):
    def send(client):
        return client.post("/v1/inspect", files=image(png(7))).json()["verdict"]

    with serving([model], tmp_path) as client:
        verdicts = [send(client) for _ in range(12)]
        assert "not judged" not in verdicts[:2] and set(verdicts[2:]) == {"not judged"}
    with serving([model], tmp_path) as client:
        assert drift(client)["state"] == FROZEN
        assert send(client) == "not judged"


def test_thirty_black_photos_are_not_absorbed(model, tmp_path):
    """Nearly black, as a covered camera is: each with a noise of its own."""
    chance = np.random.default_rng(0)
    with serving([model], tmp_path) as client:
        for seed in range(8):
            client.post("/v1/inspect", files=image(png(seed)))
        for _ in range(30):
            buffer = io.BytesIO()
            Image.fromarray(chance.integers(0, 3, (64, 64, 3), dtype=np.uint8)).save(buffer, "PNG")
            assert client.post("/v1/inspect", files=image(buffer.getvalue())).json()["verdict"] == "not judged"
            told = client.get("/v1/drift").json()
            assert "absorbed" not in told["state"] + told["sentence"]
        assert told["state"] == UNJUDGED and told["parts"] == 8


def photo(change, seed):
    buffer = io.BytesIO()
    Image.fromarray(change(part(seed))).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_covered_camera_and_one_that_is_silent_are_states_of_their_own(model, tmp_path):
    """On the page's alarm, in the API and in the metrics; never steady, never absorbed."""
    with serving([model], tmp_path, silent_after=3.0) as client:

        def told():
            state, [served] = client.get("/v1/drift").json(), client.get("/v1/models").json()["models"]
            on = re.findall(r'nfad_camera\{model="part",state="([^"]+)"\} 1\.0', client.get("/metrics").text)
            assert state["camera"] == served["camera"] and on == ([state["camera"]] if state["camera"] else [])
            return state

        for seed in range(3):  # dark, and no two frames the same
            client.post("/v1/inspect", files=image(photo(lambda pixels: pixels // 40, seed))).raise_for_status()
        covered = told()
        assert covered["camera"] == COVERED and covered["alarm"] and "covered" in covered["sentence"]
        assert covered["state"] in (COVERED, UNJUDGED) and "absorbed" not in covered["sentence"]
        client.post("/v1/inspect", files=image(png(9))).raise_for_status()
        assert told()["camera"] is None
        time.sleep(3.1)
        silent = told()
        assert silent["camera"] == silent["state"] == SILENT and silent["alarm"] and silent["since_time"] is None
        client.post("/v1/inspect", files=image(png(10))).raise_for_status()
        assert told()["camera"] is None


def test_a_camera_that_creeps_has_moved_and_is_not_absorbed(tmp_path):
    """Its photos are put back and judged; on the page's alarm, in the API and in the metrics it is a state."""
    config = Config.preset("embedded-fast", size=128, acquisitions=36, pairs=2, false_alarm_rate=0.2)
    fitted = Detector.fit([nail(seed, angle=0.2, at=(0.0, 0.0)) for seed in range(12)], config)
    with serving([fitted.save(tmp_path / "part.nfad")], tmp_path) as client:

        def send(seed, off):
            buffer = io.BytesIO()
            Image.fromarray(nail(seed, angle=0.2, at=(off, 0.0))).save(buffer, "PNG")
            return client.post("/v1/inspect", files=image(buffer.getvalue())).json()

        for step in range(40):
            kept = send(100 + step, 0.05 * step / 40)
            told = client.get("/v1/drift").json()
            assert "absorbed" not in told["state"] + told["sentence"]
        [model] = client.get("/v1/models").json()["models"]
        assert kept["verdict"] != "not judged" and kept["moved"] > 0.02
        assert told["camera"] == model["camera"] == SHIFTED and told["alarm"] and "has moved" in told["sentence"]
        assert told["state"] == SHIFTED and told["since_time"] is not None
        assert f'nfad_camera{{model="part",state="{SHIFTED}"}} 1.0' in client.get("/metrics").text
