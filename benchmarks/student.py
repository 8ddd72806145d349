"""The paper's own student on real photos: embedded ViT as teacher, the paper's order and settings, short schedules.

    python benchmarks/student.py SCRATCH --data DATA [--sets block …] [--students untrained-tiny …] [--epochs 20]
        [--tables detection-ablation …] [--normals 60] [--photos 20] [--seed 54] [--write]

DATA holds mvtec_256/, magnetic_tile/ and screw_block/ (see verdict.py for the sets). A student is trained once a set
and serves every table; it and all finished cells stay in SCRATCH, where an interrupted run goes on. The references
`linear` and `nearest` stand beside it in the same order of fitting and filtering. --write puts one CSV a table into
results/student/. Ten minutes to an hour a set and student on an idle core; the paper trains 200 epochs on all normals.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from systems import some
from verdict import datasets

from nfad import Config
from nfad.paper.running import run_table, table_named
from nfad.paper.table import Options
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache

RESULTS = Path(__file__).parent / "results" / "student"
SETS = ("exposure1", "bottle", "screw", "transistor", "block", "demo")
STUDENTS = ("untrained-tiny", "untrained-small", "embedded-vit")
TABLES = (
    "detection-ablation", "localization-ablation", "basis", "incidence", "rank", "mechanism", "entanglement", "visa-c",
)  # fmt: skip
ABOUT = ("set", "reference", "epochs", "normals", "photos", "seed")
FIELDS = (*ABOUT, "row", "column", "value", "low", "high", "paper", "strong")


def config_of(reference: str, epochs: int, seed: int) -> Config:
    """The paper's settings but for the teacher, fewer pairs, and enough normals held out to state a rate of 5 %."""
    common = {
        "teacher": "embedded-vit",
        "pairs": 12,
        "holdout": 0.3,
        "false_alarm_rate": 0.05,
        "seed": seed,
        "batch": 8,
    }
    if reference in ("linear", "nearest"):
        return Config.preset("paper", reference=reference, **common)
    return Config.preset("paper", student=reference, epochs=epochs, **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--students", nargs="+", default=[*STUDENTS, "linear", "nearest"])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--normals", type=int, default=60)
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--seed", type=int, default=54)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    args.scratch.mkdir(parents=True, exist_ok=True)
    cache = ResultCache(args.scratch / "student-cells")
    for name in args.sets:
        [whole] = datasets(args.data, args.scratch, [name])
        dataset = some(whole, args.normals, args.photos)
        shifted = len({sample.domain for sample in dataset.test}) > 1
        for table in map(table_named, args.tables):
            if table.needs == "domains" and not shifted:
                continue
            for reference in args.students:
                config = config_of(reference, args.epochs, args.seed)
                entries = run_table(table, [dataset], config, Options(severities=(3,)), cache)
                print(f"{name} {table.name} {reference}", flush=True)
                if args.write:
                    epochs = 0 if reference in ("linear", "nearest") else args.epochs
                    about = (name, reference, epochs, args.normals, args.photos, args.seed)
                    keep(RESULTS / f"{table.name}.csv", about, entries)


def keep(path: Path, about: tuple, entries: list) -> None:
    """The table's file with these lines in place of any of the same run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[list[str]] = []
    if path.is_file():
        with path.open(newline="") as file:
            lines = [line for line in list(csv.reader(file))[1:] if line[: len(about)] != [str(each) for each in about]]
    for entry in entries:
        numbers = ["" if value != value else f"{value:.5g}" for value in (entry.value, entry.low, entry.high)]
        paper = "" if entry.paper is None else str(entry.paper)
        lines.append([*map(str, about), entry.row, entry.column, *numbers, paper, str(int(entry.strong))])
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([FIELDS, *sorted(lines, key=lambda line: line[:6])])


if __name__ == "__main__":
    main()
