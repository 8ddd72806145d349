from datetime import datetime, timedelta

import pytest
from service.serving import image, png


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
        return {each["image"] for each in page["inspections"]}

    here = {each["image"] for each in past}
    assert names(search="cam") == {"Cam 3.png"}
    assert names(search="0%") == {"100%.png"} and names(search="e_e") == {"e_e.png"}  # no wildcards
    assert names(model="other") == set() and here <= names(model="part")
    for verdict in ("normal", "anomalous"):
        assert {each["image"] for each in past if each["verdict"] == verdict} == names(verdict=verdict) & here
    changed = {each["image"] for each in past if each["verdict"] != each["unfiltered_verdict"]}
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
