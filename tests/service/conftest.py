import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from parts import parts, tiny
from service.serving import serving

from nfad import Detector


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A real detector on disk, fitted in a second."""
    path = tmp_path_factory.mktemp("models") / "part.nfad"
    return Detector.fit(parts(20), tiny(false_alarm_rate=0.2)).save(path)


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
