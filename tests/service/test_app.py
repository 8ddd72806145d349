import httpx
from service.serving import image, serving


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


def test_health_metrics_and_what_is_not_there(client):
    client.post("/v1/inspect", files=image()).raise_for_status()
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
