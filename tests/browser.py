"""A page as a browser shows it, and what axe-core, the usual checker of accessibility, has against it."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def objections(file):
    """By width and rule, in light and dark; the page must also fit each width. Skips where there is no browser."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; install it to look at the page")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright drives the browser")
    if find_spec("axe_playwright_python") is None:
        pytest.skip("there is no axe-core; pip install axe-playwright-python brings it")
    from playwright.sync_api import sync_playwright

    [folder] = find_spec("axe_playwright_python").submodule_search_locations
    told = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for width, scheme in ((1280, "light"), (390, "light"), (820, "dark")):
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            blocked = []
            tab.on("console", lambda message: blocked.append(message.text))  # noqa: B023
            tab.add_init_script(path=Path(folder) / "axe.min.js")
            tab.goto(file.as_uri())
            assert blocked == []  # by the page's own policy, which also lets its script run:
            assert tab.evaluate("document.documentElement.classList.contains('live')")
            tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}  # nothing else differs
            options = {"resultTypes": ["violations"]} | rules
            found = tab.evaluate("options => axe.run(document, options)", options)["violations"]
            told |= {(width, each["id"]): [node["html"] for node in each["nodes"]] for each in found}
            assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing is cut off
        browser.close()
    return told
