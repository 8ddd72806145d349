"""Whatever is done in whatever order, with restarts in between, the station says what a list of what was done says.

`NFAD_FUZZ=3600 pytest tests/service/test_stateful.py` goes on for an hour, each time with another chance.
"""

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from service.judging import BLACK, choosy
from service.serving import image, png, serving

from nfad.service import store

SECONDS = float(os.environ.get("NFAD_FUZZ", "0"))
RATES, NAMES, REVIEWS = (0.2, 0.3, 0.5, 0.9), ("a.png", "B_1%.png", "ä b.png"), ("good", "bad", "unsure")
PARTS = {f"{seed}{'x' * defect}": png(seed, defect=defect) for seed in range(4) for defect in (False, True)}
PARTS["black"] = BLACK  # which is not judged


class Station(RuleBasedStateMachine):
    path = loaded = None  # of the model
    kept = Bundle("kept")

    def __init__(self):
        super().__init__()
        self.data = Path(tempfile.mkdtemp())
        self.known, self.rate = {}, 0.2  # records by id, in the order they were made
        self.start()

    def start(self):
        self.stack = ExitStack()
        self.client = self.stack.enter_context(serving([self.path], self.data, lambda _: self.loaded))

    def get(self, address, **params):
        return self.client.get(address, params=params).raise_for_status().json()

    @rule(target=kept, part=st.sampled_from(sorted(PARTS)), name=st.sampled_from(NAMES))
    def inspect(self, part, name):
        told = self.client.post("/v1/inspect", files=image(PARTS[part], name)).raise_for_status().json()
        assert told["id"] not in self.known and told["image"] == name and told["review"] is None
        assert told["verdict"] == ("not judged" if part == "black" else told["verdict"])
        if told["score"] is not None:
            assert (told["score"] > told["threshold"]) == (told["verdict"] == "anomalous")
        told.pop("camera")  # of the moment, not of the inspection
        self.known[told["id"]] = told
        return told["id"]

    @rule(content=st.binary(max_size=200))
    def broken(self, content):
        answer = self.client.post("/v1/inspect", files=image(content))
        assert answer.status_code == 400 and list(answer.json()) == ["error"]

    @rule(id=kept, verdict=st.sampled_from(REVIEWS), note=st.text(max_size=30))
    def review(self, id, verdict, note):
        told = self.client.put(f"/v1/inspections/{id}/review", json={"verdict": verdict, "note": note})
        if any("\ud800" <= each <= "\udfff" for each in note):
            assert told.status_code < 500
            self.known[id] = self.get(f"/v1/inspections/{id}")
            return
        assert told.raise_for_status().json()["review"]["verdict"] == verdict
        self.known[id] = told.json()

    @rule(id=kept)
    def take_back(self, id):
        self.known[id] = self.client.delete(f"/v1/inspections/{id}/review").raise_for_status().json()
        assert self.known[id]["review"] is None

    @rule(rate=st.sampled_from(RATES))
    def set_rate(self, rate):
        self.client.put("/v1/models/part/rate", json={"rate": rate}).raise_for_status()
        self.rate = rate

    @rule(rate=st.sampled_from(["0", "1", "-1", "1e-9", "NaN", "1e999", '"x"', "null", "[]"]))
    def senseless_rate(self, rate):
        answer = self.client.put("/v1/models/part/rate", content=f'{{"rate": {rate}}}')
        assert 400 <= answer.status_code < 500 and list(answer.json()) == ["error"]

    @rule()
    def restart(self):
        self.stack.close()
        self.start()

    @rule(
        verdict=st.sampled_from([None, "normal", "anomalous", "not judged"]),
        review=st.sampled_from([None, "none", "any", *REVIEWS]),
        search=st.sampled_from([None, "A", "%", "_1", "b", "zz"]),
        limit=st.integers(1, 5),
    )
    def find(self, verdict, review, search, limit):
        def fits(each):
            said = each["review"] and each["review"]["verdict"]
            wanted = {None: True, "none": said is None, "any": said is not None}.get(review, said == review)
            return wanted and verdict in (None, each["verdict"]) and (search or "").lower() in each["image"].lower()

        given = {"verdict": verdict, "review": review, "search": search, "limit": limit}
        given = {name: value for name, value in given.items() if value is not None}
        found, page = [], {"next": ""}
        while page["next"] is not None:
            page = self.get("/v1/inspections", **given, **({"before": page["next"]} if page["next"] else {}))
            assert len(page["inspections"]) <= limit
            found += page["inspections"]
        assert found == [each for each in reversed(self.known.values()) if fits(each)]

    @rule(rate=st.sampled_from(RATES))
    def what_if(self, rate):
        told = self.get("/v1/models/part/what-if", rate=rate)
        judged = [each for each in self.known.values() if each["score"] is not None]
        assert (told["inspections"], told["not_judged"]) == (len(judged), len(self.known) - len(judged))
        assert told["anomalous"] == {
            "as_judged": sum(each["verdict"] == "anomalous" for each in judged),
            "at_rate": sum(each["score"] > told["threshold"] for each in judged),
        }

    @invariant()
    def counts_and_rate_are_those_of_the_list(self):
        [model] = self.get("/v1/models")["models"]
        assert model["false_alarm_rate"] == pytest.approx(max(self.rate, model["smallest_rate"]))
        told = self.get("/v1/review")
        for group, judged in (("counts", True), ("not_judged", False)):
            mine = [each for each in self.known.values() if (each["score"] is not None) == judged]
            said = [each["review"]["verdict"] for each in mine if each["review"]]
            assert told[group] == {
                "inspections": len(mine), "reviewed": len(said), **{word: said.count(word) for word in REVIEWS},
            }  # fmt: skip
        assert self.get("/v1/drift")["photos"] == len(self.known)

    def teardown(self):
        self.stack.close()
        shutil.rmtree(self.data)


def test_any_order_of_requests_and_restarts_is_told_as_it_was(model, monkeypatch):
    monkeypatch.setattr(store, "SEARCHED", 3)  # names that are read a page
    Station.path, Station.loaded = model, choosy(model)
    few = settings(
        max_examples=3, stateful_step_count=10, deadline=None, database=None, derandomize=not SECONDS,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    until = time.monotonic() + SECONDS
    run_state_machine_as_test(Station, settings=few)
    while time.monotonic() < until:
        run_state_machine_as_test(Station, settings=settings(few, max_examples=50, stateful_step_count=40))
