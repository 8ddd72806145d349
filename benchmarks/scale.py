"""What a plant of many lines needs, by a simulation of arrivals through the service's queue.

    python benchmarks/scale.py            # a minute; writes benchmarks/results/scale.md

Photos of many lines arrive at one station of several cores, wait in its queue, and are refused where that is full, as
`nfad serve` refuses them. How long a photo takes a core comes from benchmarks/results/service.md. Before anything is
told, the simulation is held to what theory knows: one core, arrivals at random, every photo the same time.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
CORES, PLACES = 8, 32  # of a station; photos that may wait, as `nfad serve` has it
SECONDS = 600.0  # simulated, after a tenth of it to settle
JITTER = 0.2  # of the time between two parts of a line: feeders are not clocks
LATE = 1.0  # seconds until a verdict that a line bears
BUSY = (0.5, 0.7, 0.8, 0.9, 0.95, 1.1)  # shares of what the cores could judge


@dataclass(frozen=True)
class Station:
    """What was measured of one core."""

    name: str
    rate: float  # photos a second through the service, one thread
    spread: float  # p95 / p50 of a photo's time, idle

    def times(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Lognormal with that mean and spread."""
        sigma = math.log(self.spread) / 1.645
        return rng.lognormal(-math.log(self.rate) - sigma**2 / 2, sigma, count)


@dataclass(frozen=True)
class Seen:
    busy: float  # share of the cores' time
    p50: float  # seconds from arrival to verdict
    p99: float
    refused: float  # share of the photos


def simulate(arrivals: np.ndarray, times: np.ndarray, cores: int, places: float, settle: float = 0.0) -> Seen:
    """First come, first served; whoever finds the queue full is refused. Numbers of those that came after `settle`."""
    free = [0.0] * cores  # when each core is free again
    starts: deque[float] = deque()  # of those that wait
    took, worked, refused, seen = [], 0.0, 0, 0
    for arrival, time in zip(arrivals.tolist(), times.tolist(), strict=True):
        while starts and starts[0] <= arrival:
            starts.popleft()
        counted = arrival >= settle
        seen += counted
        if len(starts) >= places and free[0] > arrival:
            refused += counted
            continue
        start = max(heapq.heappop(free), arrival)
        heapq.heappush(free, start + time)
        if start > arrival:
            starts.append(start)
        if counted:
            took.append(start + time - arrival)
            worked += time
    p50, p99 = np.percentile(took, [50, 99])
    return Seen(worked / (cores * (arrivals[-1] - settle)), float(p50), float(p99), refused / seen)


def check() -> float:
    """M/D/1: the mean wait is ρ / (2 μ (1 − ρ)) (Pollaczek and Khinchine). Gives the relative error."""
    rng, busy = np.random.default_rng(0), 0.8
    arrivals = np.cumsum(rng.exponential(1 / busy, 400_000))
    free, waits = 0.0, []
    for arrival in arrivals.tolist():  # the same by Lindley's recursion, to hold the queue's bookkeeping to it
        waits.append(max(free - arrival, 0.0))
        free = max(free, arrival) + 1
    theory = busy / (2 * (1 - busy))
    error = abs(np.mean(waits) / theory - 1)
    found = simulate(arrivals, np.ones(len(arrivals)), 1, math.inf)
    assert math.isclose(found.p99, float(np.percentile(waits, 99)) + 1), "the queue is not first come, first served"
    assert error < 0.05 and found.refused == 0 and abs(found.busy - busy) < 0.01, (error, found)
    return error


def lines(count: int, takt: float, rng: np.random.Generator, in_step: bool) -> np.ndarray:
    """A part every `takt` seconds on each line, not quite on time; the lines in step, as by one clock, or not."""
    parts = np.arange(int(1.1 * SECONDS / takt))
    phases = np.ones((count, 1)) if in_step else rng.random((count, 1))
    each = (parts + phases + JITTER * rng.normal(size=(count, len(parts)))) * takt
    return np.sort(each[each >= 0])


def measured() -> list[Station]:
    """From service.md: the exports' throughput and idle times, table by table."""
    text = (RESULTS / "service.md").read_text()
    found = []
    for name, side in (
        ("embedded-fast, 256²", None),
        ("embedded-fast, 1600²", "--side 1600"),
        ("embedded, 256²", None),
    ):
        tables = [part for part in text.split("`python benchmarks/service.py")[1:] if ("--side" in part) == bool(side)]
        kind = name.partition(",")[0]
        table = next(part for part in tables if f"| {kind}-fp32" in part)
        service = re.search(r"\| service \| ([\d.]+) images/s", table)
        idle = re.search(r"\| idle, p50 / p95 \| (\d+) ms / (\d+) ms", table)
        assert service and idle, f"service.md says nothing of {name}"
        found.append(Station(name, float(service[1]), int(idle[2]) / int(idle[1])))
    return found


def main() -> None:
    error = check()
    told = [
        "# Arrivals through the queue",
        "",
        f"`python benchmarks/scale.py`: a station of {CORES} cores, {PLACES} photos may wait, a part a second on every",
        f"line within {JITTER:g} s, {SECONDS:.0f} simulated seconds. The mean wait of M/D/1 is met within {error:.1%}.",
        "A core's photos a second are those of service.md, one thread; that eight cores do not slow one another is",
        "assumed. In step: all lines by one clock, so that their photos come at once.",
        "",
        "| photos | lines a station | cores' time used | p50 | p99 | refused | refused, lines in step |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    most = {}
    for station in measured():
        for busy in BUSY:
            rng = np.random.default_rng(int(100 * busy))
            count = max(1, round(busy * CORES * station.rate))
            seen, together = (
                simulate(arrivals, station.times(len(arrivals), rng), CORES, PLACES, SECONDS / 10)
                for arrivals in (lines(count, 1.0, rng, in_step) for in_step in (False, True))
            )
            if seen.refused == together.refused == 0 and seen.p99 <= LATE:
                most[station] = count
            told.append(
                f"| {station.name} | {count} | {seen.busy:.0%} | {1000 * seen.p50:.0f} ms | {1000 * seen.p99:.0f} ms "
                f"| {seen.refused:.2%} | {together.refused:.2%} |"
            )
    words = (
        f"Most lines a station of which nothing is refused, in step or not, p99 within {LATE:g} s; stations for 1,000:"
    )
    told += ["", words, ""]
    told += ["| photos | lines a station | stations | cores |", "| --- | ---: | ---: | ---: |"]
    for station, count in most.items():
        stations = math.ceil(1000 / count)
        told.append(f"| {station.name} | {count} | {stations} | {stations * CORES} |")
    (RESULTS / "scale.md").write_text("\n".join(told) + "\n")
    print("\n".join(told))


if __name__ == "__main__":
    main()
