from dataclasses import replace

import pytest
from service.serving import image, png, serving

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
