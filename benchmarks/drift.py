"""What the drift monitor says of simulated lines: false alarms, verdicts 200 parts after a change, and delays.

    OMP_NUM_THREADS=1 python benchmarks/drift.py [--runs 100]

A line's numbers: scores and nuisance shares of made-up but plausible distributions, correlated as light correlates
them. After some good parts one thing changes, by so many standard deviations of a normal part or so many defects.
Shares are of runs, with Clopper and Pearson's 95 % interval where there is one number, and delays are the quartiles of
the parts from the change to the first alarm (looked at every 10 parts). Nothing here was used to fit anything, but the
bets and cuts of nfad/drift were chosen while looking at lines such as these.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np

from nfad.drift import DriftMonitor
from nfad.drift.state import ABSORBED, ABSORBED_AND_DEFECTS, DEFECTS, STEADY, UNABSORBED, UNSETTLED
from nfad.stats.intervals import rate_interval

RESULTS = Path(__file__).parent / "results" / "drift.md"
AFTER, STEP = 200, 10
STARTS = ((20, 0), (50, 0), (200, 0), (20, 500), (200, 500), (50, 3000))  # held-out normals, good parts before
COLUMNS = {
    STEADY: "steady",
    ABSORBED: "absorbed",
    UNABSORBED: "not absorbed",
    DEFECTS: "defects",
    ABSORBED_AND_DEFECTS: "absorbed + defects",
    UNSETTLED: "not settled",
}
CHANGES: dict[str, dict[str, float]] = {
    "nothing": {},
    "light by 1 σ, absorbed": {"light": 1.0},
    "light by 3 σ, absorbed": {"light": 3.0},
    "light by 3 σ, slowly over 200 parts": {"light": 3.0, "slowly": True},
    "all scores up by 0.5 σ": {"unabsorbed": 0.5},
    "all scores up by 1 σ": {"unabsorbed": 1.0},
    "all scores up by 3 σ": {"unabsorbed": 3.0},
    "all scores down by 1 σ": {"unabsorbed": -1.0},
    "5 % defects": {"defects": 0.05},
    "15 % defects": {"defects": 0.15},
    "35 % defects": {"defects": 0.35},
    "light by 2 σ and 15 % defects": {"light": 2.0, "defects": 0.15},
}


def line(
    random: np.random.Generator,
    parts: int,
    light: float = 0.0,
    unabsorbed: float = 0.0,
    defects: float = 0.0,
    slowly: bool = False,
) -> dict[str, np.ndarray]:
    """Light moves the photometric share and the control score; what is not absorbed moves the filtered score too."""
    pace = np.linspace(0, 1, parts) if slowly else np.ones(parts)
    lamp = random.normal(size=parts) + light * pace
    part, own, ground, noise = random.normal(size=(4, parts))
    broken = random.random(parts) < defects
    score = 2 + 0.5 * (part + unabsorbed * pace) + broken * random.gamma(4, 0.7, parts)
    return {
        "score": score,
        "unfiltered_score": score + 0.5 + 0.3 * own + 0.3 * lamp,
        "nuisance:photometric": np.exp(-1.5 + 0.3 * lamp) * np.where(broken, 0.5, 1),
        "nuisance:background": np.exp(-2 + 0.3 * ground) * np.where(broken, 0.5, 1),
        "nuisance:sensor": np.exp(-2.5 + 0.3 * noise) * np.where(broken, 0.5, 1),
    }


def rows(numbers: dict[str, np.ndarray]) -> list[dict[str, float]]:
    return [dict(zip(numbers, values, strict=True)) for values in zip(*numbers.values(), strict=True)]


def one(seed: tuple[int, ...], normals: int, before: int, change: dict) -> tuple[str, int | None, int | None, bool]:
    """The verdict after the change, the delay and the dating error of the first alarm, and whether one stood before."""
    random = np.random.default_rng(seed)
    monitor = DriftMonitor.replay(line(random, normals), rows(line(random, before)))
    early = monitor.state().alarm
    changed = rows(line(random, AFTER, **change))
    delay = dated = None
    for start in range(0, AFTER, STEP):
        monitor.extend(changed[start : start + STEP])
        if delay is None and not early and monitor.state().alarm:
            delay, dated = start + STEP, monitor.state().since - before - 1
    return monitor.state().verdict, delay, dated, early


def quartiles(values: list[int | None]) -> str:
    known = [value for value in values if value is not None]
    return " / ".join(f"{q:.0f}" for q in np.quantile(known, (0.25, 0.5, 0.75))) if len(known) > 3 else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    lines = [
        "Verdicts of `DriftMonitor` at its defaults (rate 1 %, run length 10,000) on simulated lines,",
        f"{runs} runs each (half as many after 3,000 good parts); made by `benchmarks/drift.py --runs {runs}`.",
        "Delays and dates are quartiles in parts: first alarm after the change, and its estimate of when that was.",
        "The bets and cuts were chosen on lines such as these, so real lines may fare worse; the promised rates do not",
        "depend on it.",
    ]
    early = Counter()
    for number, (normals, before) in enumerate(STARTS):
        here = runs if before <= 1000 else runs // 2
        print(normals, before)
        lines += [
            "",
            f"### {normals} held-out normals, {before:,} good parts before the change ({here} runs)",
            "",
            f"| change | {' | '.join(COLUMNS.values())} | delay | date off by |",
            "| --- " * (3 + len(COLUMNS)) + "|",
        ]
        for place, (name, change) in enumerate(CHANGES.items()):
            found = [one((run, place, number), normals, before, change) for run in range(here)]
            verdicts = Counter(verdict for verdict, *_ in found)
            cells = [f"{verdicts[verdict] / here:.0%}" if verdicts[verdict] else "" for verdict in COLUMNS]
            delays, dates = (quartiles([each[i] for each in found]) for i in (1, 2))
            early[normals, before] += sum(each[3] for each in found)
            lines.append(f"| {name} | {' | '.join(cells)} | {delays} | {dates} |")
            print(lines[-1], flush=True)
        if before:
            share = rate_interval(early[normals, before], here * len(CHANGES))
            lines += [
                "",
                f"Under alarm just before the change: {share.value:.1%} of all these runs (95 % interval "
                f"{share.low:.1%} to {share.high:.1%}); promised for any alarm by then: {0.01 + before / 20_000:.1%}.",
            ]
    random = np.random.default_rng(0)
    normals, stream = line(random, 100), rows(line(random, 20_000))
    start = time.process_time()
    DriftMonitor.replay(normals, stream)
    lines += ["", f"20,000 parts are replayed in {time.process_time() - start:.1f} s of one core."]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
