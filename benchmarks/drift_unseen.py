"""What the drift monitor says of other lines than those of benchmarks/drift.py: other changes, and real photos.

Its bets were chosen without these. Two later rules, for scores that fall and for many flags, were chosen with them in
sight (bottles under x 0.85, x 0.6 and x 1.3), so that for those rules they are no test.

    OMP_NUM_THREADS=1 python benchmarks/drift_unseen.py [DATA] [--runs 40]

Simulated lines are those of benchmarks/drift.py, changed in other ways. DATA holds mvtec_256/bottle and magnetic_tile;
without it only the simulated lines are run. A real line is a fitted `embedded-fast` model and photos it has not seen,
in an order drawn anew for each run; good ones first, then the change. Whether the filter absorbs a real change is not
known beforehand: the share of good changed parts that it flags is printed beside the verdicts, to judge them by.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from drift import COLUMNS, line, rows

from nfad import Config, Detector
from nfad.drift import DriftMonitor, numbers_of
from nfad.vision.images import load_part, to_view
from nfad.vision.interventions import affine

RESULTS = Path(__file__).parent / "results" / "drift_unseen.md"
Numbers = list[dict[str, float]]
EXPOSED = (0.85, 0.6, 1.3)
DEFECTS = ("blowhole", "break", "crack", "fray")


def runs_of_luck(random: np.random.Generator, parts: int, memory: float) -> dict[str, np.ndarray]:
    """Nothing changes, but each score remembers the one before; its distribution is that of `line`."""
    numbers = line(random, parts)
    noise = random.normal(size=parts)
    for i in range(1, parts):
        noise[i] = memory * noise[i - 1] + np.sqrt(1 - memory**2) * noise[i]
    moved = 2 + 0.5 * noise - numbers["score"]
    return numbers | {name: numbers[name] + moved for name in ("score", "unfiltered_score")}


def two_families(random: np.random.Generator, parts: int) -> dict[str, np.ndarray]:
    numbers = line(random, parts, light=1.5)
    return numbers | {"nuisance:background": numbers["nuisance:background"] * np.exp(0.3 * 1.5)}


def heavy(random: np.random.Generator, parts: int) -> dict[str, np.ndarray]:
    """Good parts only, whose scores have a heavier tail than any in drift.py, before and after."""
    numbers = line(random, parts)
    return numbers | {"score": 2 + 0.5 * random.standard_t(3, parts)}


SIMULATED: dict[str, tuple[str, Callable, Callable, int]] = {  # truth, before, after, parts after
    "lamp ages by 3 σ over 2,000 parts, seen after 500": (
        "absorbed",
        line,
        lambda random, parts: {name: values[:parts] for name, values in line(random, 2000, 3.0, slowly=True).items()},
        500,
    ),
    "the same, after all 2,000": ("absorbed", line, lambda r, n: line(r, n, light=3.0, slowly=True), 2000),
    "two families step by 1.5 σ at once": ("absorbed", line, two_families, 200),
    "5 % defects under light off by 2 σ, seen after 200": (
        "absorbed + defects",
        line,
        lambda r, n: line(r, n, light=2.0, defects=0.05),
        200,
    ),
    "the same, after 1,000": ("absorbed + defects", line, lambda r, n: line(r, n, light=2.0, defects=0.05), 1000),
    "nothing; neighbours correlate by 0.5": (
        "steady",
        lambda r, n: runs_of_luck(r, n, 0.5),
        lambda r, n: runs_of_luck(r, n, 0.5),
        500,
    ),
    "nothing; neighbours correlate by 0.9": (
        "steady",
        lambda r, n: runs_of_luck(r, n, 0.9),
        lambda r, n: runs_of_luck(r, n, 0.9),
        500,
    ),
    "nothing; a heavy tail": ("steady", heavy, heavy, 500),
}


def simulated(name: str, place: int, normals: int, before: int, runs: int) -> Counter:
    _, good, changed, after = SIMULATED[name]
    found = Counter()
    for run in range(runs):
        random = np.random.default_rng((run, place, normals, before, 77))
        # Normals are held out of a shuffled fit, so they are independent even where the line is not.
        monitor = DriftMonitor.replay(line(random, normals) if good is not heavy else heavy(random, normals), [])
        monitor.extend(rows(good(random, before)) + rows(changed(random, after)))
        found[monitor.state().verdict] += 1
    return found


def exposed(path: Path, detector: Detector, by: float) -> torch.Tensor:
    """A view brighter or darker by a factor, as a lamp or a shutter would make it."""
    view, _ = to_view(load_part(path), detector.config.size, detector.config.resize)
    nowhere = torch.zeros((1, 1, *view.shape[1:]), dtype=torch.bool)
    return affine(by, 0.0, view[None], nowhere, torch.Generator())


def judged(detector: Detector, paths: list[Path], by: float = 1.0) -> Numbers:
    if by == 1:
        return [numbers_of(each) for each in detector.predict_stream(paths)]
    return [numbers_of(detector.predict_views(exposed(path, detector, by))[0]) for path in paths]


def bottles(root: Path) -> tuple[Detector, dict[str, tuple[Numbers, Numbers]]]:
    """Good bottles as they are, then what has changed, by name: good ones and defects."""
    good = sorted((root / "train" / "good").glob("*.*"))
    np.random.default_rng(0).shuffle(good)
    detector = Detector.fit(good[:100], Config.preset("embedded-fast"))
    rest = good[100:]
    broken = [path for path in sorted((root / "test").glob("*/*.*")) if path.parent.name != "good"]
    half = len(rest) // 2
    plain, other = judged(detector, rest[:half]), rest[half:]
    lines = {"bottle: nothing": (plain, judged(detector, other), [])}
    for by in EXPOSED:
        lines[f"bottle: exposure × {by}"] = (plain, judged(detector, other, by), [])
    few = broken[:: max(1, len(broken) // 8)][:8]
    lines["bottle: 8 defects among the good ones"] = (plain, judged(detector, other), judged(detector, few))
    lines["bottle: exposure × 0.85 and 8 defects"] = (plain, judged(detector, other, 0.85), judged(detector, few, 0.85))
    return detector, lines


def tiles(root: Path, source: int = 3) -> tuple[Detector, dict[str, tuple[Numbers, Numbers]]]:
    """Tiles photographed at a real other exposure; no tile is both fitted and judged, or judged twice in a line."""

    def photos(kind: str, exposure: int) -> dict[str, Path]:
        return {path.stem: path for path in sorted((root / kind / f"exposure{exposure}").glob("*.jpg"))}

    names = sorted(set.intersection(*(set(photos("free", exposure)) for exposure in range(1, 7))))
    np.random.default_rng(0).shuffle(names)
    third = len(names) // 3
    first, second = names[2 * third :], names[third : 2 * third]
    at_source = photos("free", source)
    detector = Detector.fit([at_source[name] for name in names[:third]], Config.preset("embedded-fast"))
    plain = judged(detector, [at_source[name] for name in second])
    lines = {}
    for exposure in (source, 1, 2, 5, 6):
        changed = judged(detector, [photos("free", exposure)[name] for name in first])
        what = "nothing" if exposure == source else f"real exposure {exposure} instead of {source}"
        lines[f"tile: {what}"] = (plain, changed, [])
    broken = [path for kind in DEFECTS for path in photos(kind, source).values()]
    lines[f"tile: {len(broken)} defects among the good ones"] = (
        plain,
        judged(detector, [at_source[name] for name in first]),
        judged(detector, broken),
    )
    return detector, lines


def real(detector: Detector, before: Numbers, good: Numbers, broken: Numbers, runs: int) -> Counter:
    found = Counter()
    for run in range(runs):
        random = np.random.default_rng((run, 5))
        after = good + broken
        monitor = DriftMonitor(detector.normals, flag_rate=detector.false_alarm_rate, seed=run)
        monitor.extend(before[i] for i in random.permutation(len(before)))
        monitor.extend(after[i] for i in random.permutation(len(after)))
        found[monitor.state().verdict] += 1
    return found


def cells(found: Counter, runs: int) -> str:
    return " | ".join(f"{found[verdict] / runs:.0%}" if found[verdict] else "" for verdict in COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    lines = [
        "Verdicts of `DriftMonitor` at its defaults on other lines than those its bets were chosen on, "
        f"{given.runs} runs each; made by",
        f"`benchmarks/drift_unseen.py DATA --runs {given.runs}`. `truth` is what was simulated.",
    ]
    for normals, before in ((50, 500), (20, 0)):
        lines += ["", f"### Simulated: {normals} held-out normals, {before} good parts before the change", ""]
        lines += [f"| change | truth | {' | '.join(COLUMNS.values())} |", "| --- " * (2 + len(COLUMNS)) + "|"]
        for place, (name, (truth, *_)) in enumerate(SIMULATED.items()):
            found = simulated(name, place, normals, before, given.runs)
            lines.append(f"| {name} | {truth} | {cells(found, given.runs)} |")
            print(lines[-1], flush=True)
    if given.data:
        lines += ["", "### Real photos, `embedded-fast`", ""]
        lines += [
            f"| line | held-out normals | good before | good after, flagged | {' | '.join(COLUMNS.values())} |",
            "| --- " * (4 + len(COLUMNS)) + "|",
        ]
        for detector, found in (
            bottles(given.data / "mvtec_256" / "bottle"),
            tiles(given.data / "magnetic_tile"),
        ):
            for name, (before, good, broken) in found.items():
                flagged = np.mean([each["score"] > detector.threshold for each in good])
                verdicts = cells(real(detector, before, good, broken, given.runs), given.runs)
                held_out = len(detector.normals["score"])
                lines.append(f"| {name} | {held_out} | {len(before)} | {len(good)}, {flagged:.0%} | {verdicts} |")
                print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
