"""Acknowledged is kept: the service is killed at random moments while clients upload, and started again."""

import random
import threading
import time

import httpx
import pytest
from service.serving import Process, image, png


class Clients:
    """Threads that upload without end and remember what was acknowledged."""

    def __init__(self, url, count=4, batch=False):
        self.kept, self.errors = [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url, index, batch)) for index in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, url, index, batch):
        chance = random.Random(index)
        with httpx.Client(base_url=url, timeout=30) as client:
            while not self._stop.is_set():
                content = png(chance.randrange(10**6))
                try:
                    if batch:
                        files = [("image", (f"{i}.png", content, "image/png")) for i in range(3)]
                        answer = client.post("/v1/batch", files=files)
                    else:
                        answer = client.post("/v1/inspect", files=image(content))
                except httpx.TransportError:
                    continue  # killed: what was not answered may or may not be there
                if answer.status_code != 200:
                    self.errors.append(answer.status_code)
                    continue
                found = [each["inspection"] for each in answer.json()["results"]] if batch else [answer.json()]
                self.kept += [(each, content) for each in found]


def check(url, data, kept):
    """Every acknowledged inspection is as it was, with its pictures; and there are no pictures without a row."""
    with httpx.Client(base_url=url, timeout=30) as client:
        for answer, content in kept:
            lasting = {name: value for name, value in answer.items() if name != "camera"}  # which is of that moment
            assert client.get(f"/v1/inspections/{answer['id']}").json() == lasting
            assert client.get(answer["images"]["original"]).content == content
            for name in ("photo", "thumbnail", "unfiltered_map"):
                assert client.get(answer["images"][name]).status_code == 200
        known, before = set(), None
        while True:
            page = client.get("/v1/inspections", params={"limit": 200} | ({"before": before} if before else {})).json()
            known |= {each["id"] for each in page["inspections"]}
            before = page["next"]
            if before is None:
                break
    assert {answer["id"] for answer, _ in kept} <= known
    assert {folder.name for folder in (data / "pictures").glob("*/*")} == known


def killed_again_and_again(model, data, port, kills, db=None):
    kept, last = [], []
    for kill in range(kills + 1):
        process = Process(model, data, port, db).wait()
        try:
            check(process.url, data, kept if kill == kills else last)
            if kill == kills:
                assert process.end() == 0
                return len(kept)
            clients = Clients(process.url, batch=kill % 2 == 1)
            while not clients.kept:
                time.sleep(0.01)
            time.sleep(random.Random(kill).uniform(0, 1))
            process.kill()
            clients.stop()
            last = clients.kept
            kept += last
        finally:
            if process.process.is_alive():
                process.kill()
    return len(kept)


def test_sqlite_loses_nothing(model, tmp_path, port):
    assert killed_again_and_again(model, tmp_path / "data", port, 2) > 2


def test_postgresql_loses_nothing(model, tmp_path, port, database):
    assert killed_again_and_again(model, tmp_path / "data", port, 1, database) > 1


@pytest.mark.slow
def test_sqlite_loses_nothing_in_many_kills(model, tmp_path, port):
    assert killed_again_and_again(model, tmp_path / "data", port, 25) > 25


@pytest.mark.slow
def test_postgresql_loses_nothing_in_many_kills(model, tmp_path, port, database):
    assert killed_again_and_again(model, tmp_path / "data", port, 25, database) > 25


def test_sigterm_answers_all_that_waits_and_ends_well(model, tmp_path, port):
    process = Process(model, tmp_path, port).wait()
    clients = Clients(process.url)
    while len(clients.kept) < 3:
        time.sleep(0.01)
    assert process.end() == 0
    clients.stop()
    assert set(clients.errors) <= {503}
    again = Process(model, tmp_path, port).wait()
    try:
        check(again.url, tmp_path, clients.kept)
        assert httpx.post(f"{again.url}/v1/inspect", files=image(), timeout=30).status_code == 200
    finally:
        again.end()
