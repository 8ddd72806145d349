"""Logs, health and metrics; the example dashboard and alerts speak of nothing that the service does not tell."""

import json
import logging
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from commands import nfad
from service.serving import image, png, serving

from nfad.service.logs import JsonLines, log

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
FOREIGN = {"up"}  # Prometheus's own


@pytest.fixture
def lines():
    """What is logged, as JSON."""
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append(json.loads(self.format(record)))

    handler, before = Keep(), log.level
    handler.setFormatter(JsonLines())
    logging.getLogger("nfad.service").addHandler(handler)
    log.setLevel(logging.INFO)
    yield found
    log.setLevel(before)
    logging.getLogger("nfad.service").removeHandler(handler)


def test_every_request_has_a_name_that_its_log_and_its_answer_tell(client, lines):
    own = client.post("/v1/inspect", files=image(), headers={"X-Request-Id": "cam-3.17"})
    assert own.headers["x-request-id"] == "cam-3.17"
    strange = client.get("/v1/nothing%0Anothing", headers={"X-Request-Id": 'a"b, c'})
    assert re.fullmatch("[0-9a-f]{16}", strange.headers["x-request-id"])
    until = time.monotonic() + 10
    while len(lines) < 2 and time.monotonic() < until:  # they are written after the answer
        time.sleep(0.01)
    told = {each["request"]: each for each in lines}
    assert set(told) == {"cam-3.17", strange.headers["x-request-id"]}
    judged = told["cam-3.17"]
    assert (judged["message"], judged["status"], judged["caller"]) == ("POST /v1/inspect", 200, "local")
    assert judged["seconds"] > 0 and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", judged["time"])


def test_a_failure_is_logged_with_its_request(client, lines, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("backend")

    monkeypatch.setattr(type(client.service.model("part").model), "predict_stream", broken)
    assert client.post("/v1/inspect", files=image(), headers={"X-Request-Id": "r1"}).status_code == 500
    [failed] = [each for each in lines if each["message"] == "an image could not be judged"]
    assert failed["request"] == "r1" and "RuntimeError: backend" in failed["exception"] and failed["level"] == "error"


def test_a_log_format_that_is_none_is_a_sentence(model, tmp_path):
    assert "text or json" in nfad("serve", model, "--data", tmp_path, "--log-format", "xml", code=2).stderr


def test_live_and_ready_are_two_things(model, tmp_path, monkeypatch):
    with serving([model], tmp_path, token=20 * "t") as client:
        service = client.service

        def statuses():
            return [httpx.get(client.base_url.join(path)).status_code for path in ("/livez", "/readyz", "/healthz")]

        assert statuses() == [200, 200, 200]
        monkeypatch.setattr(service.pictures, "_least_free", 10**18)
        assert statuses() == [200, 507, 200]
        monkeypatch.undo()
        database = tmp_path / "inspections.db"
        service.store.close()
        database.rename(tmp_path / "gone.db")
        database.mkdir()
        assert statuses() == [200, 503, 503]
        metrics = client.get("/metrics", headers={"Authorization": f"Bearer {20 * 't'}"}).text
        assert "nfad_database_up 0.0" in metrics
        service.store.close()
        database.rmdir()
        (tmp_path / "gone.db").rename(database)
        service.model("part").queue.close()
        assert statuses() == [503, 503, 503]


@pytest.fixture(scope="module")
def told(client):
    """Names of all metrics, with what histograms add."""
    client.post("/v1/inspect", files=image(png(3))).raise_for_status()
    assert client.get("/v1/nothing").status_code == 404
    text = client.get("/metrics").text
    assert 'nfad_queue_places{model="part"} 32.0' in text and "nfad_commit_seconds_count" in text
    return set(re.findall(r"^(nfad_\w+)", text, re.M))


def expressions():
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml reads the alerts")
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_dashboard_and_alerts_name_metrics_that_there_are(told):
    named = set()
    for expression in expressions():
        names = set(re.findall(r"\bnfad_\w+", re.sub(r'"[^"]*"|job="nfad"', "", expression)))
        assert names or FOREIGN & set(re.findall(r"\w+", expression)), expression
        named |= names
    assert named <= told, named - told
    ours = {re.sub("_(bucket|sum|count|created)$", "", each) for each in told}
    assert ours - {re.sub("_bucket$", "", each) for each in named} <= {
        "nfad_inspections",
        "nfad_refused",
        "nfad_camera_frozen",
    }  # all are used


def test_promtool_takes_the_alerts():
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("there is no promtool; Debian's package prometheus brings it")
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([tool, *arguments], cwd=EXAMPLES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
