import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from parts import parts, tiny
from service.browsing import CAMERA, CHROMIUM
from service.serving import image, png, serving

from nfad import Detector


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A real detector on disk, fitted in a second."""
    path = tmp_path_factory.mktemp("models") / "part.nfad"
    # Developed, it would let no faint defect pass, and some tests are of one that it does.
    return Detector.fit(parts(20), tiny(false_alarm_rate=0.2, developed=False)).save(path)


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    """A client of a service of this module's own."""
    with serving([model], tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def postgres():
    """The address of a database on a real PostgreSQL server of our own, which will not run as root."""
    places = [Path(shutil.which("initdb") or "/none").parent, *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    tools = next((place for place in places if (place / "pg_ctl").exists()), None)
    if tools is None:
        pytest.skip("there is no PostgreSQL here; install it to test with it")
    owner = {}
    if os.getuid() == 0:
        try:
            owner = {"user": pwd.getpwnam("postgres").pw_uid, "cwd": "/"}
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="nfad-pg-"))
    if owner:
        os.chown(folder, owner["user"], -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = str(folder / "cluster")

    def run(tool, *arguments):
        subprocess.run([tools / tool, *arguments], check=True, stdout=subprocess.DEVNULL, **owner)

    try:
        run("initdb", "-D", cluster, "-U", "nfad", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        listening = f"-p {port} -h 127.0.0.1 -k {folder}"
        run("pg_ctl", "-D", cluster, "-w", "-l", str(folder / "log"), "-o", listening, "start")
        try:
            yield f"postgresql://nfad@127.0.0.1:{port}/"
        finally:
            run("pg_ctl", "-D", cluster, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def database(postgres):
    """An empty database on it."""
    import psycopg

    name = f"nfad_{secrets.token_hex(4)}"
    with psycopg.connect(f"{postgres}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres + name


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """An empty database of either kind."""
    return f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("database")


@pytest.fixture(scope="module")
def chromium():
    """Starts browsers, with options."""
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("there is no Chromium or no playwright; install both to test the page in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield lambda *options: playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *options])


@pytest.fixture(scope="module")
def browser(chromium):
    """With a camera that shows a test picture."""
    with chromium(*CAMERA) as browser:
        yield browser


@pytest.fixture
def opened(browser, client):
    """Opens the page; fails the test if a script did, or if the policy had to stop something."""
    contexts, complaints = [], []

    def go(view="inspect", at=client, scripts=(), **options):
        context = browser.new_context(base_url=str(at.base_url), **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        for script in scripts:
            context.add_init_script(path=script)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.goto(f"/#/{view}")
        return page

    yield go
    for context in contexts:
        context.close()
    # A refusal on purpose is told in the console too.
    assert not [said for said in complaints if not said.startswith("Failed to load resource")]


@pytest.fixture(scope="module")
def past(client):
    """Inspections to look at, some of defects, some reviewed."""
    found = []
    for seed in range(12):
        name = f"cam{seed % 2}-{seed:03d}.png"
        found.append(client.post("/v1/inspect", files=image(png(40 + seed, defect=seed % 3 == 0), name)).json())
    for seed in (0, 3, 6, 9, 1, 2, 4, 5, 7):
        said = {"verdict": "good" if seed % 3 else "bad"}
        client.put(f"/v1/inspections/{found[seed]['id']}/review", json=said).raise_for_status()
    return found
