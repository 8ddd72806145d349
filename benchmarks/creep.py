"""What a hundred thousand inspections leave in memory: a small exported model, small photos, at full speed.

    python benchmarks/creep.py serve [--count 200000] [--minutes 60] [--tree SOURCES] [--label TEXT] [--write]
    python benchmarks/creep.py watch [--count 20000] …

`nfad serve` (pictures of 300 kept) or `nfad watch` (with a sink that moves each file away) in a process of its own, of
the sources given (another working tree, to compare an earlier version: run both at once). `--fitted` judges with the
fitted model in place of its export. Its memory is sampled every second, and of each minute the least counts: that is
after free memory was given back, which happens once a minute. Told are the growth an inspection over all of it and over
its second half, with a 95 % interval (t) of ten means each, and what was in memory at the start and at the end.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from line import KEPT, PACE, SMALL, Feed, drop, free_port
from PIL import Image
from scipy import stats

from nfad import Config, Detector
from nfad.deploy.export import export
from nfad.vision.render import render
from nfad.watch.ledger import Ledger

RESULTS = Path(__file__).parent / "results" / "creep.md"
HEADERS = {"Content-Type": "multipart/form-data; boundary=part"}
FORMS, CLIENTS, AHEAD = 400, 3, 64  # requests made beforehand, threads that send them, files dropped ahead of the watch
Sample = tuple[float, int, float]  # seconds, inspections, MB


def command(tree: Path, log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """`nfad …` of those sources."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    with log.open("wb") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "nfad", *map(str, arguments)], env=environment, cwd=tree, stdout=told, stderr=told
        )


def resident(pid: int) -> float:
    """Megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def mappings(pid: int) -> dict[str, float]:
    """Megabytes in memory by what they are."""
    found, kind = defaultdict[str, float](float), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)", line):
            name = match.group(1)
            kind = "files" if name.startswith("/") else "heap" if name == "[heap]" else "other anonymous"
        elif line.startswith("Rss:"):
            found[kind] += int(line.split()[1]) / 1000
    return dict(found)


def forms(feed: Feed) -> list[bytes]:
    chance = random.Random(0)
    return [
        b'--part\r\nContent-Disposition: form-data; name="image"; filename="%d.png"\r\n\r\n' % number
        + feed.next(chance)
        + b"\r\n--part--\r\n"
        for number in range(FORMS)
    ]


class Served:
    """A service, and clients that send until told to stop."""

    def __init__(self, tree: Path, model: Path, folder: Path, feed: Feed) -> None:
        port, self._stop, self._count = free_port(), threading.Event(), itertools.count()
        options = ["--data", folder / "data", "--port", port, "--keep", KEPT, "--least-free", 0, "--threads", 1]
        self.process = command(tree, folder / "log", "serve", model, *options)
        while True:
            try:
                self._ask(HTTPConnection("127.0.0.1", port), "GET", "/healthz")
                break
            except OSError:
                assert self.process.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        self.done, sent = 0, forms(feed)
        self._threads = [threading.Thread(target=self._send, args=(port, sent), daemon=True) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, connection: HTTPConnection, method: str, address: str, body: bytes | None = None) -> int:
        connection.request(method, address, body, HEADERS if body else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def _send(self, port: int, sent: list[bytes]) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        while not self._stop.is_set():
            number = next(self._count)
            assert self._ask(connection, "POST", "/v1/inspect", sent[number % FORMS]) in (200, 400)
            self.done = number
        connection.close()

    def step(self) -> None:
        pass

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Watched:
    """A watch, and files that are dropped ahead of it; none stays in the folder."""

    def __init__(self, tree: Path, model: Path, folder: Path, feed: Feed) -> None:
        self._camera, self._results, chance = folder / "camera", folder / "results", random.Random(0)
        self._camera.mkdir()
        self._files = [content for content in (feed.next(chance) for _ in range(FORMS)) if len(content) > 400]
        sinks = ["--sink", f"move:{folder / 'sorted'}"]
        self.process = command(tree, folder / "log", "watch", model, self._camera, "--to", self._results, *sinks, *PACE)
        self._dropped, self.done, self._sorted = 0, 0, folder / "sorted"
        while not (self._results / "ledger.sqlite").exists():
            assert self.process.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        time.sleep(1)
        self._ledger = Ledger(self._results / "ledger.sqlite", durable=False)

    def step(self) -> None:
        self.done = self._ledger.last()
        while self._dropped < self.done + AHEAD and len(os.listdir(self._camera)) < 2 * AHEAD:
            content = self._files[self._dropped % len(self._files)]
            drop(self._camera, f"{self._dropped}.png", content)
            self._dropped += 1
        for file in self._sorted.glob("*/*"):  # they are taken away, as someone does, once they are whole
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > 10:
                    file.unlink()

    def stop(self) -> None:
        self._ledger.close()


def minutes_of(samples: list[Sample]) -> np.ndarray:
    """Of each minute the sample (inspections, MB) with the least memory."""
    by_minute = itertools.groupby(samples, lambda sample: sample[0] // 60)
    return np.array([min((sample[1:] for sample in some), key=lambda each: each[1]) for _, some in by_minute])


def growth(rows: np.ndarray) -> str:
    """Bytes an inspection, by up to ten means."""
    blocks = [block.mean(axis=0) for block in np.array_split(rows, min(10, len(rows)))]
    counts, megabytes = np.array(blocks).T
    found = stats.linregress(counts, 1e6 * megabytes)
    wide = stats.t.ppf(0.975, len(counts) - 2) * found.stderr
    return f"{found.slope:+.1f} bytes ({found.slope - wide:+.1f} to {found.slope + wide:+.1f})"


def run(kind: str, tree: Path, model: Path, feed: Feed, count: int, minutes: float) -> list[str]:
    line: Callable[[Path, Path, Path, Feed], Served | Watched] = {"serve": Served, "watch": Watched}[kind]
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None  # what is measured is not the disk
    with tempfile.TemporaryDirectory(dir=place) as folder:
        driven = line(tree, model, Path(folder), feed)
        pid, samples, begin = driven.process.pid, list[Sample](), time.monotonic()
        parts = {0: mappings(pid)}
        while driven.done < count and (now := time.monotonic() - begin) < 60 * minutes:
            driven.step()
            samples.append((now, driven.done, resident(pid)))
            if len(samples) % 600 == 0:
                print(f"{driven.done} inspections, {samples[-1][2]:.1f} MB", file=sys.stderr, flush=True)
            time.sleep(1 if kind == "serve" else 0.05)
        driven.stop()
        time.sleep(65)  # until free memory was given back once more
        parts[driven.done], last = mappings(pid), resident(pid)
        driven.process.terminate()
        assert driven.process.wait(120) == 0, (Path(folder) / "log").read_text()
    rows = minutes_of(samples)
    assert len(rows) > 4, "too short to tell"
    rows = rows[1:]  # in the first, what is made once is made
    half = rows[len(rows) // 2 :]
    return [
        f"- {driven.done:,} inspections in {samples[-1][0] / 60:.0f} minutes",
        f"- memory in the second minute {rows[0][1]:.1f} MB, half-way {half[0][1]:.1f}, in the last {rows[-1][1]:.1f}, "
        f"idle afterwards {last:.1f}",
        f"- growth an inspection: {growth(rows)}; in the second half: {growth(half)}",
        *(
            f"- after {number:,}: " + ", ".join(f"{kind} {size:.1f} MB" for kind, size in sorted(by_kind.items()))
            for number, by_kind in parts.items()
        ),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=("serve", "watch"))
    options.add_argument("--count", type=int, default=200_000)
    options.add_argument("--minutes", type=float, default=60, help="at the most")
    options.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    options.add_argument("--fitted", action="store_true")
    options.add_argument("--label", default="now")
    options.add_argument("--write", action="store_true", help=f"add it to {RESULTS.name}")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = [Path(folder) / f"{seed}.png" for seed in range(30)]
        for seed, photo in enumerate(photos):
            Image.fromarray(render(seed)[0]).save(photo)
        model = Detector.fit(photos[:20], Config.from_dict(SMALL)).save(Path(folder) / "small.nfad")
        if not given.fitted:
            export(model, Path(folder) / "small", normals=photos)
        told = run(
            given.kind, given.tree.resolve(), model if given.fitted else model.with_suffix(""), Feed(photos),
            given.count, given.minutes,
        )  # fmt: skip
    title = f"## `nfad {given.kind}`, {'fitted' if given.fitted else 'exported'}: {given.label}"
    text = "\n".join([title, "", *told, ""])
    print(text)
    if given.write:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
