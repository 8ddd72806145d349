"""What `--preset auto` would choose, and how that compares with the best candidate in hindsight.

    python benchmarks/regret.py SCRATCH --data DATA [--sets bottle block …] [--seeds 54] [--write]

Every candidate of auto is fitted on the same 60 normals of each set and judges the photos of `verdict.py`, as taken and
under its shifts. Its clean image AUROC (of photos as taken, or of the fit's own light where a set has several) and its
verdict error at 5 % stand beside the share of synthetic defects that the fit found, which is all that auto knows. The
same scratch as `verdict.py`'s may be given. With --write the table goes to results/regret.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from verdict import SETS, datasets

from nfad import Config
from nfad.auto import CANDIDATES
from nfad.evaluation.metrics import image_metrics
from nfad.paper.verdict import AS_TAKEN, Result, VerdictCell, cells_of, run_verdicts
from nfad.paper.verdict_rows import row_of
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache
from nfad.verdict.choice import Candidate, first_of_the_best

RESULTS = Path(__file__).parent / "results" / "regret.md"
PARTS = ("bottle", "transistor", "exposure1", "block", "screw", "demo")
OWN_LIGHT = {"block": "warm", "demo": "same", "exposure1": "exposure1"}  # of sets with several
DEFECTS = 84  # synthetic ones a fit, of which a standard error is told


def clean_auroc(result: Result, light: str) -> float:
    rows = [(bad, score) for shift, bad, score, *_ in result["rows"] if shift == light and score is not None]
    bad, scores = (np.array(each) for each in zip(*rows, strict=True))
    return image_metrics(scores, bad.astype(bool)).auroc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=PARTS, choices=SETS)
    parser.add_argument("--seeds", default="54")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    args.scratch.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    every = {name: datasets(args.data, args.scratch, [name]) for name in SETS}
    cache = ResultCache(args.scratch / "cells")
    lines = [
        "| set, seed | candidate | synthetic defects found | clean AUROC | verdict error | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    regrets: dict[str, list[tuple[float, float]]] = {"auto": []} | {name: [] for name in CANDIDATES}
    for name in args.sets:
        for seed in seeds:
            found: dict[str, tuple[float, float, float]] = {}
            for candidate, (preset, changes) in CANDIDATES.items():
                config = Config.preset(preset, false_alarm_rate=0.05, **changes)
                cells: list[VerdictCell] = cells_of(
                    [each for sets in every.values() for each in sets], config, ["nfad"], [seed], 60, 30
                )
                [cell] = [cell for cell in cells if cell.dataset in every[name]]
                [result] = run_verdicts([cell], cache)
                light = OWN_LIGHT.get(name, AS_TAKEN)
                found[candidate] = (result["synthetic"], clean_auroc(result, light), row_of(cell, result).error)
                print(name, seed, candidate, *(f"{number:.3f}" for number in found[candidate]), flush=True)
            chosen = first_of_the_best([Candidate(each, 0.0, "", of[0]) for each, of in found.items()], DEFECTS)
            best = max(of[1] for of in found.values()), min(of[2] for of in found.values())
            for each, (synthetic, auroc, error) in found.items():
                mark = "chosen" if each == chosen else ""
                lines.append(f"| {name}, {seed} | {each} | {synthetic:.3f} | {auroc:.3f} | {error:.3f} | {mark} |")
                for known in (each, "auto") if each == chosen else (each,):
                    regrets[known].append((best[0] - auroc, error - best[1]))
    lines += ["", "| taken | AUROC lost, mean / most | verdict error more, mean / most |", "| --- | --- | --- |"]
    for known, lost in regrets.items():
        auroc, error = np.array(lost).T
        taken = "what auto chooses" if known == "auto" else f"always {known}"
        lines.append(f"| {taken} | {auroc.mean():.3f} / {auroc.max():.3f} | {error.mean():.3f} / {error.max():.3f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        note = f"`python benchmarks/regret.py SCRATCH --data DATA --sets {' '.join(args.sets)} --seeds {args.seeds}`"
        RESULTS.write_text(f"{note}\n\n{text}")


if __name__ == "__main__":
    main()
