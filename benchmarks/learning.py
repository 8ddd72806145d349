"""How many photos a fit needs: both errors under the shifts of `verdict.py`, by the number of normals.

    python benchmarks/learning.py SCRATCH --data DATA [--preset embedded-fast] [--sets bottle transistor exposure1]

8, 16, 32 and 64 normals, and all there are, by three seeds; thresholds at 5 %, or at the lowest rate that so few
support. Finished cells stay in SCRATCH/cells. Writes results/learning-<preset>.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from verdict import RESULTS, datasets

from nfad import Config
from nfad.paper.verdict import SEEDS, cells_of, run_verdicts
from nfad.paper.verdict_rows import row_of
from nfad.records import Dataset
from nfad.stats.conformal import smallest_rate
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache

COUNTS = (8, 16, 32, 64)
RATE = 0.05
NAMES = ("error", "flagged", "found", "good_not_judged", "bad_not_judged", "auroc")


def lines_of(dataset: Dataset, config: Config, cache: ResultCache) -> list[str]:
    """One a number of normals: means over seeds, ± the spread of the verdict error."""
    there = len(dataset.train)
    by_count = {
        normals: cells_of([dataset], config, ["nfad"], SEEDS, normals, 30)
        for normals in [*(count for count in COUNTS if count < there), there]
    }
    results = iter(run_verdicts([cell for cells in by_count.values() for cell in cells], cache))
    found = []
    for normals, cells in by_count.items():
        rows = [row_of(cell, next(results), RATE) for cell in cells]
        means = {name: float(np.mean([getattr(row, name) for row in rows])) for name in NAMES}
        spread, rate = float(np.std([row.error for row in rows])), max(RATE, smallest_rate(normals))
        found.append(
            f"| {rows[0].part} | {normals} | {rate:.1%} | {means['error']:.3f} ± {spread:.3f} | {means['flagged']:.0%} "
            f"| {means['found']:.0%} | {means['good_not_judged']:.0%} / {means['bad_not_judged']:.0%} "
            f"| {means['auroc']:.3f} |"
        )
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="embedded-fast")
    parser.add_argument("--sets", nargs="+", default=["bottle", "transistor", "exposure1"])
    args = parser.parse_args()
    keep_freed_memory()
    args.scratch.mkdir(parents=True, exist_ok=True)
    config, cache = Config.preset(args.preset, false_alarm_rate=RATE), ResultCache(args.scratch / "cells")
    lines = [
        "# How many photos a fit needs",
        "",
        "Means over the shifts and three seeds, ± the spread over seeds. A bad photo that is not judged is stopped.",
        "",
        f"- `python benchmarks/learning.py SCRATCH --data DATA --preset {args.preset} --sets {' '.join(args.sets)}`",
        "",
        "| part | normals | stated rate | verdict error | good flagged | bad found | not judged, good / bad | AUROC |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for dataset in datasets(args.data, args.scratch, args.sets):
        lines += lines_of(dataset, config, cache)
    (RESULTS / f"learning-{args.preset}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
