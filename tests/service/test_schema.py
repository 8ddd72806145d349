"""What OpenAPI allows, and much that it does not, is answered as OpenAPI says and never with a 5xx."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from service.serving import image, serving

schemathesis = pytest.importorskip("schemathesis")


def explore(client, examples):
    schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
    client.post("/v1/inspect", files=image())
    seen = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def answered(case):
            response = case.call()
            assert response.status_code < 500, (case.as_curl_command(), response.text)
            documented = {int(status) for status in case.operation.definition.raw["responses"] if status.isdigit()}
            assert response.status_code in documented | {400, 404, 405}, case.as_curl_command()
            if response.status_code >= 400:
                assert list(response.json()) == ["error"]

        answered()
        seen += 1
    assert seen >= 18
    assert client.get("/healthz").status_code == 200


def test_no_operation_fails(client):
    explore(client, examples=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_operation_fails_in_many_tries(model, tmp_path, kind, request):
    db = request.getfixturevalue("database") if kind == "postgresql" else None
    with serving([model], tmp_path, db=db) as client:
        explore(client, examples=int(os.environ.get("NFAD_EXAMPLES", "150")))
