"""A station and a watch at full speed, and killed at random: nothing acknowledged is lost or twice, nothing creeps.

    python benchmarks/soak.py [IMAGES] [--minutes 3] [--kills 20] [--db postgresql://…] [--write]

- soak: `nfad serve` and `nfad watch`, each in a process of its own, on a small untrained model (what is measured is not
  the model): three clients upload photos, defects, black photos, cut-off and empty files as fast as they are answered,
  a camera drops the same into the watched folder. In the middle the database is locked for 5 s, and the watch's
  receiver is dead for a third of the time; results.jsonl is rotated six times. Memory and open files are sampled every
  second; their slope is that of ten means over the last four fifths of the time, with its 95 % interval (t, 8 degrees
  of freedom)
- a full disk: `nfad serve` on a tmpfs of 24 MB (where one may be mounted), filled while three clients upload, and freed
- a receiver that is dead for a day, which passes by a clock that is set on: tried again and again over HTTP, and then
  given all in order
- kills: SIGKILL at a random moment of uploading, and a new start, on SQLite, on PostgreSQL if --db names an empty
  database, and of `nfad watch`

Every acknowledged inspection must be there exactly once with its pictures, and every file judged exactly once, or it
fails. `make soak MINUTES=60` is an hour. Latencies are of the machine as it was: see the load that is told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from line import PACE, SMALL, Clients, Command, Feed, check_kept, check_watch, drop, judged, rotate, serve
from PIL import Image
from scipy import stats

from nfad import Config, Detector
from nfad.system.files import replacing
from nfad.vision.pixels import find_images
from nfad.vision.render import render
from nfad.watch.delivery import Delivery
from nfad.watch.ledger import Ledger
from nfad.watch.record import as_line, record_of_silence
from nfad.watch.senders import Webhook

RESULTS = Path(__file__).parent / "results" / "soak.md"


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


def dead_for_a_day(parts: int = 200) -> str:
    with tempfile.TemporaryDirectory() as folder:
        ledger, receiver, now, told = Ledger(Path(folder) / "ledger.sqlite"), Receiver(), [0.0], list[str]()
        hook = Webhook(f"http://127.0.0.1:{receiver.server_port}/")
        delivery = Delivery(
            hook.name, lambda record: hook.send(as_line(record), record.id), ledger, told.append, lambda: now[0]
        )
        receiver.dead, tries, wanted = True, 0, list[str]()
        while now[0] < 86_400:
            if len(wanted) < parts:
                wanted.append(ledger.append(record_of_silence(None, "", Named(), "part")).id)
            assert not delivery.catch_up()
            tries, now[0] = tries + 1, delivery.due
        receiver.dead = False
        assert delivery.catch_up() and receiver.ids == wanted, "a record is missing, or out of order"
        receiver.shutdown()
        ledger.close()
    return f"{tries} tries in a day, {len(told)} sentences about it, then {len(wanted)} records in order, none twice"


class Named:
    """All of a model that such a record needs."""

    sha256 = ""


def full_disk(model: Path, feed: Feed) -> str:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "disk"
        place.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True).returncode:
            return "not tried: no tmpfs may be mounted here"
        try:
            data = place / "data"
            command, address = serve(model, data)
            clients = Clients(address, feed, 0)
            wait_until(lambda: len(clients.kept) >= 10)
            with (place / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
                while ballast.write(bytes(1 << 16)):
                    pass
            before = sum(clients.statuses[status] for status in (500, 503, 507))
            wait_until(lambda: sum(clients.statuses[status] for status in (500, 503, 507)) >= before + 10)
            (place / "ballast").unlink()
            full = len(clients.kept)
            wait_until(lambda: len(clients.kept) >= full + 10)
            clients.stop()
            end = command.end()
            rows = check_kept(f"sqlite:///{data / 'inspections.db'}", data, clients.kept)
        finally:
            subprocess.run(["umount", "-l", place], check=True)
    told = ", ".join(f"{count}× {status or 'broken off'}" for status, count in sorted(clients.statuses.items()))
    return f"{len(clients.kept)} acknowledged of {rows} kept, none missing, none twice; {told}; exit code {end}"


def wait_until(happens: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


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
        begin, locked, rotated = time.monotonic(), False, 0
        while (now := time.monotonic() - begin) < 60 * minutes:
            receiver.dead = 0.3 < now / (60 * minutes) < 0.63
            if not locked and now > 30 * minutes:
                locked = True
                with closing(sqlite3.connect(data / "inspections.db", isolation_level=None, timeout=30)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    time.sleep(5)
            if now > (rotated + 1) * 60 * minutes / 7:
                rotated += 1
                rotate(results)
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
        others: list[tuple[str, Callable[[], str]]] = [
            ("full disk", lambda: full_disk(model, feed)), ("dead receiver", dead_for_a_day)
        ]  # fmt: skip
        for name, work in (*(others if given.minutes else ()), *(todo if given.kills else ())):
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
