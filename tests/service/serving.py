"""A real service for tests: uvicorn on a free port, in this process or (to be killed) in one of its own."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager
from io import BytesIO

import httpx
import uvicorn
from parts import part
from PIL import Image

from nfad.cli.serve import serve
from nfad.model import load_model
from nfad.service.app import create_app
from nfad.service.service import open_service
from nfad.service.settings import Settings


def png(seed=1, size=64, defect=False, kind="PNG") -> bytes:
    buffer = BytesIO()
    Image.fromarray(part(seed, size, defect)).save(buffer, kind)
    return buffer.getvalue()


def image(content=None, name="part.png"):
    """The form of a request with one image."""
    return {"image": (name, png() if content is None else content, "image/png")}


@contextmanager
def serving(models, data, load=load_model, **settings):
    """A client of a service in this process; `client.service` is the service itself."""
    service = open_service(Settings(data=data, least_free=0, **settings), models, load)
    config = uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="critical", http="h11")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    [[socket]] = [each.sockets for each in server.servers]
    with httpx.Client(base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=30) as client:
        client.service = service
        try:
            yield client
        finally:
            client.close()
            server.should_exit = True
            thread.join()


def _serve(model, data, port, db, log):
    if log:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    serve([model], data=data, port=port, db=db, queue=32, least_free=0)


class Process:
    """`nfad serve` in a process of its own, forked from one that has imported all that takes long."""

    def __init__(self, model, data, port, db=None, log=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["nfad.detector", "nfad.service.app", "psycopg", "uvicorn", "scipy.stats"])
        self.process = context.Process(target=_serve, args=(model, data, port, db, log))
        self.process.start()
        self.url = f"http://127.0.0.1:{port}"

    def wait(self):
        """Until it answers."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/healthz").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
            assert self.process.is_alive(), self.process.exitcode
        raise AssertionError("the service did not start within two minutes")

    def end(self, number=signal.SIGTERM):
        os.kill(self.process.pid, number)
        self.process.join(60)
        return self.process.exitcode

    def kill(self):
        return self.end(signal.SIGKILL)
