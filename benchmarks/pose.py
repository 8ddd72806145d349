"""Which parts a fit turns, which photos it steadies, how still either lies under acquisitions, and what it costs.

    python benchmarks/pose.py SCRATCH --data DATA [--sets screw bottle …] [--normals 60]

DATA and SCRATCH are as in verdict.py. Unlikeness is told as taken and turned: a fit turns its parts where it is 0.1 at
the least and falls to a third or less; and of photos by a nudged camera, before and after they are steadied: a fit
steadies its photos where half or less is left. Then every normal is found again under four acquisitions, and the box's
corner that moved farthest is counted in pixels of the view; "elsewhere" are boxes more than 12 pixels away. Time is
that of finding and turning or steadying, of one photo's two networks in the same run. Written to results/pose.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from verdict import datasets

from nfad import Config
from nfad.fitting.posing import ALIKE, MOVED, STEADIED, TURNED, drawn, drawn_whole, unlikeness
from nfad.fitting.views import seeded
from nfad.presets import DEFAULT
from nfad.vision.acquisitions import acquired
from nfad.vision.images import load_part, to_view
from nfad.vision.nudging import nudged
from nfad.vision.pose import Boxes, Pose
from nfad.vision.tiles import tiled_teacher

RESULTS = Path(__file__).parent / "results" / "pose.md"
SETS = ("screw", "bottle", "transistor", "exposure1", "block", "demo")
ACQUISITIONS, ELSEWHERE, REPEATS = 4, 12, 10
HEAD = (
    "| set | unlikeness as taken | turned | nudged | steadied | | corner moved, median / 95 % | elsewhere "
    "| of the networks' time |\n" + "| --- " * 9 + "|\n"
)


def corners(boxes: Boxes) -> Tensor:
    return torch.tensor([[x, y, 1.0] for x in (-1, 1) for y in (-1, 1)]) @ boxes.mT


def moved(pose: Pose, views: Tensor) -> np.ndarray:
    """Pixels by which acquisitions move the box's corners, the farthest of each."""
    here, found = corners(pose.found(views)), []
    for again in range(ACQUISITIONS):
        lit = [acquired(view, seeded(54, index + again * len(views)))[0] for index, view in enumerate(views)]
        found.append((corners(pose.found(torch.stack(lit))) - here).norm(dim=2).amax(dim=1))
    return torch.cat(found).numpy() * views.shape[-1] / 2


def seconds(work: Callable[[Tensor], object], view: Tensor) -> float:
    work(view)
    begun = time.perf_counter()
    for _ in range(REPEATS):
        work(view)
    return (time.perf_counter() - begun) / REPEATS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--normals", type=int, default=60)
    given = parser.parse_args()
    config, rows = Config.preset(DEFAULT), []
    teachers = [tiled_teacher(*look.sight) for look in config.looks]
    for name in given.sets:
        [dataset] = datasets(given.data, given.scratch, [name])[:1]
        order = np.random.default_rng(54).permutation(len(dataset.train))[: given.normals]
        seen = [to_view(load_part(dataset.train[i].path), config.size, None) for i in sorted(order)]
        views = torch.stack([view for view, _ in seen])
        with torch.inference_mode():
            ratio = float(np.median([geometry.ratio for _, geometry in seen]))
            pose, whole = drawn(views, ratio), drawn_whole(views, ratio)
            nudges = nudged(views, torch.Generator().manual_seed(config.seed))
            taken, turned = unlikeness(views), unlikeness(pose.turned(views)[0])
            before, after = unlikeness(nudges), unlikeness(whole.turned(nudges)[0])
            row = f"| {name} | {taken:.2f} | {turned:.2f} | {before:.2f} | {after:.2f} |"
            if taken < ALIKE or turned > TURNED * taken:
                pose = whole if before >= MOVED and after <= STEADIED * before else None
            if pose is None:
                row += " as taken | – | – | – |"
            else:
                away = moved(pose, views)
                middle, most = np.percentile(away, [50, 95])
                networks = sum(seconds(teacher.tokens, views[:1]) for teacher in teachers)
                row += f" {pose.name} | {middle:.2f} / {most:.2f} px | {(away > ELSEWHERE).sum()} of {len(away)} "
                row += f"| {seconds(pose.turned, views[:1]) / networks:.2f} |"
        rows.append(row)
        print(row, flush=True)
    command = f"`python benchmarks/pose.py SCRATCH --data DATA --sets {' '.join(given.sets)}`; {given.normals} normals"
    threads = f"{torch.get_num_threads()} threads"
    RESULTS.write_text(f"# How parts lie\n\n{command}; {threads}\n\n{HEAD}" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
