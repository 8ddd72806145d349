"""What verdicts are worth under a shift: `nfad benchmark verdict` on all that the data folder holds.

    python benchmarks/verdict.py SCRATCH --data DATA [--preset embedded] [--sets bottle block …] [--write]

DATA holds mvtec_256/, magnetic_tile/ and screw_block/; the block's photos are cut into their four places and sorted by
lamp, and the demo set is rendered, both into SCRATCH. 60 normals a fit, 30 good and 30 bad photos tested in each light,
thresholds at 5 %. Finished cells stay in SCRATCH/cells. With --write the tables go to results/verdict-<preset>.md and
.csv, and their figure to results/verdict-<preset>.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from nfad import Config
from nfad.data.catalog import load
from nfad.data.demo import write_demo
from nfad.paper.verdict import METHODS, SEEDS, cells_of, run_verdicts
from nfad.paper.verdict_figure import draw
from nfad.paper.verdict_rows import written
from nfad.records import Dataset
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache

RESULTS = Path(__file__).parent / "results"
SETS = ("bottle", "screw", "transistor", *(f"exposure{n}" for n in range(1, 7)), "block", "demo")
PLACES = ((5, 69, 261, 326), (305, 69, 561, 326), (5, 429, 261, 686), (325, 429, 581, 686))
WARM, BLUISH = 2.6, 1.6  # mean red / blue of a photo: a warm lamp above, a bluish one below, else both


def block(photos: Path, folder: Path) -> Path:
    """Good crops in warm light to fit on, every fourth of them kept for the test; holes and other lamps to test."""
    if folder.exists():
        return folder
    for number, path in enumerate(sorted(photos.glob("*.jpg"))):
        photo = Image.open(path).convert("RGB")
        red, _, blue = np.asarray(photo).reshape(-1, 3).mean(axis=0)
        lamp = "warm" if red / blue >= WARM else "bluish" if red / blue < BLUISH else "mixed"
        for place, (box, bit) in enumerate(zip(PLACES, path.stem.split("_")[1], strict=True)):
            kind = "good" if bit == "1" else "missing"
            fitted = kind == "good" and lamp == "warm" and number % 4
            to = folder / ("train/good" if fitted else f"test/{kind}/{lamp}") / f"{path.stem}-{place}.png"
            to.parent.mkdir(parents=True, exist_ok=True)
            photo.crop(box).save(to)
    return folder


def datasets(data: Path, scratch: Path, names: list[str]) -> list[Dataset]:
    found: list[Dataset] = []
    for name in names:
        if name == "demo":
            write_demo(scratch / "demo")
            found += load("demo", scratch / "demo")
        elif name == "block":
            found += load("folder", block(data / "screw_block", scratch / "block"))
        elif name.startswith("exposure"):
            found += load("magnetic-tile", data / "magnetic_tile", [name])
        else:
            found += load("mvtec-ad", data / "mvtec_256", [name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="embedded")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--name", help="of the files that --write leaves, in place of the preset's")
    parser.add_argument("--cut", action="store_true", help="only cut the block's photos into SCRATCH/block")
    args = parser.parse_args()
    keep_freed_memory()
    args.scratch.mkdir(parents=True, exist_ok=True)
    if args.cut:
        block(args.data / "screw_block", args.scratch / "block")
        return
    seeds = [int(seed) for seed in args.seeds.split(",")]
    config = Config.preset(args.preset, false_alarm_rate=0.05)
    by_name = {name: datasets(args.data, args.scratch, [name]) for name in SETS}  # all are strangers to each other
    every = cells_of([each for name in SETS for each in by_name[name]], config, args.methods, seeds, 60, 30)
    cells = [cell for name in args.sets for cell in every if cell.dataset in by_name[name]]
    said = [""]

    def report(task: str, done: int, total: int) -> None:
        if task != said[0]:
            said[0] = task
            print(f"  {task} ({total})", flush=True)

    results = run_verdicts(
        cells, ResultCache(args.scratch / "cells"), report, lambda done, total: print(f"{done} of {total}", flush=True)
    )
    told = (
        f"--sets {' '.join(args.sets)} --methods {' '.join(repr(name) for name in args.methods)} --seeds {args.seeds}"
    )
    note = f"`python benchmarks/verdict.py SCRATCH --data DATA --preset {args.preset} {told}`; 60 normals a fit"
    text, rows = written(cells, results, [note])
    print(text)
    if args.write:
        name = args.name or args.preset
        for suffix, contents in ((".md", text), (".csv", rows)):
            (RESULTS / f"verdict-{name}{suffix}").write_text(contents)
        draw(cells, results, RESULTS / f"verdict-{name}.png")


if __name__ == "__main__":
    main()
