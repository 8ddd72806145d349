"""What a million inspections in the database cost: the start, and the pages of history, filters, drift and review.

    python benchmarks/million.py [--rows 1000000] [--requests 40] [--db postgresql://…] [--write]

Two stations on one machine in one process, one with 100 inspections and one with as many as asked for, answer the same
requests in turn. Told are the 95th percentiles in milliseconds and the ratio of the two; the start is from opening the
database to the first answer, with a small untrained model already loaded. One row in 200 is anomalous, one in 1000 not
judged, one in 500 reviewed, one in 10,000 changed by the filter; no pictures are made.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient
from line import SMALL

from nfad import Config, Detector
from nfad.model import Model
from nfad.service.app import create_app
from nfad.service.record import Ids, Inspection, iso
from nfad.service.service import Service, open_service
from nfad.service.settings import Settings
from nfad.service.store import Store
from nfad.service.tables import INSPECTIONS
from nfad.system.files import replacing
from nfad.vision.render import render

RESULTS = Path(__file__).parent / "results" / "million.md"
FEW, LIMIT = 100, 300  # milliseconds at the 95th percentile


def rows(model: Model, count: int):
    """From the oldest to the newest, two a second, the last of them now."""
    ids, chance, normal = Ids(), random.Random(0), model.normals
    start = datetime.now(UTC) - timedelta(seconds=count / 2)
    held = len(normal["score"])
    for number in range(count):
        now, of = start + timedelta(seconds=number / 2), chance.randrange(held)
        anomalous, unjudged = number % 200 == 7, number % 1000 == 11
        score = normal["score"][of] + (model.threshold + chance.random() if anomalous else 0)
        verdict = "not judged" if unjudged else "anomalous" if score > model.threshold else "normal"
        yield Inspection(
            id=ids.next(now), time=iso(now), image=f"cam{number % 4}-{number:07}.png", sha256=f"{number:064x}",
            model="part", model_sha256=model.sha256, verdict=verdict, explanation="Normal.",
            milliseconds=50.0, score=score, threshold=model.threshold, false_alarm_rate=model.false_alarm_rate,
            p_value=0.5, unfiltered_verdict="anomalous" if number % 10_000 == 3 else verdict,
            unfiltered_score=normal["unfiltered_score"][of], unfiltered_threshold=5.0, excess_filtered=None,
            nuisance_fraction=normal["nuisance_fraction"][of], participation=normal["participation"][of],
            nuisance_by_family={k.partition(":")[2]: v[of] for k, v in normal.items() if k.startswith("nuisance:")},
            gate=None, strangeness=0.3, suffix=".png", width=640, height=480, scale=9.7,
            view={"left": 0.0, "top": 0.0, "width": 1.0, "height": 1.0}, pictures=False,
            review_verdict=[None, "good", "bad", "unsure"][1 + number // 500 % 3] if number % 500 == 0 else None,
        )  # fmt: skip


def filled(url: str, model: Model, count: int) -> None:
    store = Store(url)
    waiting: list[dict] = []
    with store.engine.begin() as connection:
        for row in rows(model, count):
            waiting.append(row.as_dict())
            if len(waiting) == 2000:
                connection.execute(INSPECTIONS.insert(), waiting)
                waiting = []
        if waiting:
            connection.execute(INSPECTIONS.insert(), waiting)
    store.close()


def requests(count: int) -> dict[str, str]:
    day = datetime.now(UTC) - timedelta(seconds=count / 4)
    half = iso(day).replace("+", "%2B")
    return {
        "history, newest": "/v1/inspections",
        "history, from the middle": f"/v1/inspections?until={half}",
        "anomalous": "/v1/inspections?verdict=anomalous",
        "not judged": "/v1/inspections?verdict=not%20judged",
        "changed by the filter": "/v1/inspections?changed=true",
        "not changed, one day": f"/v1/inspections?changed=false&since={half}",
        "to be reviewed": "/v1/inspections?review=none",
        "reviewed bad": "/v1/inspections?review=bad",
        "a name that many have": "/v1/inspections?search=cam3",
        "a name that none has": "/v1/inspections?search=nothing-of-that-name",
        "models": "/v1/models",
        "drift": "/v1/drift",
        "what a rate would do": "/v1/models/part/what-if?rate=0.3",
        "review": "/v1/review",
        "changes": "/v1/changes",
    }


def started(data: Path, url: str, model: Path, loaded: Model) -> tuple[Service, TestClient, float]:
    since = time.perf_counter()
    service = open_service(Settings(data=data, db=url), [model], lambda _: loaded)
    client = TestClient(create_app(service), base_url="http://localhost")
    assert client.get("/readyz").status_code in (200, 507)
    return service, client, time.perf_counter() - since


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--requests", type=int, default=40)
    options.add_argument("--db", help="an empty PostgreSQL database, instead of SQLite")
    options.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    given, load = options.parse_args(), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "part.nfad"
        photos = [render(seed)[0] for seed in range(16)]
        loaded = Detector.load(Detector.fit(photos, Config.from_dict(SMALL)).save(place))
        stations = []
        for name, count, url in (
            ("few", FEW, f"sqlite:///{folder}/few.db"),
            ("many", given.rows, given.db or f"sqlite:///{folder}/many.db"),
        ):
            filled(url, loaded, count)
            stations.append(started(Path(folder) / name, url, place, loaded))
        lines = ["| what | few, ms | many, ms | ratio | within 300 ms |", "| --- | ---: | ---: | ---: | --- |"]
        few, many = (1000 * each[2] for each in stations)
        lines.append(
            f"| start, s | {few / 1000:.2f} | {many / 1000:.2f} | {many / few:.1f} | within 3 s: {many < 3000} |"
        )
        for what, address in requests(given.rows).items():
            times: list[list[float]] = [[], []]
            for _ in range(given.requests):
                for (_, client, _), found in zip(stations, times, strict=True):
                    since = time.perf_counter()
                    client.get(address).raise_for_status()
                    found.append(1000 * (time.perf_counter() - since))
            few, many = (float(np.quantile(each, 0.95)) for each in times)
            lines.append(f"| {what} | {few:.0f} | {many:.0f} | {many / few:.1f} | {'yes' if many < LIMIT else 'no'} |")
            print(lines[-1], flush=True)
        print(lines[2])
        for service, _, _ in stations:
            service.close()
    if given.write:
        kind = "PostgreSQL" if given.db else "SQLite"
        busy = f"load before and after: {load[0]:.1f} and {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        head = (
            f"# {given.rows:,} inspections in {kind}\n\n95th percentiles of {given.requests} requests each; {busy}.\n\n"
        )
        with replacing(RESULTS) as file:
            file.write((head + "\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
