"""However many clients there are, whole photos are in memory a few at a time; and of each nothing stays."""

import io
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from creeping import LEAST_OF_A_RECORD, growth
from parts import part
from PIL import Image
from service.serving import image, png, serving

SIDE, CLIENTS, FEW = 4000, 12, 4
PHOTO = 3 * SIDE**2  # bytes
RESET = Path("/proc/self/clear_refs")


def large():
    buffer = io.BytesIO()
    Image.fromarray(part(1)).resize((SIDE, SIDE)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@contextmanager
def command(model, data, port):
    """The whole command, which also decides what becomes of freed memory."""
    given = [str(model), "--data", str(data), "--port", str(port), "--threads", "1", "--least-free", "0"]
    with subprocess.Popen([sys.executable, "-m", "nfad", "serve", *given]) as process:
        try:
            while True:
                assert process.poll() is None
                try:
                    httpx.get(f"http://127.0.0.1:{port}/healthz").raise_for_status()
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()


def most(pid, do, count):
    """Bytes the process had at most in memory while so many clients did this at once."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # forget the peak so far, see proc(5)
    with ThreadPoolExecutor(count) as clients:
        for answer in clients.map(lambda _: do(), range(count)):
            assert answer.status_code == 200, answer.text
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


@pytest.mark.slow
@pytest.mark.skipif(not RESET.exists(), reason="only Linux tells a process's peak of memory and forgets it")
def test_many_large_photos_take_no_more_memory_than_one(model, tmp_path, port):
    content, address = large(), f"http://127.0.0.1:{port}"

    def send():
        return httpx.post(f"{address}/v1/inspect", files=image(content, "large.jpg"), timeout=600)

    with command(model, tmp_path, port) as pid:
        photo = address + send().json()["images"]["photo"]
        one = most(pid, send, 1)  # before the many: what they free may be kept
        assert most(pid, send, CLIENTS) < one + FEW * PHOTO

        def look():
            return httpx.get(photo, timeout=600)

        one = most(pid, look, 1)
        assert most(pid, look, CLIENTS) < one + FEW * PHOTO


def test_an_inspection_leaves_no_objects_behind(model, tmp_path):
    """But for a block of the drift chart every 50 parts, of which the last 400 are kept."""
    content = [png(seed) for seed in range(8)]
    with serving([model], tmp_path) as client:

        def inspect(number):
            given = image(content[number % 8] if number % 10 else b"broken", f"{number}.png")
            assert client.post("/v1/inspect", files=given).status_code == (200 if number % 10 else 400)

        assert growth(inspect, 80, warm=40) < LEAST_OF_A_RECORD
