"""A station and a watch at full speed, and killed at random: nothing acknowledged is lost or twice, nothing creeps.

    python benchmarks/soak.py [IMAGES] [--minutes 3] [--kills 20] [--db postgresql://…] [--write]

- soak: `nfad serve` and `nfad watch`, each in a process of its own, on a small untrained model (what is measured is not
  the model): three clients upload photos, defects, black photos, cut-off and empty files as fast as they are answered,
  a camera drops the same into the watched folder. In the middle the database is locked for 5 s, and the watch's
  receiver is dead for a third of the time. Memory and open files are sampled every second; their slope is that of ten
  means over the last four fifths of the time, with its 95 % interval (t, 8 degrees of freedom)
- kills: SIGKILL at a random moment of uploading, and a new start, on SQLite, on PostgreSQL if --db names an empty
  database, and of `nfad watch`

Every acknowledged inspection must be there exactly once with its pictures, and every file judged exactly once, or it
fails. `make soak MINUTES=60` is an hour. Latencies are of the machine as it was: see the load that is told.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import signal
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import sqlalchemy as sa
from PIL import Image
from scipy import stats

from nfad import Config, Detector
from nfad.service.database import open_engine
from nfad.service.tables import INSPECTIONS
from nfad.system.files import replacing
from nfad.vision.pixels import find_images
from nfad.vision.render import render
from nfad.watch.ledger import Ledger

RESULTS = Path(__file__).parent / "results" / "soak.md"
SMALL = {
    "teacher": "vit_tiny_patch16_224", "weights": "untrained", "size": 64, "blocks": (1, 3), "prior_blocks": (4, 5),
    "pairs": 2, "batch": 4, "rank": {"photometric": 8, "background": 4, "sensor": 4}, "acquisitions": 14,
    "false_alarm_rate": 0.2,
}  # fmt: skip
KEPT = 300  # inspections whose pictures stay
PACE = ["--poll", "0.05", "--settle", "0.1", "--patience", "1"]


def run(arguments: list[str]) -> None:
    """`nfad` in this process."""
    import sys

    from nfad.cli.main import main

    sys.argv = ["nfad", *arguments]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    main()


class Command:
    """`nfad …` in a process of its own, forked from one that has imported all that takes long."""

    def __init__(self, *arguments: object) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["nfad.detector", "nfad.service.app", "uvicorn", "scipy.stats", "nfad.watch.watch"]
        )
        self.process = context.Process(target=run, args=([str(each) for each in arguments],))
        self.process.start()

    def end(self, number: int = signal.SIGTERM) -> int | None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        self.process.join(120)
        return self.process.exitcode

    def usage(self) -> tuple[float, int]:
        """Megabytes and open files."""
        place = Path("/proc") / str(self.process.pid)
        return int((place / "statm").read_text().split()[1]) * 4096 / 1e6, len(os.listdir(place / "fd"))


def serve(model: Path, data: Path, db: str | None = None, *, keep: bool = False) -> tuple[Command, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--data", data, "--port", port, "--least-free", 0, "--threads", 1]
    command = Command("serve", model, *options, *(["--db", db] if db else []), *(["--keep", KEPT] if keep else []))
    address = f"http://127.0.0.1:{port}"
    while True:
        try:
            if httpx.get(f"{address}/healthz", timeout=30).status_code == 200:
                return command, address
        except httpx.TransportError:
            assert command.process.is_alive(), "the service did not start"
            time.sleep(0.05)


class Feed:
    """What a line sends: mostly photos, some with a defect, some black, some that are no image."""

    def __init__(self, photos: list[Path]) -> None:
        self._photos = [np.asarray(Image.open(path).convert("RGB").resize((128, 128))) for path in photos[:50]]

    def next(self, chance: random.Random) -> bytes:
        kind, photo = chance.random(), chance.choice(self._photos).copy()
        if kind < 0.03:
            return b""
        if kind < 0.1:
            photo[:] = 0
        elif kind < 0.3:
            photo[40:60, 40:60] = chance.randrange(256)
        photo[0, 0] = [chance.randrange(256) for _ in range(3)]  # no two are the same
        buffer = io.BytesIO()
        Image.fromarray(photo).save(buffer, "PNG")
        return buffer.getvalue()[: 400 if 0.3 < kind < 0.35 else None]


class Clients:
    """Threads that upload without end under names of their own, and remember what was acknowledged."""

    def __init__(self, address: str, feed: Feed, seed: int, count: int = 3) -> None:
        self.kept: list[tuple[str, str]] = []  # id and name
        self.seconds: list[tuple[float, float]] = []  # when, and how long
        self.statuses: Counter[int] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(address, feed, f"{seed}-{i}")) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, address: str, feed: Feed, mark: str) -> None:
        chance, number = random.Random(mark), 0
        with httpx.Client(base_url=address, timeout=60) as client:
            while not self._stop.is_set():
                name, number, since = f"{mark}-{number}.png", number + 1, time.monotonic()
                try:
                    answer = client.post("/v1/inspect", files={"image": (name, feed.next(chance))})
                except (httpx.TransportError, HTTPException):
                    self.statuses[0] += 1
                    time.sleep(0.01)
                    continue
                self.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    self.kept.append((answer.json()["id"], name))
                    self.seconds.append((since, time.monotonic() - since))


def check_kept(url: str, data: Path, kept: list[tuple[str, str]]) -> int:
    """Fails unless each is there once, under its id, and pictures are those of the rows; how many rows there are."""
    engine = open_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(INSPECTIONS.c.id, INSPECTIONS.c.image, INSPECTIONS.c.pictures)).all()
    engine.dispose()
    names = Counter(name for _, name, _ in rows)
    ids = {id: name for id, name, _ in rows}
    assert all(ids.get(id) == name and names[name] == 1 for id, name in kept), "an acknowledged inspection is missing"
    assert len(kept) == len({id for id, _ in kept})
    there = {folder.name for folder in (data / "pictures").glob("*/*")}
    assert {id for id, _, pictures in rows if pictures} == there, "pictures and rows differ"
    return len(rows)


def kill_service(model: Path, feed: Feed, kills: int, db: str | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        data, kept, chance = Path(folder) / "data", list[tuple[str, str]](), random.Random(0)
        for kill in range(kills):
            command, address = serve(model, data, db)
            clients = Clients(address, feed, kill)
            while not clients.kept:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.7))
            command.end(signal.SIGKILL)
            clients.stop()
            kept += clients.kept
        command, _ = serve(model, data, db)
        assert command.end() == 0
        rows = check_kept(db or f"sqlite:///{data / 'inspections.db'}", data, kept)
        strays = len(list((data / "quarantine").glob("*"))) if (data / "quarantine").exists() else 0
    return (
        f"{kills} kills, {len(kept)} acknowledged, {rows} kept, none missing, none twice; {strays} unanswered set aside"
    )


def kill_watch(model: Path, feed: Feed, kills: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        camera, results, chance, written = Path(folder) / "camera", Path(folder) / "results", random.Random(0), []
        camera.mkdir()
        for kill in range(kills):
            command = Command("watch", model, camera, "--to", results, "--sink", f"copy:{folder}/sorted", *PACE)
            known = judged(results)
            for i in range(4):
                written.append(drop(camera, f"{kill}-{i}.png", feed.next(chance)))
            while command.process.is_alive() and judged(results) == known:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.4))
            command.end(signal.SIGKILL)
        command = Command("watch", model, camera, "--to", results, "--sink", f"copy:{folder}/sorted", "--once", *PACE)
        command.process.join(600)
        lines = check_watch(results, written)
    return f"{kills} kills, {len(written)} files, {lines} records, none missing, none twice"


def drop(folder: Path, name: str, content: bytes) -> str:
    with replacing(folder / name, durable=False) as file:
        file.write(content)
    return name


def judged(results: Path) -> int:
    lines = results / "results.jsonl"
    return lines.read_bytes().count(b"\n") if lines.exists() else 0


def check_watch(results: Path, written: list[str]) -> int:
    with closing(Ledger(results / "ledger.sqlite")) as ledger:
        names = [record.image for record in ledger.after(0, 10**7)]
    assert sorted(names) == sorted(written), "a file was not judged exactly once"
    told = [json.loads(line)["image"] for line in (results / "results.jsonl").read_text().splitlines()]
    assert told == names
    return len(names)


class Receiver(ThreadingHTTPServer):
    """A webhook that is dead whenever it is told to be, and counts what it has taken."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.dead = False
        super().__init__(("127.0.0.1", 0), Hook)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.dead:
            self.server.ids.append(body["id"])
        self.send_response(503 if self.server.dead else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def slope(samples: list[tuple[float, float]]) -> tuple[float, float, float]:
    """An hour's growth and its 95 % interval, by ten means over the last four fifths."""
    moments, values = np.array(samples).T
    late = moments > moments[0] + 0.2 * (moments[-1] - moments[0])
    blocks = np.array_split(np.stack([moments[late] / 3600, values[late]]), 10, axis=1)
    hours, means = np.array([block.mean(axis=1) for block in blocks]).T
    found = stats.linregress(hours, means)
    wide = stats.t.ppf(0.975, len(hours) - 2) * found.stderr
    return found.slope, found.slope - wide, found.slope + wide


def soak(model: Path, feed: Feed, minutes: float) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        data, camera, results = (Path(folder) / name for name in ("data", "camera", "results"))
        camera.mkdir()
        receiver, dropped, chance = Receiver(), list[str](), random.Random(1)
        service, address = serve(model, data, keep=True)
        sinks = ["--sink", f"http://127.0.0.1:{receiver.server_port}/"]
        watch = Command("watch", model, camera, "--to", results, *sinks, *PACE)
        clients, usage = Clients(address, feed, 0), {"serve": list[tuple[float, float, int]](), "watch": []}
        begin, locked = time.monotonic(), False
        while (now := time.monotonic() - begin) < 60 * minutes:
            receiver.dead = 0.3 < now / (60 * minutes) < 0.63
            if not locked and now > 30 * minutes:
                locked = True
                with closing(sqlite3.connect(data / "inspections.db", isolation_level=None, timeout=30)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    time.sleep(5)
            if judged(results) > len(dropped) - 8:
                dropped += [drop(camera, f"{len(dropped) + i}.png", feed.next(chance)) for i in range(4)]
            for name, command in (("serve", service), ("watch", watch)):
                usage[name].append((now, *command.usage()))
            time.sleep(1)
        clients.stop()
        while judged(results) < len(dropped):
            time.sleep(0.2)
        time.sleep(3)
        ends = service.end(), watch.end()
        rows = check_kept(f"sqlite:///{data / 'inspections.db'}", data, clients.kept)
        records = check_watch(results, dropped)
        late = records - len(set(receiver.ids))
    waits = [seconds for _, seconds in sorted(clients.seconds)]
    tenth = max(1, len(waits) // 10)
    first, last = (statistics.median(some) for some in (waits[:tenth], waits[-tenth:]))
    told = ", ".join(f"{count}× {status or 'broken off'}" for status, count in sorted(clients.statuses.items()))
    lines = [
        f"- {minutes:g} minutes: {len(clients.kept)} acknowledged of {rows} kept, none missing, none twice; answers "
        f"{told}; exit codes {ends[0]} and {ends[1]}",
        f"- watch: {records} files judged once each, {late} not yet delivered; its receiver dead a third of the time",
        f"- latency of the last tenth: {last / first:.2f}× the first's (medians)",
    ]
    for name, samples in usage.items():
        for what, index, unit in (("memory", 1, "MB"), ("open files", 2, "files")):
            value, low, high = slope([(each[0], each[index]) for each in samples])
            lines.append(
                f"- {name}, {what}: {samples[len(samples) // 5][index]:.0f} → {samples[-1][index]:.0f} {unit}, "
                f"{value:+.1f} an hour ({low:+.1f} to {high:+.1f})"
            )
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("images", type=Path, nargs="?", help="good photos; rendered ones without")
    options.add_argument("--minutes", type=float, default=3)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--db", help="an empty PostgreSQL database")
    options.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    given = options.parse_args()
    load = os.getloadavg()
    lines = [f"`python benchmarks/soak.py IMAGES --minutes {given.minutes:g} --kills {given.kills}`", ""]
    with tempfile.TemporaryDirectory() as folder:
        if given.images is None:
            for seed in range(30):
                Image.fromarray(render(seed)[0]).save(Path(folder) / f"{seed}.png")
        photos = sorted(find_images(given.images or Path(folder)))
        feed = Feed(photos)
        model = Detector.fit(photos[:20], Config.from_dict(SMALL)).save(Path(folder) / "small.nfad")
        todo: list[tuple[str, Callable[[], str]]] = [("SQLite", lambda: kill_service(model, feed, given.kills, None))]
        if given.db:
            todo.append(("PostgreSQL", lambda: kill_service(model, feed, given.kills, given.db)))
        todo.append(("watch", lambda: kill_watch(model, feed, given.kills)))
        if given.minutes:
            for line in soak(model, feed, given.minutes):
                lines.append(line)
                print(line, flush=True)
        for name, work in todo if given.kills else []:
            lines.append(f"- {name}: {work()}")
            print(lines[-1], flush=True)
    lines.append(
        f"- load of the machine before and after: {load[0]:.1f} and {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    if given.write:
        with replacing(RESULTS) as file:
            file.write(("# Soak and kills\n\n" + "\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
