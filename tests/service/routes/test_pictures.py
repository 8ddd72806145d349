import io

import numpy as np
import pytest
from parts import part, parts, tiny
from PIL import Image
from service.browsing import let_pass
from service.serving import image, png, serving

from nfad import Detector
from nfad.report.pictures import CONTOUR


@pytest.fixture(scope="module")
def detector(model):
    return Detector.load(model)


def pixels(client, address, **parameters):
    answer = client.get(address, params=parameters)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/")
    assert "immutable" in answer.headers["cache-control"]
    with Image.open(io.BytesIO(answer.content)) as opened:
        return np.asarray(opened)


@pytest.mark.parametrize("defect", [False, True])
def test_maps_are_the_models(client, detector, defect):
    given = part(31, 80, defect)
    answer = client.post("/v1/inspect", files=image(png(31, 80, defect), "x.png")).json()
    check_maps(client, answer, detector.predict(given), ("map", "unfiltered_map"))
    assert np.abs(pixels(client, answer["images"]["photo"]).astype(int) - given).mean() < 8  # JPEG
    assert client.get(answer["images"]["original"]).content == png(31, 80, defect)


def check_maps(client, answer, wanted, names):
    tolerance = 1e4 * np.finfo(np.float32).eps * max(1, abs(wanted.score))
    assert answer["images"].keys() == {"photo", "thumbnail", "original", *names}
    for name in names:
        address = answer["images"][name]
        raw = pixels(client, address, look="raw").astype(float) / 65535 * 128 - 8
        blocks = getattr(wanted, name).reshape(32, 2, 32, 2).mean(axis=(1, 3))  # kept at half the view's resolution
        np.testing.assert_allclose(raw, blocks.clip(-8, 120), atol=128 / 65535 + tolerance)
        levels = pixels(client, address, look="levels")
        step = answer["scale"] / 255
        np.testing.assert_allclose(levels * step, raw.clip(0, answer["scale"]), atol=1.01 * step)
        assert pixels(client, address, look="heatmap").shape == (32, 32, 4)
        assert pixels(client, address).shape == (80, 80, 3)


def test_there_is_a_detection_map_where_there_is_a_gate_and_nowhere_else(client, tmp_path):
    """With a gate the map is another than the one the score is taken of; without, they are one and the same."""
    alone = client.post("/v1/inspect", files=image()).json()
    assert alone["gate"] is None and "detection_map" not in alone["images"]
    answer = client.get(f"/v1/inspections/{alone['id']}/maps/detection_map")
    assert answer.status_code == 404 and "taken of its `map`" in answer.json()["error"]
    gated = Detector.fit(parts(20), tiny(false_alarm_rate=0.2, localization="global"))
    with serving([gated.save(tmp_path / "gated.nfad")], tmp_path / "data") as other:
        both = other.post("/v1/inspect", files=image(png(31, 80, True))).json()
        wanted = gated.predict(part(31, 80, True))
        assert both["gate"] == pytest.approx(wanted.gate, rel=1e-3) and wanted.detection_map is not None
        check_maps(other, both, wanted, ("map", "detection_map", "unfiltered_map"))


def test_an_overlay_outlines_only_what_its_own_verdict_rejects(client):
    passed = let_pass(client)  # with the filter only
    rejected = client.post("/v1/inspect", files=image(png(31, defect=True))).json()
    assert rejected["verdict"] == "anomalous"
    for told, name, drawn in (
        (passed, "map", False),
        (passed, "unfiltered_map", True),
        (rejected, "map", True),
    ):
        assert (pixels(client, told["images"][name]) == CONTOUR).all(axis=2).any() == drawn, name


def test_large_photos_are_shown_small_and_where_the_model_looked(tmp_path):
    cropping = Detector.fit([part(i, 80) for i in range(10)], tiny(resize=80)).save(tmp_path / "crop.nfad")
    wide = Image.fromarray(part(1, 80)).resize((2000, 1000))
    buffer = io.BytesIO()
    wide.save(buffer, "TIFF")
    with serving([cropping], tmp_path / "data") as client:
        answer = client.post("/v1/inspect", files=image(buffer.getvalue(), "wide.tif"))
        assert answer.status_code == 200, answer.text
        answer = answer.json()
        assert (answer["width"], answer["height"]) == (2000, 1000)
        assert answer["view"] == pytest.approx({"left": 0.3, "top": 0.1, "width": 0.4, "height": 0.8})
        assert pixels(client, answer["images"]["photo"]).shape == (800, 1600, 3)
        assert pixels(client, answer["images"]["thumbnail"]).shape == (128, 256, 3)
        over, photo = pixels(client, answer["images"]["map"]), pixels(client, answer["images"]["photo"])
        assert over.shape == (512, 1024, 3)
        outside = np.asarray(Image.fromarray(photo).resize((1024, 512)))[:, :290]
        assert np.abs(over[:, :290].astype(int) - outside).mean() < 3  # where it did not look, the photo is unchanged
        assert client.get(answer["images"]["original"]).headers["content-disposition"].endswith('.tif"')
