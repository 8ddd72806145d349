"""What a token may not do is greyed out on the page, and says why."""

import pytest
from service.browsing import file
from service.serving import image, png, serving

from nfad.service.access import make_token
from nfad.service.store import Store

RATE = "This needs a token of the role {}; anna may {}."


@pytest.fixture
def line(model, tmp_path):
    """Logs a page in with a token of a role, at a station that is locked or not."""
    stations = []

    def start(role, locked):
        store = Store(f"sqlite:///{tmp_path / 'inspections.db'}")
        secrets = {name: make_token(store.engine, name, of) for name, of in (("anna", role), ("boss", "administer"))}
        store.close()
        station = serving([model], tmp_path, locked=locked)
        client = station.__enter__()
        stations.append(station)
        client.headers["Authorization"] = f"Bearer {secrets['boss']}"
        return client, secrets["anna"]

    yield start
    for station in stations:
        station.__exit__(None, None, None)


def login(opened, client, token, view):
    page = opened(view, at=client)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.locator("#views").wait_for()
    return page


def test_a_locked_rate_can_be_seen_but_not_applied_by_an_operator(opened, line):
    client, token = line("operate", locked=True)
    client.put("/v1/models/part/rate", json={"rate": 0.9}).raise_for_status()
    for seed in range(60, 76):
        part = client.post("/v1/inspect", files=image(png(seed, defect=seed % 2 == 0))).json()
        said = {"verdict": "good" if seed % 2 else "bad"}
        client.put(f"/v1/inspections/{part['id']}/review", json=said).raise_for_status()
    page = login(opened, client, token, "threshold")
    page.locator("#rates input[value='0.2']").check()
    page.locator("#what-if h2", has_text="If it were").wait_for()  # to look is allowed
    apply, why = page.get_by_role("button", name="Apply"), RATE.format("administer", "operate")
    assert apply.is_disabled() and apply.get_attribute("title") == why
    assert page.locator("#rate-why").inner_text() == why
    page.goto(f"{client.base_url}/#/review")
    page.get_by_role("button", name="would do").click()
    page.locator("#review-body", has_text=why).wait_for()
    assert page.get_by_role("button", name="Apply").is_disabled()
    assert page.get_by_role("button", name="Leave it as it is").is_enabled()
    page.goto(f"{client.base_url}/#/history/{part['id']}")
    bad = page.locator(".choice .bad")
    bad.click()  # what an operator is for
    page.locator(".choice .bad[aria-pressed=true]").wait_for()
    page.close()


def test_an_unlocked_rate_is_an_operator_s_to_apply(opened, line):
    client, token = line("operate", locked=False)
    page = login(opened, client, token, "threshold")
    page.locator("#rates input").first.check()
    page.locator("#what-if h2", has_text="If it were").wait_for()
    assert page.get_by_role("button", name="Apply").is_enabled() and page.locator("#rate-why").inner_text() == ""
    page.close()


def test_who_may_only_view_finds_everything_else_disabled(opened, line):
    client, token = line("view", locked=False)
    part = client.post("/v1/inspect", files=image(png(3))).json()
    page = login(opened, client, token, "inspect")
    why = RATE.format("operate", "view")
    assert page.locator("#choose").is_disabled() and page.locator("#inspect .why").inner_text() == why
    page.locator("#files").evaluate("input => (input.disabled = false)")
    page.set_input_files("#files", [file()])  # as dropped or pasted
    page.locator("#alerts .note", has_text=why).wait_for()
    page.goto(f"{client.base_url}/#/line")
    page.locator("#line-buttons").wait_for()
    assert all(button.is_disabled() for button in page.locator("#line-buttons button").all())
    assert page.locator("#line .why").inner_text() == why
    page.goto(f"{client.base_url}/#/history/{part['id']}")
    page.locator(".opinion", has_text=why).wait_for()
    assert all(button.is_disabled() for button in page.locator(".choice button").all())
    page.keyboard.press("b")
    page.goto(f"{client.base_url}/#/threshold")
    page.locator("#rate-why", has_text=why).wait_for()
    assert client.get(f"/v1/inspections/{part['id']}").json()["review"] is None
    page.close()
