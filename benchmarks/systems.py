"""Every system of the comparison, bare and wearing the filter, as it is and under real shifts.

    python benchmarks/systems.py SCRATCH --data DATA [--sets exposure1 block demo] [--systems nfad-embedded …]
        [--resnet FILE] [--normals 60] [--photos 20] [--seeds 54] [--write]

DATA holds magnetic_tile/ and screw_block/ (see verdict.py). Each system is fitted on the same normals (three of ten
held out for its threshold, at 5 %) and judges the same photos. The embedded networks stand in for the papers' larger
ones, trainings are cut to minutes; --resnet names resnet50_v1_imagenet.safetensors, on which PatchCore and RD4AD run.
Times are ratios to one pass of the embedded CNN over a photo, measured in the same minute. Finished cells stay in
SCRATCH. --write puts results/systems.csv and, from it, results/systems.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from verdict import datasets

from nfad import Config, Detector
from nfad.evaluation.evaluate import evaluate
from nfad.evaluation.tally import METRICS
from nfad.fitting.calibration import split
from nfad.paper.cells import fingerprint, ready_for_json
from nfad.paper.plugins import fit_host, judged_by, views_of, worn
from nfad.records import Dataset
from nfad.system.platform import keep_freed_memory
from nfad.system.results import ResultCache
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results"
OURS = ("nfad-embedded-both", "nfad-embedded")  # whichever is measured: others are held against it
RANK = 16
FORMAT = 1
# preset, host ("" for our own detector), steps of a training
SYSTEMS: dict[str, tuple[str, str, int | None]] = {
    "nfad-embedded-both": ("embedded-both", "", None),
    "nfad-embedded": ("embedded", "", None),
    "nfad-embedded-fast": ("embedded-fast", "", None),
    "patchcore": ("embedded-fast", "patchcore", None),
    "anomalydino": ("embedded-fast", "anomalydino", None),
    "subspacead": ("embedded-fast", "subspacead", None),
    "rad": ("embedded-fast", "rad", None),
    "rd4ad": ("embedded-fast", "rd4ad", None),
    "recontrast": ("embedded-fast", "recontrast", None),
    "uniad": ("embedded-fast", "uniad", None),
    "dinomaly": ("embedded-fast", "dinomaly", None),
    "mmr": ("embedded-fast", "mmr", None),
    "patchcore-resnet50": ("resnet", "patchcore", None),
    "rd4ad-resnet50": ("resnet", "rd4ad", 100),
}
ERRORS = ("false_alarms", "detections", "verdict_error", "good_not_judged", "bad_not_judged")
BOUNDED = ("i_auroc", "aupro", "false_alarms", "detections")
FIELDS = (
    "set", "domain", "system", "arm", "seed", "normals", "good", "bad", *METRICS, *ERRORS,
    *(f"{name}_{side}" for name in BOUNDED for side in ("low", "high")),
    "less_ours", "less_ours_low", "less_ours_high", "fit_ratio", "inference_ratio",
)  # fmt: skip


def some(dataset: Dataset, normals: int, photos: int) -> Dataset:
    """So many training photos, and so many good and bad ones in each light, the same each time."""

    def chosen(samples: list, count: int) -> list:
        return [samples[i] for i in sorted(np.random.default_rng(0).permutation(len(samples))[:count])]

    test = []
    for domain in dict.fromkeys(sample.domain for sample in dataset.test):
        for bad in (False, True):
            test += chosen([s for s in dataset.test if s.domain == domain and s.anomalous == bad], photos)
    return replace(dataset, train=tuple(chosen(list(dataset.train), normals)), test=tuple(test))


def config_of(preset: str, seed: int, resnet: Path | None) -> Config:
    if preset != "resnet":
        return Config.preset(preset, seed=seed, false_alarm_rate=0.05)
    changes = {"teacher": "resnet50-v1", "weights": str(resnet), "false_alarm_rate": 0.05, "seed": seed}
    return Config.preset("embedded-fast", **changes)


def measure(name: str, dataset: Dataset, config: Config) -> dict:
    """Rows by domain with both arms, resamples, and times in passes of the embedded CNN."""
    _, host, steps = SYSTEMS[name]
    started = time.perf_counter()
    if not host:
        detector = Detector.fit([sample.path for sample in dataset.train], config)
        fitted = time.perf_counter() - started
        found = evaluate(detector, dataset.test)
        result = ready_for_json(found.rows, found.resamples, found)
        one = lambda views: detector.predict_views(views)  # noqa: E731
    else:
        config = config.changed(acquisitions=0)
        normals = views_of(dataset.train, config)
        held, fit = split(len(normals), config)
        bare = fit_host(host, normals[fit], config, steps)
        fitted = time.perf_counter() - started
        arms = {"bare": bare, "filtered": worn(bare, RANK, normals[fit], config)}
        result = judged_by(arms, normals[held], dataset.test, config)
        one = bare.score
    views = views_of(dataset.test[:4], config)
    a_pass = cnn_pass(views)
    return result | {"fit_ratio": fitted / a_pass, "inference_ratio": seconds(lambda: one(views)) / len(views) / a_pass}


def cnn_pass(views: torch.Tensor) -> float:
    """Seconds of one photo through the embedded CNN."""
    teacher = load_teacher("embedded-cnn", None, (2, 3), (), views.shape[-1])
    return seconds(lambda: teacher.tokens(views)) / len(views)


def seconds(work: Callable[[], object]) -> float:
    """The least of three: other programs only ever add."""
    work()
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def lines_of(key: tuple, result: dict, ours: dict | None) -> list[dict]:
    """A line a domain and arm; its image AUROC less that of our own filtered arm, by paired resamples."""
    (set_, system, seed, normals), lines = key, []
    for row in result["rows"]:
        for arm, found in row["arms"].items():
            if arm == "full":
                continue
            line = {
                "set": set_,
                "domain": row["domain"],
                "system": system,
                "arm": arm,
                "seed": seed,
                "normals": normals,
            }
            line |= {"good": row["good"], "bad": row["bad"], **{name: found[name] for name in (*METRICS, *ERRORS)}}
            for name in BOUNDED:
                line[f"{name}_low"], line[f"{name}_high"] = found["intervals"][name]
            line |= {name: result[name] for name in ("fit_ratio", "inference_ratio")}
            if ours is not None:
                drawn = [np.array(each["resamples"][row["domain"]][which]["i_auroc"], dtype=float)
                         for each, which in ((result, arm), (ours, "filtered"))]  # fmt: skip
                base = next(each for each in ours["rows"] if each["domain"] == row["domain"])["arms"]["filtered"]
                if None not in (found["i_auroc"], base["i_auroc"]) and len(drawn[0]) == len(drawn[1]):
                    line["less_ours"] = found["i_auroc"] - base["i_auroc"]
                    line["less_ours_low"], line["less_ours_high"] = np.nanquantile(drawn[0] - drawn[1], [0.025, 0.975])
            lines.append(line)
    return lines


def told(lines: list[dict]) -> str:
    """A table a set and domain, most called rightly first; bold where the paired interval excludes zero."""
    parts = ["# Every system, as it is and under real shifts", "", __doc__.split("\n\n")[2].strip(), ""]
    parts += [
        "Per cent. *Less ours*: image AUROC less that of our own filtered arm (nfad-embedded-both, or nfad-embedded "
        "where that was not measured), with its paired 95 % interval; **bold** where it excludes zero. A verdict error "
        "is (good flagged + bad passed) / 2; what is not judged is neither, and not *called rightly* either, by which "
        "the tables are ordered.",
        "",
    ]  # fmt: skip
    for place in dict.fromkeys((line["set"], line["domain"]) for line in lines):
        here = [line for line in lines if (line["set"], line["domain"]) == place]
        parts += [f"## {place[0]}, {place[1]} ({here[0]['good']} good, {here[0]['bad']} bad)", ""]
        heads = ("I-AUROC", "I-AP", "I-F1", "P-AUROC", "P-AP", "P-F1", "AUPRO", "good flagged", "bad found")
        heads = (
            "system",
            "arm",
            *heads,
            "verdict error",
            "not judged",
            "called rightly",
            "less ours",
            "fit",
            "a photo",
        )
        parts += ["| " + " | ".join(heads) + " |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
        for line in sorted(here, key=lambda line: (-rightly(line), line["system"])):
            cells = [percent(line[name]) for name in (*METRICS, "false_alarms", "detections", "verdict_error")]
            less = ""
            if line.get("less_ours") not in (None, ""):
                low, high = number(line["less_ours_low"]), number(line["less_ours_high"])
                less = f"{100 * number(line['less_ours']):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
                less = f"**{less}**" if low > 0 or high < 0 else less
            refused = f"{line['good_not_judged']} + {line['bad_not_judged']} | {percent(rightly(line))}"
            times = [f"{number(line['fit_ratio']):,.0f}×", f"{number(line['inference_ratio']):.1f}×"]
            parts.append("| " + " | ".join([line["system"], line["arm"], *cells, refused, less, *times]) + " |")
        parts.append("")
    return "\n".join(parts)


def rightly(line: dict) -> float:
    """Mean of the shares of good parts called good and of bad ones called bad: what is not judged is neither."""
    good = 1 - number(line["false_alarms"]) - number(line["good_not_judged"]) / max(number(line["good"]), 1)
    return (good + number(line["detections"])) / 2


def number(value: object) -> float:
    return float("nan") if value in (None, "") else float(str(value))


def percent(value: object) -> str:
    return "–" if number(value) != number(value) else f"{100 * number(value):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=("exposure1", "block", "demo"))
    parser.add_argument("--systems", nargs="+", default=tuple(SYSTEMS))
    parser.add_argument("--resnet", type=Path)
    parser.add_argument("--normals", type=int, default=60)
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--seeds", default="54")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    args.scratch.mkdir(parents=True, exist_ok=True)
    cache = ResultCache(args.scratch / "systems-cells")
    lines: list[dict] = []
    for name in args.sets:
        dataset = some(datasets(args.data, args.scratch, [name])[0], args.normals, args.photos)
        for seed in map(int, args.seeds.split(",")):
            ours, base = None, next((each for each in OURS if each in args.systems), "")
            for system in sorted(args.systems, key=lambda each: each != base):
                preset, _, steps = SYSTEMS[system]
                if preset == "resnet" and args.resnet is None:
                    continue
                config = config_of(preset, seed, args.resnet)
                settings = {
                    "format": FORMAT, "system": system, "images": fingerprint(dataset), "steps": steps, "rank": RANK,
                    "config": json.loads(json.dumps(config.changed(weights=None).as_dict())),
                }  # fmt: skip
                result = cache.get(settings)
                if result is None:
                    result = measure(system, dataset, config)
                    cache.put(settings, result)
                ours = result if system == base else ours
                lines += lines_of((name, system, seed, len(dataset.train)), result, ours)
                print(name, system, seed, flush=True)
                if args.write:  # after every system: an interrupted run leaves what it has
                    write(lines)


def write(lines: list[dict]) -> None:
    """Lines of other sets, systems and seeds that stand in the file stay."""
    path = RESULTS / "systems.csv"
    kept: list[dict] = []
    own = {(line["set"], line["system"], str(line["seed"])) for line in lines}
    if path.is_file():
        with path.open(newline="") as file:
            kept = [line for line in csv.DictReader(file) if (line["set"], line["system"], line["seed"]) not in own]
    every = sorted([*kept, *lines], key=lambda line: (line["set"], str(line["seed"]), line["system"]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for line in every:
            short = {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in line.items()}
            writer.writerow(short)
    (RESULTS / "systems.md").write_text(told(every) + "\n")


if __name__ == "__main__":
    main()
