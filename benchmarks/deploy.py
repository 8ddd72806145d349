"""Exported models beside anomalib's and beside torch: latency, memory, size, what 8 bits change, the machine's limit.

    python benchmarks/deploy.py DATA SCRATCH [--rounds 12] [--only accuracy memory …]

One image at a time from uint8 pixels to a verdict, preprocessing included, every candidate in turn in each round of one
run. Exports stay in SCRATCH for the next run. With --only the other sections of the results stay as they are.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from functools import cached_property, partial
from pathlib import Path
from unittest import mock

import numpy as np
from limits import gflop, instructions, peak
from peers import SIZE, Judge, dinomaly, opened_peer, peers

from nfad import Config, Detector
from nfad.data.catalog import load
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.deploy.parity import LIMITS, Limits
from nfad.evaluation.metrics import image_metrics
from nfad.system.platform import keep_freed_memory, ready_for_openvino
from nfad.vision.images import load_part

RESULTS = Path(__file__).parent / "results" / "deploy.md"
OURS = {
    "NFAD CNN": "embedded-fast", "NFAD ViT": "embedded", "NFAD ViT and CNN": "embedded-both",
    "NFAD default": "embedded-all",
}  # fmt: skip
PRECISIONS = ("fp32", "int8")
FITTED = 60  # images of the embedded models, and of their calibration


def exported(model: Path, folder: Path, precision: str, normals: list[Path], backend: str = "openvino") -> Runtime:
    if not folder.exists():
        export(model, folder, Options(backend, precision), normals)
    return Runtime.load(folder)


def latencies(candidates: dict[str, Judge], pixels: list[np.ndarray], rounds: int) -> dict[str, list[float]]:
    """Seconds an image, of all rounds; within a round every candidate sees the same images."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for judge in candidates.values():
        for image in pixels[:2]:
            judge(image)
    for _ in range(rounds):
        for name, judge in candidates.items():
            for image in pixels:
                started = time.perf_counter()
                judge(image)
                times[name].append(time.perf_counter() - started)
    return times


def table(times: dict[str, list[float]], beside: str, rounds: int) -> list[str]:
    lines = [f"| | p50 | p95 | {beside} / it, p50 (lowest–highest round) |", "| --- | ---: | ---: | ---: |"]
    base = times[beside]
    for name, found in times.items():
        cut = len(found) // rounds
        ratios = [
            statistics.median(base[i * cut : (i + 1) * cut]) / statistics.median(found[i * cut : (i + 1) * cut])
            for i in range(rounds)
        ]
        p50, p95 = np.percentile(found, [50, 95]) * 1000
        spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
        lines.append(f"| {name} | {p50:.1f} ms | {p95:.1f} ms | **{statistics.median(ratios):.2f}** ({spread}) |")
    return lines


RESIDENT = """
import sys, numpy as np
from nfad.deploy import Runtime
runtime = Runtime.load(sys.argv[1])
for _ in range(5):
    runtime.predict(np.full((256, 256, 3), 127, np.uint8))
print(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
"""


def resident(folder: Path) -> float:
    """MiB of a process that holds the runtime and has judged."""
    done = subprocess.run([sys.executable, "-c", RESIDENT, folder], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def size_of(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 2**20


class Bench:
    """What the sections share: fitted once, exported once, timed once, and only if a section asks."""

    def __init__(self, data: Path, scratch: Path, rounds: int, without: list[str]) -> None:
        self.scratch, self.rounds, self.without = scratch, rounds, without
        [self.bottle] = load("mvtec-ad", data / "mvtec_256", ["bottle"])
        self.normals = [sample.path for sample in self.bottle.train]
        self.pixels = [load_part(path) for path in self.normals[:8]]

    @cached_property
    def models(self) -> dict[str, Path]:
        return {title: self.fitted(preset, FITTED, Config.preset(preset)) for title, preset in OURS.items()}

    @cached_property
    def detectors(self) -> dict[str, Detector]:
        return {title: Detector.load(path) for title, path in self.models.items()}

    @cached_property
    def runtimes(self) -> dict[str, Runtime]:
        return {
            f"{title} {precision}": exported(path, self.folder(title, precision), precision, self.normals[:FITTED])
            for title, path in self.models.items()
            for precision in PRECISIONS
        }

    @cached_property
    def times(self) -> dict[str, list[float]]:
        """Of the embedded models and their peers."""
        candidates: dict[str, Judge] = {
            name: opened_peer(make, self.scratch / re.sub(r"\W+", "-", name), SIZE) for name, make in peers().items()
        }
        candidates |= {name: runtime.predict for name, runtime in self.runtimes.items()}
        candidates |= {f"{title} torch": detector.predict for title, detector in self.detectors.items()}
        return latencies(candidates, self.pixels, self.rounds)

    @cached_property
    def pair(self) -> Detector:
        """A teacher and a student of the paper's size; its weights are random, which does not change what it costs."""
        untrained = {"teacher": "vit_base_patch16_224", "weights": "untrained"}
        config = Config.preset("paper", **untrained, student="untrained-vit_base_patch16_224", epochs=1)
        return Detector.load(self.fitted("vit-b-pair", 12, config))

    @cached_property
    def pair_times(self) -> dict[str, list[float]]:
        judges: dict[str, Judge] = {"ViT-B pair torch": self.pair.predict}
        for precision in ("fp32",) if "pair-int8" in self.without else PRECISIONS:
            model, folder = self.scratch / "vit-b-pair.nfad", self.scratch / f"vit-b-pair-{precision}"
            # Its weights are random, so whether 8 bits keep its verdicts means nothing here.
            with mock.patch.dict(LIMITS, {"int8": Limits(np.inf, np.inf, np.inf, np.inf, flips=1.0)}):
                judges[f"ViT-B pair {precision}"] = exported(model, folder, precision, self.normals[:FITTED]).predict
        if "dinomaly" not in self.without:
            judges["anomalib Dinomaly (ViT-B) at 224²"] = opened_peer(dinomaly, self.scratch / "dinomaly", 224)
        return latencies(judges, self.pixels[:2], self.rounds)

    def fitted(self, name: str, count: int, config: Config) -> Path:
        path = self.scratch / f"{name}.nfad"
        if not path.exists():
            Detector.fit(self.normals[:count], config).save(path)
        return path

    def folder(self, title: str, precision: str) -> Path:
        return self.scratch / f"{OURS[title]}-{precision}"


def latency(bench: Bench) -> list[str]:
    here = [name for name in bench.times if name.startswith("anomalib")]
    fastest = min(here, key=lambda name: statistics.median(bench.times[name]))
    return table(bench.times, fastest, bench.rounds)


def accuracy(bench: Bench) -> list[str]:
    """Flips are those of the export's own comparison with torch; the rest is measured on the test images."""
    test = bench.bottle.test
    labels = np.array([sample.anomalous for sample in test])
    rate = bench.detectors["NFAD CNN"].false_alarm_rate
    lines = [
        f"MVTec AD bottle, {FITTED} images to fit and to set the threshold on, for {rate:.1%} false alarms at most. "
        "Verdicts, with and without the filter, are compared with torch's on normals, corrupted and edited copies.",
        "",
        "| | verdicts flipped | image AUROC | good parts flagged | bad parts flagged | on disk |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, detector in bench.detectors.items():
        judges = {"torch": detector} | {each: bench.runtimes[f"{title} {each}"] for each in PRECISIONS}
        for name, judge in judges.items():
            judged = list(judge.predict_stream([sample.path for sample in test]))
            auroc = image_metrics(np.array([each.score for each in judged]), labels).auroc
            flagged = np.array([each.is_anomalous for each in judged])
            good, bad = (f"{flagged[side].sum()} of {side.sum()}" for side in (~labels, labels))
            flips, size = "", f"{bench.models[title].stat().st_size / 2**20:.2f} MiB and the teacher"
            if name != "torch":
                parity = judge.metadata["parity"]
                flips = f"{parity['flips']} of {parity['verdicts']}"
                size = f"{size_of(bench.folder(title, name)):.2f} MiB"
            lines.append(f"| {title} {name} | {flips} | {auroc:.3f} | {good} | {bad} | {size} |")
    return lines


def memory(bench: Bench) -> list[str]:
    lines = ["| reference | images | resident | folder |", "| --- | ---: | ---: | ---: |"]
    small = partial(Config.preset, "embedded-fast")
    references = {
        "linear": small(), "nearest": small(reference="nearest"),
        "student": small(reference="student", order="fit-then-filter", epochs=1),
    }  # fmt: skip
    for name, config in references.items():
        for count in (40, 160):
            path = bench.fitted(f"memory-{name}-{count}", count, config)
            folder = bench.scratch / f"memory-{name}-{count}-out"
            exported(path, folder, "fp32", bench.normals[:8])
            lines.append(f"| {name} | {count} | {resident(folder):.0f} MiB | {size_of(folder):.1f} MiB |")
    return lines


def pair(bench: Bench) -> list[str]:
    return table(bench.pair_times, "ViT-B pair torch", bench.rounds)


def limit(bench: Bench) -> list[str]:
    lines = ["| | GFLOP an image | GFLOP/s | of the GEMM peak |", "| --- | ---: | ---: | ---: |"]
    peaks = {precision: peak(precision) for precision in PRECISIONS}
    detectors, times = bench.detectors | {"ViT-B pair": bench.pair}, bench.times | bench.pair_times
    for title, detector in detectors.items():
        if detector.beside is not None:  # its work is that of the two above
            continue
        work = gflop(detector)
        for precision, best in peaks.items():
            if f"{title} {precision}" in times:
                speed = work / statistics.median(times[f"{title} {precision}"])
                lines.append(f"| {title} {precision} | {work:.2f} | {speed:.0f} | {speed / best:.0%} of {best:.0f} |")
    return lines


SECTIONS = {
    "latency": ("Beside anomalib's OpenVINO models at 256²", latency),
    "accuracy": ("What 8 bits change", accuracy),
    "memory": ("Memory and size by the number of fitted images", memory),
    "pair": ("The ViT-B pair (teacher and student) at 224²", pair),
    "limit": ("How far from the limit", limit),
}


def keep(title: str, lines: list[str]) -> None:
    """One section into the results, after every part, so that an interrupted run leaves what it has."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    kept = dict(part.split("\n\n", 1) for part in text.split("## ")[1:])
    kept[title] = "\n".join(lines)
    head = f"{os.cpu_count()} cores ({instructions()}), batch 1, 256×256 photos, preprocessing included."
    found = [f"## {title}\n\n{kept[title].strip()}" for title, _ in SECTIONS.values() if title in kept]
    RESULTS.write_text("\n\n".join([head, *found]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=list(SECTIONS), help="these sections")
    parser.add_argument("--without", nargs="*", default=[], choices=["pair-int8", "dinomaly"], help="the longest parts")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    keep_freed_memory()
    ready_for_openvino()
    options.scratch.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.data, options.scratch, options.rounds, options.without)
    for name in (name for name in SECTIONS if name in options.only):
        title, measured = SECTIONS[name]
        keep(title, measured(bench))
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
