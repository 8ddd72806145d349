from dataclasses import replace

import pytest
from service.serving import image, png, serving

from nfad import Detector
from nfad.service.record import new_id


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    """Twenty inspections of this model file on either side of its threshold, and one of another file."""
    with serving([model], tmp_path_factory.mktemp("data")) as client:
        made = client.post("/v1/inspect", files=image(png(1))).json()
        one = client.service.store.get(made["id"])
        others = [_scored(one, made["threshold"] * (0.05 + 0.1 * number)) for number in range(20)]
        client.service.store.add([*others, replace(others[0], id=new_id(), model_sha256="other")])
        yield client


def _scored(one, score):
    return replace(one, id=new_id(), score=score, verdict="anomalous" if score > one.threshold else "normal")


def test_what_if_names_the_parts_that_change_sides_the_nearest_first(client):
    kept = client.service.store.latest("part", client.service.model(None).sha256, 100)
    for rate in (each["rate"] for each in client.get("/v1/models").json()["models"][0]["rates"]):
        told = client.get("/v1/models/part/what-if", params={"rate": rate}).json()
        line = told["threshold"]
        rejected = sorted(each.score for each in kept if each.verdict == "normal" and each.score > line)
        accepted = sorted(each.score for each in kept if each.verdict == "anomalous" and each.score <= line)[::-1]
        assert [each["score"] for each in told["rejected"]] == rejected[:12]
        assert [each["score"] for each in told["accepted"]] == accepted[:12]
        assert (told["newly_rejected"], told["newly_accepted"]) == (len(rejected), len(accepted))


def test_what_if_changes_both_ways_and_names_a_dozen_at_most(client):
    store, sha256 = client.service.store, client.service.model(None).sha256
    for threshold, which in ((0.0, "rejected"), (1e9, "accepted")):
        changing = store.changing("part", sha256, threshold, 4)
        other = "accepted" if which == "rejected" else "rejected"
        assert len(changing[which]) == 4 and changing[other] == []
        nearest = sorted(changing[which], key=lambda each: abs(each.score - threshold))
        assert changing[which] == nearest and {each.model_sha256 for each in nearest} == {sha256}
    [one] = client.get("/v1/models/part/what-if", params={"rate": 0.9}).json()["rejected"][:1]
    assert client.get(f"/v1/inspections/{one['id']}").json() == one


def test_a_rate_holds_from_the_next_image_on_and_after_a_restart(model, tmp_path):
    detector = Detector.load(model)
    with serving([model], tmp_path / "data") as client:
        [told] = client.get("/v1/models").json()["models"]
        assert told["smallest_rate"] == detector.held_out.smallest_rate == pytest.approx(1 / 21)
        assert {"rate": 0.2, "threshold": detector.threshold} in told["rates"]
        before = client.post("/v1/inspect", files=image(png(25))).json()
        foreseen = client.get("/v1/models/part/what-if", params={"rate": 0.9}).json()
        assert foreseen["inspections"] == 1 and foreseen["threshold"] == detector.at_rate(0.9).threshold
        assert foreseen["anomalous"] == {"as_judged": 0, "at_rate": 1} and foreseen["newly_rejected"] == 1
        too_low = client.put("/v1/models/part/rate", json={"rate": 0.01})
        assert too_low.status_code == 422 and "held-out normals" in too_low.json()["error"]
        assert client.put("/v1/models/part/rate", json={"rate": 0.9}).json()["false_alarm_rate"] == 0.9
        after = client.post("/v1/inspect", files=image(png(25))).json()
        assert before["verdict"] == "normal" and after["verdict"] == "anomalous" and before["score"] == after["score"]
        assert client.get(f"/v1/inspections/{before['id']}").json() | {"camera": None} == before
    with serving([model], tmp_path / "data") as client:
        assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == 0.9
        assert client.get("/v1/drift").json()["parts"] == 2  # it remembers what the store knows
