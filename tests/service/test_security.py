import socket

import httpx
import pytest
from service.serving import image, serving

from nfad.errors import NfadError
from nfad.service.access import hashed
from nfad.service.errors import ApiError
from nfad.service.security import is_cross_origin, is_local_host
from nfad.service.settings import Retention, Settings, is_local
from nfad.service.throttle import ATTEMPTS, CLIENTS, SECONDS, TokenThrottle

TOKEN = "correct-horse-battery"
CLOSED = [
    ("GET", "/v1/inspections"), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/openapi.json"),
    ("POST", "/v1/inspect"), ("PUT", "/v1/models/part/rate"), ("GET", "/nothing"), ("GET", "//v1/models"),
    ("GET", "/v1/me/"), ("GET", "/healthz/../v1/models"), ("GET", "/%76%31/models"), ("HEAD", "/v1/models"),
]  # fmt: skip


@pytest.fixture(scope="module")
def locked(model, tmp_path_factory):
    with serving([model], tmp_path_factory.mktemp("data"), token=TOKEN) as client:
        assert client.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        yield client


@pytest.mark.parametrize(("method", "address"), CLOSED)
def test_nothing_is_open_without_the_token(locked, method, address):
    for headers in (
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Cookie": f"nfad={TOKEN}"},
        {"Cookie": b"nfad=\xff\xfe"}, {"Cookie": ";;;=,nfad"}, {"Authorization": b"Bearer \xff\xfe"},
    ):  # fmt: skip
        assert locked.request(method, address, headers=headers).status_code in (401, 429), headers
    assert locked.request(method, address).status_code == 401


def test_the_token_opens_and_the_cookie_is_not_the_token(locked):
    known = {"Authorization": f"Bearer {TOKEN}"}
    assert locked.get("/v1/models", headers=known).status_code == 200
    assert locked.post("/v1/inspect", files=image(), headers=known).status_code == 200
    assert locked.get("/healthz").status_code == 200 and locked.get("/").status_code == 200
    assert locked.get("/v1/me").json()["logged_in"] is False
    assert locked.post("/v1/login", json={"token": "wrong"}).status_code == 403
    answer = locked.post("/v1/login", json={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204 and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie and hashed(TOKEN) not in cookie
    assert locked.get("/v1/models").status_code == 200  # the client has kept the cookie
    assert locked.get("/v1/me").json() == {
        "login_needed": True, "logged_in": True, "version": "0.1.0", "name": "token", "role": "administer",
        "may_change_verdicts": True, "role_for_verdicts": "operate",
    }  # fmt: skip
    locked.post("/v1/logout")
    assert locked.get("/v1/models").status_code == 401


def test_other_sites_pages_change_nothing(locked):
    known = {"Authorization": f"Bearer {TOKEN}"}
    own = f"http://{locked.base_url.host}:{locked.base_url.port}"
    foreign = [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": own + ".evil.example"}, {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": f"http://{locked.base_url.host}:1"},
        {"Origin": "http://["}, {"Origin": "http://[::1"}, {"Origin": "http://\u2100.example".encode()},
    ]  # fmt: skip
    for headers in foreign:
        for method, address in (("POST", "/v1/inspect"), ("PUT", "/v1/models/part/rate"), ("POST", "/v1/login")):
            answer = locked.request(method, address, headers=known | headers)
            assert answer.status_code == 403, (headers, address)
    answer = locked.put("/v1/models/part/rate", json={"rate": 0.5}, headers=known | {"Origin": own})
    assert answer.status_code == 200


def test_an_origin_that_is_none_is_refused_where_there_is_no_token(client):
    for method, address in (("POST", "/v1/inspect"), ("PUT", "/v1/models/part/rate"), ("DELETE", "/nothing")):
        assert client.request(method, address, headers={"Origin": "http://["}).status_code == 403, address


@pytest.mark.parametrize(
    "before",
    [
        '{"theme":"dark","rows":[1, 2]}', 'prefs={"theme":"dark","rows":[1, 2]}', "flag", "a b=c d", "half=", "=", ";;",
        'quoted="a; b"', "nfad=old", "sp[ace]=1", "comma=a,b", "nfad", "é=ü",
    ],
)  # fmt: skip
def test_the_cookie_is_found_among_those_of_other_programs(locked, before):
    access = locked.service.access
    ours = f"nfad={access.cookie(access.by_secret(TOKEN))}"
    for cookies in (f"{before}; {ours}", f"{ours}; {before}", f"x=1;{before};{ours};y"):
        answer = httpx.get(locked.base_url.join("/v1/models"), headers={"Cookie": cookies.encode()})
        assert answer.status_code == 200, cookies
    for cookies in (f"{before}; x{ours}", f"{before}; {ours}0", f"{before}; nfad={TOKEN}"):
        answer = httpx.get(locked.base_url.join("/v1/models"), headers={"Cookie": cookies.encode()})
        assert answer.status_code == 401, cookies


def test_only_local_names_lead_to_a_service_without_a_token(client):
    port = client.base_url.port
    for name in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.nip.io", "", "[::1"):
        assert client.get("/v1/models", headers={"Host": name}).status_code in (400, 403), name
    for name in ("localhost", f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        assert client.get("/v1/models", headers={"Host": name}).status_code == 200, name


def test_every_answer_is_hardened_and_no_origin_is_welcome(client):
    for address in ("/", "/v1/models", "/nothing", "/healthz", "/v1/inspections/x"):
        headers = client.get(address, headers={"Origin": "https://evil.example"}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert client.options("/v1/models", headers={"Access-Control-Request-Method": "PUT"}).status_code == 405


@pytest.mark.parametrize(
    "lines",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/inspect HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/inspect HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /" + 100_000 * b"a" + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_header_tricks_get_a_4xx_or_a_closed_door(client, lines):
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=5) as connection:
        connection.sendall(lines)
        connection.shutdown(socket.SHUT_WR)
        first = connection.recv(100)
    assert not first or first.split()[1][:1] == b"4" or b"Content-Length: 5\r\nTransfer" in lines, first
    assert client.get("/healthz").status_code == 200


def test_websockets_are_refused(client):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    assert client.get("/v1/models", headers=upgrade).status_code < 500


def test_settings_refuse_an_open_door(tmp_path):
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(NfadError, match="token"):
            Settings(data=tmp_path, host=host)
        assert Settings(data=tmp_path, host=host, token=TOKEN).token == TOKEN
    for token in ("short", "with a blank in its middle", "", "ä" * 20):
        with pytest.raises(NfadError, match="16 ASCII characters"):
            Settings(data=tmp_path, token=token)
    assert all(map(is_local, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))


def test_keep_is_a_number_of_inspections_or_days():
    assert Retention.parse("500") == Retention(count=500) and Retention.parse("30d") == Retention(days=30)
    for text in ("", "0", "-1", "30 d", "d", "1h", "1e3"):
        with pytest.raises(NfadError, match="--keep"):
            Retention.parse(text)


def test_names_and_origins_by_themselves():
    assert is_local_host("localhost:80") and not is_local_host("localhost@evil.example")
    same = httpx.Headers({"host": "a:1", "origin": "http://a:1"})
    assert not is_cross_origin(same) and is_cross_origin(httpx.Headers({"host": "a:1", "origin": "http://a:2"}))


def test_a_client_has_a_few_attempts_a_minute_and_others_are_not_held_up():
    now = [0.0]
    throttle = TokenThrottle(lambda: now[0])
    for _ in range(ATTEMPTS):
        throttle.check("a")
        throttle.failed("a")
        now[0] += 1
    with pytest.raises(ApiError) as refused:
        throttle.check("a")
    assert refused.value.status == 429 and refused.value.retry_after == SECONDS - ATTEMPTS
    throttle.check("b")
    now[0] += refused.value.retry_after
    throttle.check("a")
    throttle.failed("a")
    with pytest.raises(ApiError):
        throttle.check("a")


def test_a_thousand_clients_are_remembered_and_no_more():
    throttle = TokenThrottle(lambda: 0.0)
    for number in range(3 * CLIENTS):
        throttle.check(str(number))
        throttle.failed(str(number))
    assert len(throttle._failures) == CLIENTS


def test_logins_are_throttled_with_the_right_token_too_and_programs_go_on(model, tmp_path):
    with serving([model], tmp_path, token=TOKEN) as client:
        answers = [client.post("/v1/login", json={"token": f"wrong-{i}"}) for i in range(20)]
        assert [each.status_code for each in answers] == ATTEMPTS * [403] + (20 - ATTEMPTS) * [429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= SECONDS
        assert client.post("/v1/login", json={"token": TOKEN}).status_code == 429
        known = {"Authorization": f"Bearer {TOKEN}"}
        assert client.post("/v1/inspect", files=image(), headers=known).status_code == 200


@pytest.mark.parametrize("address", ["/v1/models", "/v1/me"])
def test_wrong_tokens_of_programs_are_throttled_also_where_none_is_needed(model, tmp_path, address):
    right = {"Authorization": f"Bearer {TOKEN}"}
    with serving([model], tmp_path, token=TOKEN) as client:
        answers = [client.get(address, headers={"Authorization": f"Bearer wrong-{i}"}) for i in range(2 * ATTEMPTS)]
        first = 401 if address == "/v1/models" else 200
        assert [each.status_code for each in answers] == ATTEMPTS * [first] + ATTEMPTS * [429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= SECONDS and "wrong tokens" in answers[-1].json()["error"]
        assert client.get("/v1/models", headers=right).status_code == 429  # or a guess would be told
        assert client.post("/v1/login", json={"token": TOKEN}).status_code == 204  # has attempts of its own


def test_whoever_has_sent_the_right_token_is_not_held_up_by_anothers_wrong_ones():
    throttle = TokenThrottle(lambda: 0.0)
    throttle.admit("proxy", True)
    for _ in range(ATTEMPTS):
        throttle.admit("proxy", False)
    with pytest.raises(ApiError):
        throttle.admit("proxy", False)
    throttle.admit("proxy", True)
    throttle.admit("other", True)
    for number in range(2 * CLIENTS):
        throttle.admit(str(number), True)
    assert len(throttle._known) == CLIENTS
