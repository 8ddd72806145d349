"""What the service costs beside the bare detector, measured side by side in one run from another process on loopback.

    python benchmarks/service.py IMAGES MODEL [MODEL ...] [--images 200] [--rounds 5] [--threads 1] [--side N] [--write]

- bare: the files through `predict_stream` of the same model (fitted; exported where MODEL is a folder) in this process,
  which reads ahead as the service does
- bare beside a load: the same while another process keeps one more core busy, which alone slows it on most machines
- service: the same bytes through POST /v1/inspect of `nfad serve`, from as many clients as three batches; it also
  checks, draws, syncs to disk and commits, and the clients share the machine with it. Bare and service take turns, and
  a round gives one ratio
- idle: one client, one image at a time
- overload: three times as many clients as places in the queue, back 0.1 s after a refusal; served and refused apart

Both judge with the same number of threads. With one a core there is no core left for what the service does beside
judging, nor for the clients: the ratio is then what all of that costs. Run it on an idle machine: the service does all
that the bare detector does and more, so a ratio above 1 is a disturbed round. `--side` enlarges the images first, to as
many pixels a side and JPEG of quality 90, so that decoding weighs in as it does with a camera's photos.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from PIL import Image

from nfad.model import Model, load_model
from nfad.system.platform import keep_freed_memory
from nfad.vision.pixels import find_images, photo_of

RESULTS = Path(__file__).parent / "results" / "service.md"
PLACES = 32  # in the queue, as by default
BACK_AFTER = 0.1  # seconds; a client that minds Retry-After would wait for one
HEADERS = {"Content-Type": "multipart/form-data; boundary=part"}
Answers = dict[int, list[float]]  # seconds by status


@contextmanager
def service(model: Path, data: Path, threads: int) -> Iterator[int]:
    """The port of `nfad serve` in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "nfad", "serve", str(model), "--data", str(data), "--port", str(port)]
    command += ["--queue", str(PLACES), "--least-free", "0", "--threads", str(threads)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                ask(HTTPConnection("127.0.0.1", port), "GET", "/healthz")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the service has ended; run it by hand to see why") from None
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def ask(connection: HTTPConnection, method: str, address: str, body: bytes | None = None) -> int:
    connection.request(method, address, body, HEADERS if body else {})
    answer = connection.getresponse()
    json.loads(answer.read())
    return answer.status


def form(content: bytes) -> bytes:
    head = b'--part\r\nContent-Disposition: form-data; name="image"; filename="part"\r\n\r\n'
    return head + content + b"\r\n--part--\r\n"


def hammer(port: int, forms: list[bytes], count: int, clients: int, back_after: float = 0) -> tuple[float, Answers]:
    """Send so many images from so many clients: seconds in all, and each answer's seconds by status."""
    turns, answers, lock = itertools.count(), {}, threading.Lock()

    def run() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        while (turn := next(turns)) < count:
            started = time.perf_counter()
            status = ask(connection, "POST", "/v1/inspect", forms[turn % len(forms)])
            with lock:
                answers.setdefault(status, []).append(time.perf_counter() - started)
            if status != 200:
                time.sleep(back_after)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started, answers


@contextmanager
def busy() -> Iterator[None]:
    """One core of the machine at work on something else."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import zlib\nwhile True: zlib.compress(bytes(range(256)) * 4096)"]
    )
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.wait()


def quantiles(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    return " / ".join(f"{1000 * ordered[round(share * (len(ordered) - 1))]:.0f} ms" for share in (0.5, 0.95))


def rate(model: Model, paths: list[Path]) -> float:
    started = time.perf_counter()
    assert sum(1 for _ in model.predict_stream(paths, prefetch=True)) == len(paths)
    return len(paths) / (time.perf_counter() - started)


def ratio(these: list[float], those: list[float]) -> str:
    found = [a / b for a, b in zip(these, those, strict=True)]
    return f"{statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"


def enlarged(paths: list[Path], side: int, folder: Path) -> list[Path]:
    """The same images at side × side pixels."""
    found = []
    for number, path in enumerate(paths):
        found.append(folder / f"{number:03d}.jpg")
        Image.fromarray(photo_of(path)).resize((side, side), Image.Resampling.BICUBIC).save(found[-1], quality=90)
    return found


def measure(model: Path, photos: list[Path], images: int, rounds: int, threads: int) -> dict[str, str]:
    """One model's column."""
    paths = list(itertools.islice(itertools.cycle(photos), images))
    forms = [form(path.read_bytes()) for path in dict.fromkeys(paths)]
    loaded = load_model(model, threads=threads)
    clients = min(3 * loaded.config.batch, PLACES)
    with tempfile.TemporaryDirectory() as data, service(model, Path(data), threads) as port:
        hammer(port, forms, 2 * clients, clients)
        list(loaded.predict_stream(paths[: 2 * loaded.config.batch], prefetch=True))
        bare, beside, served = [], [], []
        for _ in range(rounds):
            bare.append(rate(loaded, paths))
            with busy():
                beside.append(rate(loaded, paths))
            seconds, answers = hammer(port, forms, images, clients)
            assert set(answers) == {200}, {status: len(times) for status, times in answers.items()}
            served.append(images / seconds)
        _, idle = hammer(port, forms, max(20, images // 4), 1)
        seconds, overload = hammer(port, forms, 5 * images, 3 * PLACES, BACK_AFTER)
        assert set(overload) <= {200, 429}, set(overload)
    return {
        "bare": f"{statistics.median(bare):.1f} images/s",
        "service": f"{statistics.median(served):.1f} images/s",
        "service / bare": f"**{ratio(served, bare)}**",
        "bare beside a load / bare": ratio(beside, bare),
        "idle, p50 / p95": quantiles(idle[200]),
        "overload, served": f"{len(overload[200]) / seconds:.1f} images/s, {quantiles(overload[200])}",
        "overload, refused": f"{len(overload.get(429, []))}, {quantiles(overload.get(429, []))}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--side", type=int, help="enlarge the images to so many pixels a side (JPEG, quality 90)")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    given = parser.parse_args()
    keep_freed_memory()
    load = os.getloadavg()[0]
    columns = {}
    with tempfile.TemporaryDirectory() as folder:
        photos = list(find_images(given.folder))[: min(100, given.images)]
        if given.side:
            photos = enlarged(photos, given.side, Path(folder))
        for model in given.models:
            print(f"{model.name} …", file=sys.stderr)
            columns[model.name] = measure(model, photos, given.images, given.rounds, given.threads)
    names = next(iter(columns.values()))
    lines = [f"| {given.threads} thread(s), {os.cpu_count()} cores | {' | '.join(columns)} |"]
    lines += ["| --- |" + " --- |" * len(columns)]
    lines += [f"| {name} | {' | '.join(column[name] for column in columns.values())} |" for name in names]
    told = (
        f"{given.rounds} rounds of {given.images} images; median (least–most). Load of the machine before: {load:.1f}."
    )
    text = "\n".join([*lines, "", told, ""])
    print(text)
    if given.write:
        command = f"python benchmarks/service.py IMAGES MODEL … --images {given.images}"
        command += f" --rounds {given.rounds} --threads {given.threads}"
        command += f" --side {given.side}" if given.side else ""
        before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# The service beside the bare detector\n"
        RESULTS.write_text(f"{before}\n`{command} --write`\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
