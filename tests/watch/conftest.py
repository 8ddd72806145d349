"""A real small detector, a folder to write parts into, and a real receiver that can be down, slow or cross."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from parts import part, parts, tiny
from PIL import Image
from watch.running import QUICK, made_record

from nfad import Detector
from nfad.watch.watch import Watch


@pytest.fixture(scope="session")
def detector():
    return Detector.fit(parts(16), tiny(false_alarm_rate=0.2))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "camera"
    made.mkdir()
    return made


@pytest.fixture
def watch(detector, folder, tmp_path):
    """Runs a watch once and gives what it said: records, warnings and the tally."""

    def run(model=None, stop=lambda: False, once=True, **options):
        records, warnings = [], []
        watching = Watch(
            model or detector, "part", folder, tmp_path / "results", pace=options.pop("pace", QUICK),
            on_record=records.append, warn=warnings.append, **options,
        )  # fmt: skip
        watching.run(stop, once=once)
        return records, warnings, watching.tally

    return run


@pytest.fixture
def lines(tmp_path):
    def read():
        return [json.loads(line) for line in (tmp_path / "results/results.jsonl").read_text().splitlines()]

    return read


@pytest.fixture
def png():
    def encoded(seed, defect=False):
        buffer = io.BytesIO()
        Image.fromarray(part(seed, defect=defect)).save(buffer, "PNG")
        return buffer.getvalue()

    return encoded


@pytest.fixture(scope="session")
def record():
    return made_record


class Receiver:
    """A web server that answers with `status` and keeps what it has accepted."""

    def __init__(self):
        self.status, self.accepted, self.ids, self.headers, self.location = 200, [], [], [], None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    receiver.accepted.append(json.loads(body))
                    receiver.ids.append(self.headers["Idempotency-Key"])
                    receiver.headers.append(dict(self.headers))
                self.send_response(receiver.status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()
