"""Photos as taken, all training photos: how well the default ranks, maps and judges, by seed.

    python benchmarks/clean.py SCRATCH --data DATA [--sets bottle screw transistor] [--preset embedded-all]
        [--seeds 54,1,42] [--write]

DATA holds mvtec_256/ (see verdict.py). Thresholds are at 5 %. Both arms are of one fit. Finished cells stay in SCRATCH;
--write puts results/clean-<preset>.md. A cell takes minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

from verdict import datasets

from nfad import Config, Detector
from nfad.evaluation.evaluate import evaluate
from nfad.paper.cells import fingerprint
from nfad.records import Dataset
from nfad.system.files import finite
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache

RESULTS = Path(__file__).parent / "results"
SETS, SEEDS, FORMAT = ("bottle", "screw", "transistor"), "54,1,42", 1
HEAD = (
    "| part | seed | arm | image AUROC | AUPRO | pixel F1 | good flagged | bad found | verdict error "
    "| not judged, good + bad |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


def measured(dataset: Dataset, config: Config) -> dict:
    """Numbers of both arms over all test photos."""
    detector = Detector.fit([sample.path for sample in dataset.train], config)
    row = evaluate(detector, dataset.test).rows[-1]
    arms = {name: vars(arm) for name, arm in row.arms.items() if name != "full"}  # which is the filtered one here
    return finite({"good": row.good, "bad": row.bad, "fitted": len(dataset.train), "arms": arms})


def line(part: str, seed: str, name: str, arm: dict) -> str:
    def percent(value: float, limits: tuple[float, float] | None = None) -> str:
        told = "–" if value is None else f"{100 * value:.1f}"
        return told if limits is None else f"{told} [{', '.join(f'{100 * each:.1f}' for each in limits)}]"

    limits = arm.get("intervals", {})
    ranked = [percent(arm[key], limits.get(key)) for key in ("i_auroc", "aupro")]
    judged = [percent(arm[key]) for key in ("p_f1", "false_alarms", "detections", "verdict_error")]
    refused = f"{arm['good_not_judged']:g} + {arm['bad_not_judged']:g}"
    return "| " + " | ".join([part, seed, name, *ranked, *judged, refused]) + " |\n"


def told(cells: list[tuple[str, int, dict]]) -> str:
    text = HEAD
    for part in dict.fromkeys(part for part, _, _ in cells):
        mine = [(seed, result) for name, seed, result in cells if name == part]
        for arm in ("unfiltered", "filtered"):
            text += "".join(line(part, str(seed), arm, result["arms"][arm]) for seed, result in mine)
            numbers = [key for key, value in mine[0][1]["arms"][arm].items() if isinstance(value, (int, float))]
            means = {key: fmean(result["arms"][arm][key] for _, result in mine) for key in numbers}
            text += line(f"**{part}**", f"mean of {len(mine)}", arm, means) if len(mine) > 1 else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--preset", default="embedded-all")
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    cache, cells = ResultCache(args.scratch / "clean-cells"), []
    for name in args.sets:
        [dataset] = datasets(args.data, args.scratch, [name])
        for seed in map(int, args.seeds.split(",")):
            config = Config.preset(args.preset, seed=seed, false_alarm_rate=0.05)
            shown = json.loads(json.dumps(config.as_dict()))
            settings = {"format": FORMAT, "measure": "clean", "images": fingerprint(dataset), "config": shown}
            result = cache.get(settings)
            if result is None:
                result = measured(dataset, config)
                cache.put(settings, result)
            cells.append((name, seed, result))
            print(name, seed, flush=True)
    sizes = {part: result for part, _, result in cells}
    photos = "; ".join(
        f"{part}: {r['fitted']} fitted, {r['good']} good and {r['bad']} bad" for part, r in sizes.items()
    )
    text = (
        "# Photos as taken, all training photos\n\nPer cent, 95 % intervals over test photos in brackets. "
        f"{photos}.\n\n`python benchmarks/clean.py SCRATCH --data DATA --preset {args.preset} "
        f"--sets {' '.join(args.sets)} --seeds {args.seeds}`\n\n{told(cells)}"
    )
    print(text)
    if args.write:
        (RESULTS / f"clean-{args.preset}.md").write_text(text)


if __name__ == "__main__":
    main()
