"""A line to try a station with: `nfad` in processes of its own, what they get, and what must be there at the end."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import closing
from http.client import HTTPException
from pathlib import Path

import httpx
import numpy as np
import sqlalchemy as sa
from PIL import Image

from nfad.service.database import open_engine
from nfad.service.tables import INSPECTIONS
from nfad.system.files import replacing
from nfad.watch.ledger import Ledger

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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def serve(model: Path, data: Path, db: str | None = None, *, keep: bool = False) -> tuple[Command, str]:
    port = free_port()
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


def drop(folder: Path, name: str, content: bytes) -> str:
    with replacing(folder / name, durable=False) as file:
        file.write(content)
    return name


def told(results: Path) -> bytes:
    """The lines of all files that results.jsonl was rotated to, and its own; the oldest first."""
    aside = sorted(results.glob("results.jsonl.*"), key=lambda file: int(file.suffix[1:]))
    return b"".join(file.read_bytes() for file in (*aside, results / "results.jsonl") if file.exists())


def rotate(results: Path) -> None:
    """By renaming: to copy and truncate loses what is written in between, whatever the program that writes."""
    lines = results / "results.jsonl"
    if lines.exists():
        lines.rename(results / f"results.jsonl.{1 + len(list(results.glob('results.jsonl.*')))}")


def judged(results: Path) -> int:
    return told(results).count(b"\n")


def check_watch(results: Path, written: list[str]) -> int:
    with closing(Ledger(results / "ledger.sqlite")) as ledger:
        names = [record.image for record in ledger.after(0, 10**7)]
    assert sorted(names) == sorted(written), "a file was not judged exactly once"
    assert [json.loads(line)["image"] for line in told(results).splitlines()] == names
    return len(names)
