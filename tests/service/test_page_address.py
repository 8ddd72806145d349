"""What the address says: which inspections are listed and which one is open, to be kept, sent and gone back to."""

import pytest
from service.serving import image, png, serving


@pytest.fixture
def shared(opened, client, past):
    """Opens an address as a colleague would who has never been here."""

    def go(address, **options):
        page = opened(address, **options)
        page.locator("#history-count", has_text="nspection").wait_for()
        return page

    return go


def matching(client, **filters):
    """The ids the service has for these filters, as many as the page lists at once."""
    return [each["id"] for each in client.get("/v1/inspections", params=filters | {"limit": 48}).json()["inspections"]]


def lists(page, wanted):
    """Wait until the page lists these."""
    page.wait_for_function(
        "wanted => [...document.querySelectorAll('#grid > li')].map(each => each.dataset.id).join() === wanted",
        arg=",".join(wanted),
    )


def behind(page):
    """What the address has behind its #."""
    return page.evaluate("location.hash")


def says(page, text):
    """Wait until the address does."""
    page.wait_for_function("text => location.hash.includes(text)", arg=text)


def field(page, name):
    return page.locator(f"#filters [name={name}]")


def test_every_filter_is_in_the_address_and_back_again(shared, client, past):
    client.post("/v1/inspect", files=image(png(3), "100% & more?.png")).raise_for_status()
    page = shared("history")
    asked = {}
    for name, value in {"verdict": "normal", "review": "none", "model": "part"}.items():
        field(page, name).select_option(value)
        asked[name] = value
        lists(page, matching(client, **asked))
    field(page, "changed").check()
    field(page, "since").fill("2020-02-03")
    field(page, "until").fill("2999-01-01")
    says(page, "until=2999-01-01")
    lists(page, matching(client, changed="true", **asked))
    field(page, "changed").uncheck()
    field(page, "search").fill("% & more?")
    lists(page, matching(client, search="% & more?", **asked))
    says(page, "search=")
    address, others = behind(page), shared(behind(page)[2:])
    page.reload()
    for each in (page, others):
        lists(each, matching(client, search="% & more?", **asked))
        assert behind(each) == address
        values = {name: field(each, name).input_value() for name in (*asked, "since", "until", "search")}
        assert values == asked | {"since": "2020-02-03", "until": "2999-01-01", "search": "% & more?"}
        assert not field(each, "changed").is_checked()
    page.get_by_role("button", name="Clear").click()
    lists(page, matching(client))
    assert behind(page) == "#/history" and all(field(page, name).input_value() == "" for name in asked)


def test_back_and_forward_go_from_choice_to_choice_and_not_from_letter_to_letter(shared, client, past):
    page = shared("history")
    entries = page.evaluate("history.length")
    field(page, "verdict").select_option("anomalous")
    lists(page, matching(client, verdict="anomalous"))
    field(page, "search").focus()
    for letter in "cam1":
        with page.expect_response("**/v1/inspections?*"):  # each is a search of its own
            page.keyboard.type(letter)
    lists(page, both := matching(client, verdict="anomalous", search="cam1"))
    assert both and both != matching(client, verdict="anomalous")
    assert page.evaluate("history.length") == entries + 2
    page.go_back()
    lists(page, matching(client, verdict="anomalous"))
    assert field(page, "search").input_value() == "" and field(page, "verdict").input_value() == "anomalous"
    page.go_back()
    lists(page, matching(client))
    page.go_forward()
    page.go_forward()
    lists(page, both)
    assert field(page, "search").input_value() == "cam1" and page.evaluate("history.length") == entries + 2


def test_an_open_inspection_keeps_the_list_it_is_of(shared, client, past):
    few = matching(client, verdict="anomalous", search="cam0")
    page = shared("history?verdict=anomalous&search=cam0")
    lists(page, few)
    page.locator("#grid a").first.click()
    page.locator("#history-detail h1:focus").wait_for()
    assert behind(page) == f"#/history/{few[0]}?search=cam0&verdict=anomalous"
    page.reload()
    page.locator("#history-detail h1:focus").wait_for()
    lists(page, few)
    page.keyboard.press("ArrowRight")
    says(page, few[1])
    name = client.get(f"/v1/inspections/{few[1]}").json()["image"]
    page.locator("#history-detail h1", has_text=name).wait_for()
    page.get_by_role("link", name="← Inspections found").click()
    page.locator(f"#grid [data-id='{few[1]}'] a:focus").wait_for()
    assert behind(page) == "#/history?search=cam0&verdict=anomalous"
    page.go_back()
    page.keyboard.press("/")
    page.locator("#search:focus").wait_for()
    assert field(page, "search").input_value() == "cam0" and behind(page).startswith("#/history?")
    page.get_by_role("link", name="History", exact=True).click()
    lists(page, matching(client))


@pytest.mark.parametrize(
    "address",
    [
        "history?verdict=perhaps&review=&model=nobody&since=yesterday&until=2026-02-31&changed=1&length=3&item=x",
        "history?since=0001-01-01&until=9999-12-31&constructor&__proto__=1",
        f"history?search={'x' * 256}&verdict",
        "history?%E0%A4%A=%&&==&verdict=normal%00",
    ],
)
def test_what_no_filter_understands_is_ignored(shared, client, past, address):
    page = shared(address)
    lists(page, matching(client))
    assert all(field(page, name).input_value() == "" for name in ("verdict", "review", "model", "since", "search"))
    assert not field(page, "changed").is_checked() and page.locator("#alerts .note").count() == 0


@pytest.mark.parametrize("address", ["constructor", "__proto__/x", "nothing?verdict=normal", "?verdict=normal"])
def test_an_address_of_no_view_leads_to_the_first_one(opened, address):
    page = opened(address)
    page.locator("#inspect-title").wait_for()
    page.locator("#alarm span").wait_for()
    assert page.locator("#alerts .note").count() == 0


def test_what_was_typed_last_does_not_follow_into_another_view(shared, past):
    page = shared("history")
    field(page, "search").press_sequentially("ca")
    page.evaluate("location.hash = '#/review'")
    page.locator("#review-body .counts").wait_for()
    page.wait_for_timeout(500)  # twice as long as a pause in typing
    assert behind(page) == "#/review"


def test_a_phone_shows_the_filters_that_came_with_the_address(shared, past):
    phone = {"viewport": {"width": 390, "height": 700}}
    assert shared("history?search=cam", **phone).locator("#filter-more:not([open])").count() == 1
    assert field(shared("history?verdict=normal", **phone), "verdict").is_visible()


def test_a_sent_address_waits_for_the_token(opened, model, tmp_path):
    with serving([model], tmp_path, token="correct-horse-battery") as guarded:
        page = opened("history?verdict=normal", at=guarded)
        page.get_by_label("Token").fill("correct-horse-battery")
        page.keyboard.press("Enter")
        page.locator("#history-count", has_text="No inspection matches").wait_for()
        assert field(page, "verdict").input_value() == "normal"
        page.close()
