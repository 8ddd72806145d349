"""Why models break under small shifts: what fills the strip that comes into sight, and the teacher's grid.

    python benchmarks/shifts.py SCRATCH [--data DATA] [--sets demo bottle …] [--fresh 40] [--write]

The demo set is rendered into SCRATCH; the other sets need DATA, which holds mvtec_256/ and magnetic_tile/. A model is
fitted on at most 80 normals of a set and judges others of it, their views moved by whole pixels. Thresholds are those
of held-out normals, unmoved, at 5 %. Each cell: control → filtered. With --write the tables go to results/shifts.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nfad import Config, Detector
from nfad.data.catalog import load
from nfad.data.demo import write_demo
from nfad.system.platform import keep_freed_memory
from nfad.vision.images import load_part, to_view
from nfad.vision.maps import image_score
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results" / "shifts.md"
FITTED, RATE, SIZE, FAR = 80, 0.05, 256, 12
SETS = {
    "demo": ("demo", "demo", None),
    "bottle": ("mvtec-ad", "mvtec_256", "bottle"),
    "screw": ("mvtec-ad", "mvtec_256", "screw"),
    "tile": ("magnetic-tile", "magnetic_tile", "exposure1"),
}
ON_GRID = ("demo", "bottle")  # one whose parts all lie in the same place, and one whose parts do not
FILLS = ("mirrored", "edge drawn out", "4 px folded")
WAYS = ((FAR, 0), (-FAR, 0), (0, FAR), (0, -FAR))  # right and down
MARGINS = (0, 8, 16, 32)  # px beside the strip that are not judged either
TOKEN = 16  # px: what `nfad stress` leaves out beside the strip
ALL = "all judged"
DOWN = (0, 4, 8, 12, 16, 20, 24, 28, 32)
ARMS = {"without the filter": "control", "with the filter": "detection"}


def shown_at(places: np.ndarray, fill: str) -> np.ndarray:
    """Which row or column of the view is seen at each place, of which some lie beyond its ends."""
    beyond = np.maximum(-places, 0) + np.maximum(places - (SIZE - 1), 0)
    inward = {"mirrored": beyond, "edge drawn out": 0 * beyond, "4 px folded": abs((beyond + 3) % 6 - 3)}[fill]
    return np.where(places < 0, inward, np.where(places >= SIZE, SIZE - 1 - inward, places))


def moved(views: Tensor, right: int, down: int, fill: str = "mirrored") -> Tensor:
    rows, columns = (torch.from_numpy(shown_at(np.arange(SIZE) - by, fill)) for by in (down, right))
    return views[:, :, rows][..., columns]


def strip(right: int, down: int, margin: int) -> Tensor:
    """Where the moved view was made up, and so many pixels beside that."""

    def along(by: int) -> np.ndarray:
        places = np.arange(SIZE) if by > 0 else np.arange(SIZE)[::-1]
        return places < abs(by) + margin if by else places < 0

    return torch.from_numpy(along(down)[:, None] | along(right))


def maps_of(detector: Detector, views: Tensor) -> dict[str, Tensor]:
    found = [detector.predict_tensor(batch).maps for batch in views.split(detector.config.batch)]
    return {arm: torch.cat([maps[arm] for maps in found]) for arm in ARMS.values()}


def scores(maps: Tensor, left_out: Tensor, top: float) -> np.ndarray:
    return image_score(maps.masked_fill(left_out, -torch.inf), top).numpy()


def thresholds(detector: Detector) -> dict[str, float]:
    filtered, control = detector.held_out.at(RATE)
    return {"detection": filtered, "control": control}


def arrow(values: Sequence[float], form: str = ".0%") -> str:
    return " → ".join(f"{value:{form}}" for value in values)


def filled(detector: Detector, views: Tensor) -> Iterator[dict[str, str]]:
    """A set's rows of the table about what fills the strip: one a filling."""
    limit, top, nothing = thresholds(detector), detector.config.top_fraction, strip(0, 0, 0)
    still = maps_of(detector, views)
    as_is = arrow([(scores(still[arm], nothing, top) > limit[arm]).mean() for arm in ARMS.values()])
    flagged: dict[tuple[str, str, int | None], list[np.ndarray]] = {}
    within: dict[tuple[str, str], list[float]] = {}
    for (right, down), fill in product(WAYS, FILLS):
        there = strip(right, down, TOKEN - FAR).flatten()
        for arm, maps in maps_of(detector, moved(views, right, down, fill)).items():
            for margin in (None, *MARGINS):
                left_out = nothing if margin is None else strip(right, down, margin)
                flagged.setdefault((arm, fill, margin), []).append(scores(maps, left_out, top) > limit[arm])
            highest = maps.flatten(1).topk(int(top * SIZE * SIZE), dim=1).indices
            within.setdefault((arm, fill), []).append(float(there[highest].float().mean()))
    hits = {key: np.concatenate(found) for key, found in flagged.items()}
    for fill in FILLS:
        row = {"filling": fill, "as they are": as_is}
        row["of its highest pixels in the strip"] = arrow([np.mean(within[arm, fill]) for arm in ARMS.values()])
        for margin in (None, *MARGINS):
            row[ALL if margin is None else f"and {margin} px" if margin else "without the strip"] = arrow(
                [hits[arm, fill, margin].mean() for arm in ARMS.values()]
            )
        unlike = [(hits[arm, fill, TOKEN] != hits[arm, FILLS[0], TOKEN]).mean() for arm in ARMS.values()]
        yield row | {f"unlike {FILLS[0]}": arrow(unlike)}


def by_pixels(detector: Detector, views: Tensor) -> Iterator[dict[str, str]]:
    """A set's rows of the table about the grid: one an arm."""
    limit = thresholds(detector)
    found = {by: maps_of(detector, moved(views, 0, by)) for by in DOWN}
    for words, arm in ARMS.items():
        held = detector.normals["unfiltered_score" if arm == "control" else "score"]
        row = {"": words, "threshold": f"{limit[arm]:.1f}", "held-out spread": f"{np.std(held):.2f}"}
        for by in DOWN:
            values = scores(found[by][arm], strip(0, by, TOKEN), detector.config.top_fraction)
            row[f"{by} px"] = f"{np.median(values):.1f}, {np.mean(values > limit[arm]):.0%}"
        yield row


def normals(name: str, scratch: Path, data: Path | None, fresh: int) -> tuple[list[Path], list[Path]]:
    """To fit on, and others to judge: the rest of the training images, or else the good test images."""
    reader, folder, category = SETS[name]
    if name == "demo":
        root = write_demo(scratch / "demo", train=FITTED + fresh)
    elif data is None:
        raise SystemExit(f"{name} needs --data")
    else:
        root = data / folder
    [dataset] = load(reader, root, category and [category])
    train = [each.path for each in dataset.train]
    test = [each.path for each in dataset.test if not each.anomalous and each.domain in ("same", category)]
    return train[:FITTED], (train[FITTED:] if len(train) >= FITTED + fresh else test)[:fresh]


def fitted(preset: str, name: str, paths: Sequence[Path]) -> Detector:
    config = Config.preset(preset, false_alarm_rate=RATE, foreground=preset == "embedded" and name == "demo")
    teacher = load_teacher(config.teacher, None, config.blocks, config.prior_blocks, config.size)
    return Detector.fit(paths, config, teacher=teacher)


def table(rows: Sequence[dict[str, str]]) -> str:
    lines = [f"| {' | '.join(rows[0])} |", "| --- " * len(rows[0]) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.values())} |" for row in rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["demo"], choices=SETS)
    parser.add_argument("--fresh", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    started, strips, grid = time.monotonic(), [], []
    for name in given.sets:
        train, fresh = normals(name, given.scratch, given.data, given.fresh)
        views = torch.stack([to_view(load_part(path), SIZE, None)[0] for path in fresh])
        of_set = {"set": name, "images": str(len(views))}
        strips += [of_set | row for row in filled(fitted("embedded-fast", name, train), views)]
        print(*strips[-len(FILLS) :], sep="\n", flush=True)
        if name in ON_GRID:
            grid += [of_set | row for row in by_pixels(fitted("embedded", name, train), views)]
            print(*grid[-2:], sep="\n", flush=True)
    text = told(strips, grid, given, (time.monotonic() - started) / 60)
    if given.write:
        RESULTS.write_text(text, encoding="utf-8")
    else:
        print(text)


def told(strips: list, grid: list, given: argparse.Namespace, minutes: float) -> str:
    data = " --data DATA" if given.data else ""
    command = f"python benchmarks/shifts.py SCRATCH{data} --sets {' '.join(given.sets)} --fresh {given.fresh} --write"
    text = (
        f"# Small shifts\n\n`{command}`, {minutes:.0f} minutes with one thread. False alarms at a rate of {RATE:.0%}, "
        "control → filtered.\n\n"
        f"## What fills the strip\n\n`embedded-fast`, views moved by {FAR} px in each of the four directions. Of its "
        f"highest pixels in the strip: how much of the top 1 % lies in the {TOKEN} px that begin with the strip. "
        "Without the strip and so many pixels beside it: these are not judged. Unlike mirrored: images judged "
        f"otherwise with this filling, {TOKEN} px left out.\n\n"
        f"{table(strips)}"
    )
    if not grid:
        return text
    return (
        f"{text}\n## The teacher's grid\n\n`embedded` (demo: with `--foreground`), views moved down, mirrored, the "
        f"strip and 16 px beside it not judged: median score, share flagged.\n\n{table(grid)}"
    )


if __name__ == "__main__":
    main()
