"""The third verdict over HTTP: kept, told, counted apart, and nowhere taken for a good part."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image
from service.judging import BLACK, STRANGE, WHITE, choosy
from service.serving import image, png, serving

from nfad.drift.state import UNJUDGED
from nfad.report.pictures import CONTOUR

NO_SCORE = "Not judged: the model found no finite score for this photo."


@pytest.fixture
def station(model, tmp_path, url):
    with serving([model], tmp_path / "data", load=choosy, db=url) as client:
        yield client


def inspected(client, content, name="part.png"):
    answer = client.post("/v1/inspect", files=image(content, name))
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(client, **filters):
    page = client.get("/v1/inspections", params=filters).json()
    return {each["image"] for each in page["inspections"]}


def test_what_lies_outside_the_fit_is_answered_and_kept_as_not_judged(station):
    told = inspected(station, BLACK, "black.png")
    assert told["verdict"] == "not judged" and told["explanation"] == f"Not judged: {STRANGE}."
    assert told["strangeness"] == 1.5 and told["score"] is None and told["unfiltered_score"] is None
    assert told.pop("camera") is None and station.get(f"/v1/inspections/{told['id']}").json() == told
    assert inspected(station, png(1))["strangeness"] == 0.4


def test_a_photo_without_a_finite_score_is_kept_with_those_beside_it(station):
    sent = [("a.png", png(1)), ("white.png", WHITE), ("b.png", png(2)), ("white-2.png", WHITE), ("c.png", png(3))]
    answer = station.post("/v1/batch", files=[("image", (name, content, "image/png")) for name, content in sent])
    results = answer.json()["results"]
    assert [each["status"] for each in results] == 5 * [200], answer.text
    for each in results:
        told = each["inspection"]
        white = each["image"].startswith("white")
        assert (told["verdict"] == "not judged") == white == (told["score"] is None)
        assert (told["explanation"] == NO_SCORE) == white == (told["strangeness"] is None)
        for name in ("photo", "thumbnail", "map", "unfiltered_map"):
            assert station.get(told["images"][name]).status_code == 200
    assert names(station) == {name for name, _ in sent}


def test_history_finds_it_under_its_own_verdict_and_no_other(station):
    sent = {"black.png": BLACK, "white.png": WHITE, "part.png": png(1), "bad.png": png(1, defect=True)}
    for name, content in sent.items():
        inspected(station, content, name)
    unjudged = {"black.png", "white.png"}
    assert names(station, verdict="not judged") == unjudged
    assert not unjudged & (names(station, verdict="normal") | names(station, verdict="anomalous"))
    assert names(station, changed=True) | names(station, changed=False) == {"part.png", "bad.png"}
    refused = station.get("/v1/inspections", params={"verdict": "good"})
    assert refused.status_code == 422 and "'not judged'" in refused.json()["error"]


def test_no_map_of_it_is_outlined(station):
    for content in (BLACK, WHITE):
        told = inspected(station, content)
        for name in ("map", "unfiltered_map"):
            shown = np.asarray(Image.open(io.BytesIO(station.get(told["images"][name]).content)))
            assert not (np.abs(shown.astype(int) - CONTOUR).sum(axis=2) < 40).any(), name


def test_no_rate_makes_it_accepted_or_rejected(station):
    for content in (BLACK, WHITE, png(1), png(2), png(3, 64, True)):
        inspected(station, content)
    for each in station.get("/v1/models").json()["models"][0]["rates"]:
        told = station.get("/v1/models/part/what-if", params={"rate": each["rate"]}).json()
        assert (told["inspections"], told["not_judged"]) == (3, 2)
        assert told["anomalous"]["at_rate"] <= 3
        assert "not judged" not in {part["verdict"] for part in told["rejected"] + told["accepted"]}
    station.put("/v1/models/part/rate", json={"rate": 0.9}).raise_for_status()
    assert inspected(station, BLACK)["verdict"] == inspected(station, WHITE)["verdict"] == "not judged"


def test_a_review_of_it_is_kept_exported_and_in_no_agreement(station):
    def review(content, verdict):
        id = inspected(station, content)["id"]
        answer = station.put(f"/v1/inspections/{id}/review", json={"verdict": verdict}).json()
        assert answer["review"]["verdict"] == verdict
        return answer["id"]

    review(png(1), "good")
    before = station.get("/v1/review").json()
    assert before["not_judged"] == {"inspections": 0, "reviewed": 0, "good": 0, "bad": 0, "unsure": 0}
    good = {review(content, "good") for content in 4 * (BLACK,) + 2 * (WHITE,)}
    bad = {review(content, "bad") for content in 5 * (BLACK,)}
    review(WHITE, "unsure")
    told = station.get("/v1/review").json()
    assert told["not_judged"] == {"inspections": 12, "reviewed": 12, "good": 6, "bad": 5, "unsure": 1}
    assert told == before | {"not_judged": told["not_judged"]}
    with zipfile.ZipFile(io.BytesIO(station.get("/v1/review/export").content)) as archive:
        lines = [json.loads(line) for line in archive.read("part/inspections.jsonl").splitlines()]
    kept = {line["id"]: line["image"].split("/")[0] for line in lines if line["verdict"] == "not judged"}
    assert kept == dict.fromkeys(good, "good") | dict.fromkeys(bad, "bad")


def test_drift_counts_it_and_alarms_where_it_is_many(station):
    for seed in range(3):
        inspected(station, png(seed))
    first = inspected(station, BLACK)
    for _ in range(3):
        inspected(station, BLACK)
        inspected(station, WHITE)
    told = station.get("/v1/drift").json()
    assert told["state"] == UNJUDGED and told["alarm"] and (told["photos"], told["parts"]) == (10, 3)
    assert told["questions"]["not_judged"]["alarm"] and told["questions"]["not_judged"]["since"] == 4
    assert told["since"] is None and told["since_time"] == first["time"]
    assert station.get("/v1/models").json()["models"][0]["drift"] == UNJUDGED
    assert station.service.model(None)._replayed_monitor().state() == station.service.model(None).monitor.state()
    numbers = station.get("/metrics").text
    assert 'nfad_inspections_total{model="part",verdict="not judged"} 7.0' in numbers
    assert 'nfad_drift{model="part"} 1.0' in numbers


def test_every_verdict_is_counted_from_the_start(station):
    numbers = station.get("/metrics").text
    for verdict in ("normal", "anomalous", "not judged"):
        assert f'nfad_inspections_total{{model="part",verdict="{verdict}"}} 0.0' in numbers
