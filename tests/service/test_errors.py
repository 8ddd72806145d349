import json
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core.core_schema import ErrorType
from service.serving import image, serving

from nfad.service.errors import validation_message

TYPE = {"Content-Type": "application/json"}
MOMENT = "must be a moment such as 2026-03-02T09:00:00Z, whose + for a zone is %2B in an address"
QUERIES = {
    "limit=x": 'limit must be a whole number; got "x"',
    "limit=1.5": 'limit must be a whole number; got "1.5"',
    "limit=": 'limit must be a whole number; got ""',
    f"limit={5000 * '9'}": "limit must be a whole number; got 5000 characters",
    "limit=0": 'limit must be at least 1; got "0"',
    "limit=201": 'limit must be at most 200; got "201"',
    "before=x": 'before must be an inspection\'s id, 22 digits of 0-9 and a-f, taken from an answer; got "x"',
    "since=yesterday": f'since {MOMENT}; got "yesterday"',
    "until=2026-03-02T10:00:00+01:00": f'until {MOMENT}; got "2026-03-02T10:00:00 01:00"',
    "verdict=good": "verdict must be 'normal', 'anomalous' or 'not judged'; got \"good\"",
    "changed=perhaps": 'changed must be true or false; got "perhaps"',
    f"model={65 * 'x'}": "model may have at most 64 characters; got 65 characters",
    f"search={256 * 'x'}": "search may have at most 255 characters; got 256 characters",
}
BODIES = {
    b"{": "the body is not JSON from its character 2 on; send a JSON object",
    b"": "send the body as a JSON object, with the header Content-Type: application/json",
    b"[]": "send the body as a JSON object, with the header Content-Type: application/json",
    b"{}": "verdict in the body is missing; add it",
    b'{"verdict": "good", "colour": 1}': "colour in the body is not known; leave it out",
    b'{"verdict": "\\ud800"}': 'verdict in the body must be text; got "?"',
    b'{"verdict": null}': "verdict in the body must be 'good', 'bad' or 'unsure'; got null",
    b'{"verdict": "good", "note": 5}': "note in the body must be text; got 5",
    b'{"verdict": "good", "note": ["a"]}': "note in the body must be text; got a list",
    b'{"verdict": "good", "note": "%s"}' % (2001 * b"x"): (
        "note in the body may have at most 2000 characters; got 2001 characters"
    ),
}
RATES = {
    b'{"rate": "x"}': 'rate in the body must be a number such as 0.05; got "x"',
    b'{"rate": null}': "rate in the body must be a number such as 0.05; got null",
    b'{"rate": 5}': "rate in the body must be less than 1; got 5",
    b'{"rate": 0}': "rate in the body must be more than 0; got 0",
    b'{"rate": NaN}': "rate in the body must be less than 1; got NaN",
}


@pytest.fixture(scope="module")
def review(client):
    return f"/v1/inspections/{client.post('/v1/inspect', files=image()).json()['id']}/review"


@pytest.mark.parametrize(("query", "sentence"), QUERIES.items())
def test_a_parameter(client, query, sentence):
    answer = client.get(f"/v1/inspections?{query}")
    assert (answer.status_code, answer.json()) == (422, {"error": sentence})


@pytest.mark.parametrize(("body", "sentence"), BODIES.items())
def test_a_body(client, review, body, sentence):
    answer = client.put(review, content=body, headers=TYPE)
    assert (answer.status_code, answer.json()) == (422, {"error": sentence})


@pytest.mark.parametrize(("body", "sentence"), RATES.items())
def test_a_rate(client, body, sentence):
    answer = client.put("/v1/models/part/rate", content=body, headers=TYPE)
    assert (answer.status_code, answer.json()) == (422, {"error": sentence})
    assert client.get("/v1/models/part/what-if").json() == {"error": "rate is missing; add it"}


@pytest.mark.parametrize("kind", [None, "text/plain", "multipart/form-data; boundary=x"])
def test_a_body_that_does_not_call_itself_json(client, review, kind):
    answer = client.put(review, content=b'{"verdict": "good"}', headers=kind and {"Content-Type": kind})
    assert answer.status_code == 422 and "Content-Type: application/json" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["APPLICATION/JSON; charset=utf-8", "application/vnd.api+json"])
def test_json_by_another_name_is_not_told_to_call_itself_json(client, review, kind):
    answer = client.put(review, content=b'{"verdict": "fine"}', headers={"Content-Type": kind})
    assert answer.json()["error"].startswith("verdict in the body must be")


@pytest.mark.parametrize(
    "body", [b'"\xff"', b'{"rate": %s}' % (5000 * b"9"), 20_000 * b"["], ids=["bytes", "digits", "deep"]
)
def test_a_body_that_no_parser_takes(client, review, body):
    answer = client.put(review, content=body, headers=TYPE)
    assert answer.status_code == 400 and "send a small JSON object" in answer.json()["error"]


def test_an_address(client):
    assert "name in the address must be 'map'" in client.get(f"/v1/inspections/{22 * 'f'}/maps/x").json()["error"]
    assert "id in the address must be an inspection's id" in client.get("/v1/inspections/x").json()["error"]
    assert client.get(f"/v1/models/{65 * 'x'}/what-if?rate=0.5").json()["error"].startswith("name in the address may")


def test_a_token_is_never_repeated(model, tmp_path):
    token = "correct-horse-battery"
    with serving([model], tmp_path, token=token) as client:
        for given in (123456, [token], 1001 * "x", None, {"a": token}):
            answer = client.post("/v1/login", json={"token": given})
            assert answer.status_code == 422 and answer.json()["error"].startswith("token in the body m")
            assert "horse" not in answer.text and "1234" not in answer.text and "xx" not in answer.text


def test_a_body_that_does_not_end_is_refused_while_it_arrives(client, review):
    sent = []

    def endless():
        for _ in range(100):
            sent.append(1)
            yield bytes(1_000_000)

    for method, address in (("POST", "/v1/login"), ("PUT", review)):
        with httpx.Client(base_url=client.base_url) as other:  # its connection may be closed while it sends
            answer = other.request(method, address, content=endless(), headers=TYPE)
        assert (answer.status_code, answer.json()) == (413, {"error": "the body may have 64 kB; this one has more"})


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)


CONTEXT = {"gt": 0, "ge": 1, "lt": 1.0, "le": 200, "expected": "'a' or 'b'", "max_length": 64}


@given(st.sampled_from(get_args(ErrorType)), JSON, st.sampled_from(["query", "path", "body"]), st.text(max_size=99))
def test_every_kind_of_validation_error_has_a_short_sentence(kind, value, place, name):
    where = (place, 1 if kind == "json_invalid" else name)
    told = validation_message(
        {"type": kind, "loc": where, "input": value, "ctx": CONTEXT, "msg": "Input should be other"}
    )
    assert len(told) < 300 and "Input should" not in told and "{" not in told.replace(name, "").split("; got")[0]
    assert json.loads(json.dumps({"error": told}, ensure_ascii=False).encode()) == {"error": told}
