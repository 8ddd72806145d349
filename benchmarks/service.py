"""What the service costs beside the bare detector, measured side by side in one run from another process on loopback.

    python benchmarks/service.py MODEL IMAGES [--images 200] [--repeats 5] [--threads 1] [--write]

- throughput: images a second through POST /v1/inspect with as many clients as two batches, against the same files
  through the bare `predict_stream` (fitted; exported where MODEL is a folder) in this process; the service also draws,
  syncs to disk and commits, and the clients share the machine with it
- latency idle: one client, one image at a time
- latency under overload: three times as many clients as places in the queue; served and refused apart

Run it on an idle machine. Both sides get the same number of OpenMP threads, one unless told otherwise: with one a core,
any other load makes them wait for each other, and the bare detector's own rate then varies ninefold from run to run.
The service does all that the bare detector does and more, so a ratio above 1 is a disturbed measurement, and said so.
"""

from __future__ import annotations

import argparse
import itertools
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
from pathlib import Path

import httpx
import torch

from nfad.judge import load_judge
from nfad.machine import keep_freed_memory
from nfad.vision.pixels import find_images

RESULTS = Path(__file__).parent / "results" / "service.md"
PLACES = 16


@contextmanager
def service(model: Path, data: Path, threads: int) -> Iterator[str]:
    """The address of `nfad serve` in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "nfad", "serve", str(model), "--data", str(data), "--port", str(port)]
    command += ["--queue", str(PLACES), "--least-free", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(f"{url}/healthz", timeout=60).raise_for_status()
                break
            except httpx.TransportError:
                if process.poll() is not None:
                    raise SystemExit("the service has ended; run it by hand to see why") from None
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def hammer(url: str, contents: list[bytes], count: int, clients: int) -> tuple[float, dict[int, list[float]]]:
    """Send so many images from so many clients: seconds in all, and each answer's seconds by status."""
    turns, answers, lock = itertools.count(), {}, threading.Lock()

    def run() -> None:
        with httpx.Client(base_url=url, timeout=120) as client:
            while (turn := next(turns)) < count:
                started = time.perf_counter()
                form = {"image": (f"{turn}.png", contents[turn % len(contents)], "image/png")}
                answer = client.post("/v1/inspect", files=form)
                with lock:
                    answers.setdefault(answer.status_code, []).append(time.perf_counter() - started)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started, answers


def quantiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return " / ".join(f"{1000 * ordered[int(share * (len(ordered) - 1))]:.0f} ms" for share in (0.5, 0.95))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(given.threads)
    load = os.getloadavg()[0]
    paths = list(itertools.islice(itertools.cycle(list(find_images(given.folder))[:100]), given.images))
    contents = [path.read_bytes() for path in dict.fromkeys(paths)]
    judge = load_judge(given.model)
    batch, detector = judge.batch, judge.engine
    with tempfile.TemporaryDirectory() as data, service(given.model, Path(data), given.threads) as url:
        hammer(url, contents, 2 * batch, batch)
        list(detector.predict_stream(paths[: 2 * batch]))
        bare, served = [], []
        for _ in range(given.repeats):
            started = time.perf_counter()
            assert sum(1 for _ in detector.predict_stream(paths)) == given.images
            bare.append(given.images / (time.perf_counter() - started))
            seconds, answers = hammer(url, contents, given.images, min(2 * batch, PLACES))
            assert set(answers) == {200}, {status: len(times) for status, times in answers.items()}
            served.append(given.images / seconds)
        _, idle = hammer(url, contents, max(20, given.images // 4), 1)
        seconds, overload = hammer(url, contents, 5 * given.images, 3 * PLACES)
        assert set(overload) <= {200, 429}, set(overload)
    ratios = [a / b for a, b in zip(served, bare, strict=True)]
    rows = [
        ("bare detector", f"{statistics.median(bare):.1f} images/s at batch {batch}"),
        ("service", f"{statistics.median(served):.1f} images/s"),
        ("service / bare", f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"),
        ("idle, p50 / p95", quantiles(idle[200])),
        ("overload, served p50 / p95", quantiles(overload[200])),
        ("overload, refused p50 / p95", quantiles(overload.get(429, [float("nan")]))),
        ("overload, served", f"{len(overload[200]) / seconds:.1f} images/s, {len(overload.get(429, []))} refused"),
    ]
    rows.append(("threads, cores, load before", f"{given.threads}, {os.cpu_count()}, {load:.1f}"))
    if max(ratios) > 1:
        rows.append(("disturbed", "a ratio above 1 cannot be: run it again on an idle machine"))
    lines = ["| what | measured |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    print("\n".join(lines))
    if given.write:
        head = f"# The service beside the bare detector\n\n`{' '.join(['python', *sys.argv])}`\n\n"
        RESULTS.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
