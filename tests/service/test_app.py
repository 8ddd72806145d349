import io
import zipfile
from datetime import datetime, timedelta

import httpx
import numpy as np
import pytest
from parts import part, tiny
from PIL import Image
from service.browsing import let_pass
from service.serving import image, png, serving

from nfad import Detector
from nfad.report.pictures import CONTOUR, full_at
from nfad.system.files import finite


@pytest.fixture(scope="module")
def detector(model):
    return Detector.load(model)


@pytest.fixture(scope="module")
def past(client):
    """Seven inspections, some of defects, under names to look for."""
    found = []
    names = ["a.png", "b.png", "Cam 3.png", "100%.png", "d.png", "e_e.png", "f.png"]
    for seed, name in enumerate(names):
        answer = client.post("/v1/inspect", files=image(png(seed, defect=seed % 2 == 1), name))
        assert answer.status_code == 200
        found.append(answer.json())
    return found


def pixels(client, address, **parameters):
    answer = client.get(address, params=parameters)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/")
    assert "immutable" in answer.headers["cache-control"]
    with Image.open(io.BytesIO(answer.content)) as opened:
        return np.asarray(opened)


@pytest.mark.parametrize("defect", [False, True])
def test_an_inspection_says_what_the_detector_says(client, detector, defect):
    given = part(31, 80, defect)
    answer = client.post("/v1/inspect", params={"model": "part"}, files=image(png(31, 80, defect), "x.png")).json()
    wanted = detector.predict(given)
    tolerance = 1e4 * np.finfo(np.float32).eps * max(1, abs(wanted.score))
    for name in ("score", "threshold", "p_value", "gate", "participation"):
        assert abs(answer[name] - getattr(wanted, name)) <= tolerance, name
    assert answer["verdict"] == ("anomalous" if wanted.is_anomalous else "normal")
    assert answer["sentence"] == wanted.explain() and answer["false_alarm_rate"] == detector.false_alarm_rate
    assert abs(answer["control"]["score"] - wanted.unfiltered_score) <= tolerance
    assert answer["nuisance"]["by_family"].keys() == wanted.nuisance_by_family.keys()
    assert answer["nuisance"]["excess_filtered"] == pytest.approx(finite(wanted.excess_filtered), abs=float(tolerance))
    assert (answer["width"], answer["height"], answer["scale"]) == (80, 80, full_at(detector.threshold))
    assert answer == client.get(f"/v1/inspections/{answer['id']}").json()
    pictures = answer["images"]
    for name in ("map", "detection_map", "unfiltered_map"):
        raw = pixels(client, pictures[name], look="raw").astype(float) / 65535 * 128 - 8
        blocks = getattr(wanted, name).reshape(32, 2, 32, 2).mean(axis=(1, 3))  # kept at half the view's resolution
        np.testing.assert_allclose(raw, blocks.clip(-8, 120), atol=128 / 65535 + tolerance)
        levels = pixels(client, pictures[name], look="levels")
        step = answer["scale"] / 255
        np.testing.assert_allclose(levels * step, raw.clip(0, answer["scale"]), atol=1.01 * step)
        assert pixels(client, pictures[name], look="heatmap").shape == (32, 32, 4)
        assert pixels(client, pictures[name]).shape == (80, 80, 3)
    assert np.abs(pixels(client, pictures["photo"]).astype(int) - given).mean() < 8  # JPEG
    assert client.get(pictures["original"]).content == png(31, 80, defect)


def test_an_overlay_outlines_only_what_its_own_verdict_rejects(client):
    passed = let_pass(client)  # with the filter only
    rejected = client.post("/v1/inspect", files=image(png(31, defect=True))).json()
    assert rejected["verdict"] == "anomalous"
    for told, name, drawn in (
        (passed, "map", False),
        (passed, "unfiltered_map", True),
        (rejected, "map", True),
        (rejected, "detection_map", True),
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


def test_history_pages_through_everything_once(client, past):
    seen, before = [], None
    while True:
        page = client.get("/v1/inspections", params={"limit": 2} | ({"before": before} if before else {})).json()
        seen += [each["id"] for each in page["inspections"]]
        before = page["next"]
        if before is None:
            break
    everything = [each["id"] for each in client.get("/v1/inspections", params={"limit": 200}).json()["inspections"]]
    assert seen == everything == sorted(everything, reverse=True) and len(seen) >= len(past)


def test_filters(client, past):
    def names(**parameters):
        page = client.get("/v1/inspections", params=parameters).json()
        return {each["file_name"] for each in page["inspections"]}

    here = {each["file_name"] for each in past}
    assert names(search="cam") == {"Cam 3.png"}
    assert names(search="0%") == {"100%.png"} and names(search="e_e") == {"e_e.png"}  # no wildcards
    assert names(model="other") == set() and here <= names(model="part")
    for verdict in ("normal", "anomalous"):
        assert {each["file_name"] for each in past if each["verdict"] == verdict} == names(verdict=verdict) & here
    changed = {each["file_name"] for each in past if each["verdict"] != each["control"]["verdict"]}
    assert names(changed=True) & here == changed and names(changed=False) & here == here - changed
    middle = past[3]["time"]
    later = (datetime.fromisoformat(middle) + timedelta(milliseconds=1)).isoformat()
    assert "100%.png" in names(since=middle) and "a.png" not in names(since=middle)
    assert "100%.png" not in names(until=middle) and "100%.png" in names(until=later)


def test_reviews_are_kept_replaced_and_taken_back(client, past):
    address = f"/v1/inspections/{past[0]['id']}/review"
    assert past[0]["review"] is None
    answer = client.put(address, json={"verdict": "bad", "note": "dent \0 <b>é</b>"}).json()
    assert answer["review"]["verdict"] == "bad" and answer["review"]["note"] == "dent  <b>é</b>"
    assert client.put(address, json={"verdict": "unsure"}).json()["review"]["note"] == ""

    def listed(review):
        page = client.get("/v1/inspections", params={"review": review}).json()
        return past[0]["id"] in {each["id"] for each in page["inspections"]}

    assert listed("unsure") and listed("any") and not listed("bad") and not listed("none")
    assert client.delete(address).json()["review"] is None
    assert listed("none") and not listed("any")
    assert client.put(address, json={"verdict": "lovely"}).status_code == 422
    form = client.put(address, content='{"verdict": "good"}', headers={"Content-Type": "text/plain"})
    assert form.status_code == 422 and "Content-Type: application/json" in form.json()["error"]
    assert client.put(f"/v1/inspections/{22 * '0'}/review", json={"verdict": "bad"}).status_code == 404


def test_a_batch_tells_of_each_file(client):
    files = [("image", (f"{i}.png", png(i), "image/png")) for i in range(11)]
    files.insert(4, ("image", ("notes.txt", b"not an image", "text/plain")))
    results = client.post("/v1/batch", files=files).json()["results"]
    assert [each["file_name"] for each in results] == [name for _, (name, _, _) in files]
    assert [each["status"] for each in results] == 4 * [200] + [400] + 7 * [200]
    assert results[4]["inspection"] is None and "not an image" in results[4]["error"]
    for each in results[:4]:
        assert client.get(f"/v1/inspections/{each['inspection']['id']}").json() == each["inspection"]


def test_several_models(model, tmp_path):
    other = tmp_path / "other.v2.nfad"
    other.write_bytes(model.read_bytes())
    with serving([model, other], tmp_path / "data") as client:
        assert [each["name"] for each in client.get("/v1/models").json()["models"]] == ["part", "other.v2"]
        assert client.post("/v1/inspect", files=image()).status_code == 400  # which one?
        assert client.post("/v1/inspect", params={"model": "none"}, files=image()).status_code == 404
        answer = client.post("/v1/inspect", params={"model": "other.v2"}, files=image())
        assert answer.json()["model"] == "other.v2"
        assert client.get("/v1/drift", params={"model": "part"}).json()["parts"] == 0
        assert client.get("/v1/drift", params={"model": "other.v2"}).json()["parts"] == 1


def test_a_rate_holds_from_the_next_image_on_and_after_a_restart(model, tmp_path, detector):
    with serving([model], tmp_path / "data") as client:
        [facts] = client.get("/v1/models").json()["models"]
        assert facts["smallest_rate"] == detector.held_out.smallest_rate == pytest.approx(1 / 7)
        assert {"rate": 0.2, "threshold": detector.threshold} in facts["rates"]
        before = client.post("/v1/inspect", files=image(png(1))).json()
        foreseen = client.get("/v1/models/part/what-if", params={"rate": 0.9}).json()
        assert foreseen["inspections"] == 1 and foreseen["threshold"] == detector.at_rate(0.9).threshold
        assert foreseen["anomalous"] == {"as_judged": 0, "at_rate": 1} and foreseen["newly_rejected"] == 1
        too_low = client.put("/v1/models/part/rate", json={"rate": 0.01})
        assert too_low.status_code == 422 and "held-out normals" in too_low.json()["error"]
        assert client.put("/v1/models/part/rate", json={"rate": 0.9}).json()["false_alarm_rate"] == 0.9
        after = client.post("/v1/inspect", files=image(png(1))).json()
        assert before["verdict"] == "normal" and after["verdict"] == "anomalous" and before["score"] == after["score"]
        assert client.get(f"/v1/inspections/{before['id']}").json() == before
    with serving([model], tmp_path / "data") as client:
        assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == 0.9
        assert client.get("/v1/drift").json()["parts"] == 2  # it remembers what the store knows


def test_review_measures_and_exports(model, tmp_path):
    with serving([model], tmp_path / "data") as client:
        for seed in range(12):
            defect = seed % 2 == 1
            id = client.post("/v1/inspect", files=image(png(100 + seed, defect=defect), "../../x.png")).json()["id"]
            client.put(f"/v1/inspections/{id}/review", json={"verdict": "bad" if defect else "good"})
        report = client.get("/v1/review").json()
        assert report["counts"] == {"inspections": 12, "reviewed": 12, "good": 6, "bad": 6, "unsure": 0}
        table = report["table"]
        assert report["recall"]["value"] == table["rejected_bad"] / 6
        assert report["recall"]["low"] <= report["recall"]["value"] <= report["recall"]["high"]
        if report["suggestion"]:  # what is suggested can be set, and does what it says
            rate = report["suggestion"]["rate"]
            assert (
                client.get("/v1/models/part/what-if", params={"rate": rate}).json()["threshold"]
                == (report["suggestion"]["threshold"])
            )
        with zipfile.ZipFile(io.BytesIO(client.get("/v1/review/export").content)) as archive:
            names = archive.namelist()
            assert all(name.startswith("part/") and ".." not in name for name in names)
            assert len([name for name in names if name.startswith("part/bad/")]) == 6


def test_health_metrics_and_what_is_not_there(client, past):
    assert client.get("/healthz").json() == {"status": "ok"}
    text = client.get("/metrics").text
    assert 'nfad_inspections_total{model="part",verdict="normal"}' in text
    assert 'nfad_queue_waiting{model="part"} 0.0' in text and 'nfad_drift{model="part"} 0.0' in text
    assert 'nfad_inspection_seconds_bucket{le="+Inf",model="part"}' in text
    for method, address, status in [
        ("GET", "/nothing", 404), ("GET", "/docs", 404), ("POST", "/healthz", 405), ("GET", "/v1/inspections/x", 422),
        ("GET", f"/v1/inspections/{22 * 'f'}", 404), ("GET", f"/v1/inspections/{22 * 'f'}/photo", 404),
        ("GET", "/v1/inspections?limit=0", 422), ("GET", "/v1/inspections?since=yesterday", 422),
        ("GET", "/v1/models/part/what-if?rate=nan", 422), ("GET", "/v1/models/none/what-if?rate=0.5", 404),
    ]:  # fmt: skip
        answer = client.request(method, address)
        assert answer.status_code == status and list(answer.json()) == ["error"], address
    assert "nfad_refused_total" in client.get("/metrics").text


def test_a_lost_database_is_a_503_and_health_says_so(model, tmp_path):
    with serving([model], tmp_path / "data") as client:
        file = tmp_path / "data/inspections.db"
        client.service.store.close()  # its idle connections
        kept = file.rename(tmp_path / "kept.db")
        file.mkdir()
        answer = client.post("/v1/inspect", files=image())
        assert answer.status_code == 503 and list(answer.json()) == ["error"]
        assert not list((tmp_path / "data/pictures").glob("*/*"))  # no row, no pictures
        assert client.get("/healthz").status_code == 503
        file.rmdir()
        kept.rename(file)
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/inspect", files=image()).status_code == 200


def test_the_page_and_openapi_are_served(client):
    schema = client.get("/openapi.json").json()
    assert {"/v1/inspect", "/v1/batch", "/v1/review/export", "/metrics"} <= schema["paths"].keys()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"] and "503" in operation["responses"], (method, path)
    answer = client.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert httpx.get(client.base_url.join("/../nfad/service/app.py")).status_code == 404
