"""Tokens with roles, made and revoked while the service runs; every change is noted with who made it; TLS; proxies."""

import socket
import ssl
import subprocess
import sys
import time

import httpx
import pytest
from commands import nfad
from service.serving import image, serving

from nfad import Detector
from nfad.errors import NfadError
from nfad.service.access import Access, Token, make_token, revoke_token, rotate_token, session_key
from nfad.service.store import Store

OPERATES = [("POST", "/v1/inspect"), ("PUT", "/v1/models/part/rate"), ("DELETE", "/v1/inspections/{}/review")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def tokens(data):
    """Made before the first start."""
    return {
        role: nfad("station", "token", "add", f"my-{role}", "--role", role, "--data", data).stdout.strip()
        for role in ("view", "operate", "administer")
    }


@pytest.fixture(scope="module")
def station(model, data, tokens):
    with serving([model], data, locked=True) as client:
        yield client


def as_(token):
    return {"Authorization": f"Bearer {token}"}


def test_only_hashes_are_kept(station, data, tokens):
    kept = b"".join(path.read_bytes() for path in data.glob("inspections.db*"))
    assert not [token for token in tokens.values() if token.encode() in kept]


def test_a_role_may_do_what_it_is_for(station, tokens):
    assert station.get("/v1/models").status_code == 401
    kept = station.post("/v1/inspect", files=image(), headers=as_(tokens["operate"])).json()
    for method, address in OPERATES:
        told = station.request(method, address.format(kept["id"]), headers=as_(tokens["view"]))
        assert told.status_code == 403 and "needs a token of the role operate; my-view may view" in told.json()["error"]
    assert station.get("/v1/models", headers=as_(tokens["view"])).status_code == 200
    said = {"json": {"verdict": "bad"}, "headers": as_(tokens["operate"])}
    assert station.put(f"/v1/inspections/{kept['id']}/review", **said).status_code == 200


def test_what_changes_verdicts_may_be_locked(station, tokens):
    given = {"json": {"rate": 0.3}}
    told = station.put("/v1/models/part/rate", **given, headers=as_(tokens["operate"]))
    assert told.status_code == 403 and "role administer" in told.json()["error"]
    assert station.put("/v1/models/part/rate", **given, headers=as_(tokens["administer"])).status_code == 200
    mine = [station.get("/v1/me", headers=as_(tokens[role])).json() for role in ("operate", "administer")]
    assert [each["may_change_verdicts"] for each in mine] == [False, True]


def test_unlocked_an_operator_changes_the_rate(model, tmp_path):
    token = nfad("station", "token", "add", "anna", "--role", "operate", "--data", tmp_path).stdout.strip()
    with serving([model], tmp_path) as client:
        assert client.put("/v1/models/part/rate", json={"rate": 0.3}, headers=as_(token)).status_code == 200
        [rate, first] = client.get("/v1/changes", headers=as_(token)).json()["changes"][:2]
        assert (rate["who"], rate["what"], rate["subject"]) == ("anna", "rate", "part")
        assert rate["before"] == {"rate": pytest.approx(0.2, abs=0.05)} and rate["after"] == {"rate": 0.3}
        assert (first["who"], first["what"], first["before"]) == ("nfad serve", "model", None)


def test_every_change_is_noted_with_who_made_it(model, tmp_path):
    with serving([f"line={model}"], tmp_path / "data") as client:
        kept = client.post("/v1/inspect", files=image()).json()
        for verdict in ("bad", "good"):
            client.put(f"/v1/inspections/{kept['id']}/review", json={"verdict": verdict}).raise_for_status()
        client.delete(f"/v1/inspections/{kept['id']}/review").raise_for_status()
        found = client.get("/v1/changes", params={"what": "review", "subject": kept["id"]}).json()["changes"]
        steps = [(each["before"]["verdict"], each["after"]["verdict"]) for each in found[::-1]]
        assert steps == [(None, "bad"), ("bad", "good"), ("good", None)] and {each["who"] for each in found} == {
            "local"
        }
        assert client.put(f"/v1/inspections/{22 * '0'}/review", json={"verdict": "bad"}).status_code == 404
        page = client.get("/v1/changes", params={"limit": 3}).json()
        rest = client.get("/v1/changes", params={"before": page["next"]}).json()
        assert len(page["changes"]) == 3 and [each["what"] for each in rest["changes"]] == ["model"]
        assert rest["next"] is None and client.get("/v1/changes", params={"what": "all"}).status_code == 422
    other = Detector.load(model).at_rate(0.4).save(tmp_path / "other.nfad")
    for file in (model, other):  # the same one again is no change
        with serving([f"line={file}"], tmp_path / "data") as client:
            found = client.get("/v1/changes", params={"what": "model"}).json()["changes"]
    assert [each["before"] for each in found] == [found[1]["after"], None] and found[0]["after"] != found[1]["after"]


def test_a_token_is_rotated_and_revoked_while_the_service_runs(station, data, tokens):
    def status(token):
        time.sleep(1.1)
        return station.get("/v1/models", headers=as_(token)).status_code

    first = nfad("station", "token", "add", "cam", "--role", "view", "--data", data).stdout.strip()
    assert status(first) == 200
    assert station.post("/v1/login", json={"token": first}).status_code == 204
    assert station.get("/v1/models").status_code == 200  # by the cookie
    second = nfad("station", "token", "rotate", "cam", "--data", data).stdout.strip()
    assert (status(first), status(second)) == (401, 200) and station.get("/v1/models").status_code == 401
    nfad("station", "token", "revoke", "cam", "--data", data)
    assert status(second) == 401
    assert "cam  view  revoked" in nfad("station", "token", "list", "--data", data).stdout
    station.cookies.clear()
    found = station.get("/v1/changes", params={"what": "token", "subject": "cam"}, headers=as_(tokens["view"])).json()
    assert [each["who"] for each in found["changes"]] == 3 * ["nfad station"]


def test_a_station_whose_last_token_is_revoked_is_closed_not_open(url, tmp_path):
    engine = Store(url).engine
    make_token(engine, "only", "view")
    revoke_token(engine, "only")
    access = Access(engine, None, session_key(tmp_path))
    assert not access.is_open and access.caller({}) is None
    assert session_key(tmp_path) == session_key(tmp_path) and (tmp_path / "session.key").stat().st_mode & 0o77 == 0
    engine.dispose()


def test_who_has_the_hashes_cannot_log_in(url, tmp_path):
    engine = Store(url).engine
    secret = make_token(engine, "a", "view")
    access = Access(engine, None, session_key(tmp_path))
    token = access.by_secret(secret)
    assert access.caller({"authorization": f"Bearer {token.sha256}"}) is None
    stranger = Access(engine, None, b"another key").cookie(token)
    assert access.caller({"cookie": f"nfad={stranger}"}) is None
    assert access.caller({"cookie": f"nfad={access.cookie(token)}"}).name == "a"
    engine.dispose()


@pytest.mark.parametrize("name", ["", "-a", "a b", "token", 65 * "a"])
def test_names_and_roles_are_checked(name, tmp_path):
    engine = Store(f"sqlite:///{tmp_path}/a.db").engine
    with pytest.raises(NfadError, match="cannot be a token's name"):
        make_token(engine, name, "view")
    for wrong in (lambda: make_token(engine, "a", "boss"), lambda: rotate_token(engine, "a")):
        with pytest.raises(NfadError, match="one of view|no token a"):
            wrong()
    make_token(engine, "a", "view")
    with pytest.raises(NfadError, match="already"):
        make_token(engine, "a", "view")
    assert Token("a", "view", "").revoked is None
    engine.dispose()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    place = tmp_path_factory.mktemp("tls")
    names = ["-keyout", place / "key.pem", "-out", place / "cert.pem", "-subj", "/CN=localhost"]
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *extra],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return place / "cert.pem", place / "key.pem"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def started(model, data, *options):
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "nfad",
            "serve",
            model,
            "--data",
            data,
            "--port",
            str(port),
            "--least-free",
            "0",
            *options,
        ]
    )
    return process, port


def answer_of(process, address, **options):
    until = time.monotonic() + 120
    while True:
        try:
            return httpx.get(address, **options)
        except httpx.TransportError:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.2)


def test_https_by_certificate_files(model, certificate, tmp_path):
    cert, key = certificate
    process, port = started(model, tmp_path, "--tls-cert", cert, "--tls-key", key, "--token", 20 * "t")
    try:
        trust = ssl.create_default_context(cafile=cert)
        assert answer_of(process, f"https://127.0.0.1:{port}/healthz", verify=trust).status_code == 200
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust) as client:
            told = client.post("/v1/login", json={"token": 20 * "t"}).headers["set-cookie"]
        assert "Secure" in told
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")
    finally:
        process.terminate()
        process.wait(60)


def test_a_pair_that_does_not_belong_together_is_a_sentence(model, certificate, tmp_path):
    cert, _ = certificate
    (tmp_path / "bad.pem").write_text("none")
    for options in (["--tls-cert", cert], ["--tls-cert", cert, "--tls-key", tmp_path / "bad.pem"]):
        told = nfad("serve", model, "--data", tmp_path / "d", *options, code=2).stderr
        assert "--tls-key" in told or "PEM files" in told


@pytest.mark.parametrize(
    ("options", "secure"),
    [
        pytest.param([], False, marks=pytest.mark.slow),
        (["--trust-proxy", "127.0.0.1"], True),
        (["--trust-proxy", "10.0.0.1"], False),
    ],
)
def test_a_proxy_is_believed_only_if_it_is_named(model, tmp_path, options, secure):
    """What a client says of itself decides on nothing, unless it comes by the proxy."""
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "10.9.8.7"}
    process, port = started(model, tmp_path, "--token", 20 * "t", *options)
    try:
        answer_of(process, f"http://127.0.0.1:{port}/healthz")
        login = {"json": {"token": 20 * "t"}, "headers": forwarded}
        told = httpx.post(f"http://127.0.0.1:{port}/v1/login", **login).headers["set-cookie"]
        assert ("Secure" in told) == secure
    finally:
        process.terminate()
        process.wait(60)
