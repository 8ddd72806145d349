"""The metrics against their peers: speed as ratios in one run, agreement, and what the streaming form costs.

    python -m venv peers && peers/bin/pip install . scikit-learn 'anomalib==2.7.*' adeval 'numpy<2.4'
    OMP_NUM_THREADS=1 peers/bin/python benchmarks/metrics.py [--repeats 5] [--real-iad]

(adeval calls np.trapz, which NumPy dropped in 2.4.) Everyone has one thread, and processor time is what counts, so that
others on the machine disturb little. 512 maps of 256² of three kinds:
- smooth: as detectors make them, half of the images with one to three defects
- tied: the same in 256 steps, so that most scores are equal to many others
- rare: one image in 64 with a single small defect
nfad gives image and pixel AUROC, AP and best F1 and AUPRO; the peers together give AUROC, AP (scikit-learn) and AUPRO
(anomalib), no F1. adeval approximates AUROC, AUPRO and a differently defined AP by 1000 strips.

The streaming form runs over 500, 2000 and 8000 maps of 224² made as they are needed, each number in a process of its
own. `--real-iad` adds a pass over as many maps as Real-IAD has test images, 114,585.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from nfad.evaluation.metrics import image_metrics, pixel_metrics
from nfad.evaluation.streaming import StreamingPixelMetrics

RESULTS = Path(__file__).parent / "results"
KINDS = ("smooth", "tied", "rare")
REAL_IAD = 114_585
METRICS = ("auroc", "ap", "f1_max", "aupro")
PEERS = ("scikit-learn + anomalib", "scikit-learn", "anomalib", "adeval", "nfad streaming")
AGREE = {"scikit-learn": 1e-9, "anomalib": 1e-4}  # float64 sums of 10^7 terms; float32 ones
Maps = Iterator[tuple[np.ndarray, np.ndarray]]
Found = dict[
    tuple[str, int, str, str], tuple[float, ...]
]  # (kind, maps, who, what) → value, or median, lowest, highest


def generate(kind: str, count: int, size: int, seed: int = 0) -> Maps:
    """Score maps and masks, one after the other: a coarse random field enlarged bilinearly, defects lifted."""
    rng = np.random.default_rng(seed)
    coarse = size // 8
    places = np.linspace(0, coarse - 1, size)
    enlarge = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(coarse))).astype(np.float32)
    rows, columns = np.ogrid[:size, :size]
    for index in range(count):
        field = enlarge @ rng.standard_normal((coarse, coarse), dtype=np.float32) @ enlarge.T
        scores = np.float32(0.2 + 0.02 * rng.standard_normal()) + np.float32(0.05) * field
        mask = np.zeros((size, size), dtype=bool)
        if index % 64 == 1 if kind == "rare" else index % 2:
            for _ in range(1 if kind == "rare" else rng.integers(1, 4)):
                radius = rng.integers(2, 6) if kind == "rare" else rng.integers(4, size // 9)
                y, x = rng.integers(radius, size - radius, 2)
                away = (rows - y) ** 2 + (columns - x) ** 2
                mask |= away <= radius**2
                lift = np.float32(rng.uniform(0.03, 0.2))
                scores += lift * np.exp(-0.5 * away / radius**2, dtype=np.float32)
        if kind == "tied":
            scores = np.round(np.clip(scores, 0, 0.6) * np.float32(255 / 0.6)) / np.float32(255)
        yield scores, mask


def spread(numerators: list[float], denominators: list[float]) -> tuple[float, float, float]:
    """Median, lowest and highest of paired ratios: what disturbs one of a pair mostly disturbs both."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def competitors(kind: str) -> dict[str, Callable[[], dict[str, float]]]:
    import adeval
    import cv2
    import torch
    from anomalib.metrics.aupro import _AUPRO
    from sklearn.metrics import average_precision_score, roc_auc_score

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    pairs = list(generate(kind, 512, 256))
    maps, masks = np.stack([m for m, _ in pairs]), np.stack([k for _, k in pairs])
    scores, labels = maps.max(axis=(1, 2)), masks.any(axis=(1, 2))
    truth = masks.ravel().view(np.uint8)  # scikit-learn takes a fifth longer with booleans

    def nfad() -> dict[str, float]:
        image = image_metrics(scores, labels).as_dict()
        return {f"image_{name}": value for name, value in image.items()} | pixel_metrics(maps, masks).as_dict()

    def nfad_streaming() -> dict[str, float]:
        stream = StreamingPixelMetrics()
        for score_map, mask in zip(maps, masks, strict=True):
            stream.update(score_map, mask)
        return stream.result().as_dict()

    def scikit_learn() -> dict[str, float]:
        return {
            "image_auroc": roc_auc_score(labels, scores),
            "image_ap": average_precision_score(labels, scores),
            "auroc": roc_auc_score(truth, maps.ravel()),
            "ap": average_precision_score(truth, maps.ravel()),
        }

    def anomalib() -> dict[str, float]:
        metric = _AUPRO()  # the metric itself; its public wrapper asks for a batch with its images
        for start in range(0, len(maps), 32):
            part = slice(start, start + 32)
            metric.update(torch.from_numpy(maps[part]), torch.from_numpy(masks[part]).float())
        return {"aupro": float(metric.compute())}

    def adeval_strips() -> dict[str, float]:
        auroc, area, aupro = adeval.auroc_aupr_aupro(maps, masks.view(np.uint8))
        return {"auroc": auroc, "ap (trapezoids)": area, "aupro": aupro}

    return {
        "nfad": nfad,
        "scikit-learn": scikit_learn,
        "anomalib": anomalib,
        "adeval": adeval_strips,
        "nfad streaming": nfad_streaming,
    }


def side_by_side(kind: str, repeats: int) -> Found:
    """Everyone in turn, `repeats` times; ratios to nfad within each turn, and how far the values lie apart."""
    runs = competitors(kind)
    values, seconds = {}, {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            values[name] = run()
            seconds[name].append(time.process_time() - start)
    both, ours = PEERS[0], values["nfad"]
    values[both] = values["scikit-learn"] | values["anomalib"]
    seconds[both] = [a + b for a, b in zip(seconds["scikit-learn"], seconds["anomalib"], strict=True)]
    found: Found = {}
    for name in PEERS:
        found[kind, 512, name, "time / nfad"] = spread(seconds[name], seconds["nfad"])
        for metric in (m for m in values[name] if isinstance(ours.get(m), float)):
            apart = abs(values[name][metric] - ours[metric])
            found[kind, 512, name, f"difference of {metric}"] = (apart,)
            if apart > AGREE.get(name, 1.0):
                sys.exit(f"{name} and nfad disagree on the {metric} of {kind} maps by {apart:.1e}")
    return found


def measure(form: str, kind: str, count: int) -> dict:
    """One pass over generated maps in this process: values, seconds of the metrics alone, growth of peak memory."""
    maps = generate(kind, count, 224)
    maps = list(maps) if form == "exact" else maps
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of importing; from here it counts anew
    before, seconds, bounds = peak_mib(), 0.0, None
    if form == "exact":
        start = time.process_time()
        values = pixel_metrics([m for m, _ in maps], [k for _, k in maps])
    else:
        stream = StreamingPixelMetrics()
        for score_map, mask in maps:
            start = time.process_time()
            stream.update(score_map, mask)
            seconds += time.process_time() - start
        start = time.process_time()
        values, bounds = stream.result(), stream.bounds().as_dict()
    seconds += time.process_time() - start
    return {"values": values.as_dict(), "bounds": bounds, "seconds": seconds, "mib": peak_mib() - before}


def peak_mib() -> float:
    """Linux only. Not getrusage's: a child inherits that from the process which starts it."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def in_own_process(form: str, kind: str, count: int) -> dict:
    command = [sys.executable, __file__, "--measure", form, kind, str(count)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def streaming(kind: str, count: int, repeats: int, with_exact: bool = True) -> Found:
    streams = [in_own_process("stream", kind, count) for _ in range(repeats)]
    bounds, here = streams[-1]["bounds"], (kind, count, "streaming")
    found: Found = {(*here, "memory"): (streams[-1]["mib"],)}
    found[*here, "time per map"] = (statistics.median(run["seconds"] for run in streams) / count,)
    for metric in METRICS:
        found[*here, f"width of {metric}"] = (bounds[metric][1] - bounds[metric][0],)
    if with_exact:
        exact = [in_own_process("exact", kind, count) for _ in range(repeats)]
        found[*here, "time / exact"] = spread([run["seconds"] for run in streams], [run["seconds"] for run in exact])
        found[kind, count, "exact", "memory"] = (exact[-1]["mib"],)
        for metric in METRICS:
            value = exact[-1]["values"][metric]
            found[*here, f"error of {metric}"] = (abs(streams[-1]["values"][metric] - value),)
            if not bounds[metric][0] <= value <= bounds[metric][1]:
                sys.exit(f"the bounds of {metric} for {count} {kind} maps do not hold the exact value")
    return found


def write(command: str, found: Found) -> None:
    with (RESULTS / "metrics.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("kind", "maps", "who", "what", "value", "lowest", "highest"))
        for (kind, maps, who, what), values in found.items():
            if what != "time per map":  # a bare time says more about a machine than about the code
                table.writerow((kind, maps, who, what, *(f"{value:.4g}" for value in values)))
    lines = [
        f"`{command}`; one thread for everyone, processor time. Ratios: the median of paired ones (lowest–highest).",
        "",
        "## Time of a peer / time of nfad, 512 maps of 256²",
        "nfad: image and pixel AUROC, AP, best F1, and AUPRO, exact. scikit-learn: image and pixel AUROC and AP.",
        "anomalib 2.7: AUPRO. adeval: pixel AUROC, AUPRO and a precision–recall area of its own, by 1000 strips.",
        "",
        f"| peer | {' | '.join(KINDS)} | largest difference of a value |",
        "| --- " * (2 + len(KINDS)) + "|",
    ]
    for name in PEERS:
        cells = [ratio(found[kind, 512, name, "time / nfad"]) for kind in KINDS]
        worst = {m: largest(found, 512, name, f"difference of {m}", KINDS) for m in METRICS}
        apart = ", ".join(f"{metric} {value:.0e}" for metric, value in worst.items() if value is not None)
        lines.append(f"| {name} | {' | '.join(cells)} | {apart} |")
    lines += [
        "",
        "## Streaming, maps of 224² made as they are needed",
        "Error: the largest of the four metrics' against the exact value, and the widest of the intervals certain to",
        "hold it. Time per map: relative to that with 500 maps. Memory: growth of the peak; the exact form's without",
        "the maps themselves, which it needs at once.",
        "",
        "| kind | maps | error | width of the bound | time / exact | time per map | memory | of the exact form |",
        "| --- " * 8 + "|",
    ]
    for kind, maps in dict.fromkeys((kind, maps) for kind, maps, who, _ in found if who == "streaming"):
        here = (kind, maps, "streaming")
        growth = found[*here, "time per map"][0] / found[kind, 500, "streaming", "time per map"][0]
        error = max((largest(found, maps, "streaming", f"error of {m}", [kind]) or 0.0) for m in METRICS)
        width = max(found[*here, f"width of {m}"][0] for m in METRICS)
        exact = found.get((kind, maps, "exact", "memory"))
        cells = [kind, f"{maps:,}", f"{error:.0e}" if exact else "–", f"{width:.0e}"]
        cells += [ratio(found[*here, "time / exact"]) if exact else "–", f"{growth:.2f}"]
        cells += [f"{found[*here, 'memory'][0]:.0f} MiB", f"{exact[0]:.0f} MiB" if exact else "–"]
        lines.append(f"| {' | '.join(cells)} |")
    if not any(maps == REAL_IAD for _, maps, *_ in found):
        lines += ["", f"Not run: Real-IAD's {REAL_IAD:,} maps; extrapolated, they take no more memory than 8,000."]
    (RESULTS / "metrics.md").write_text("\n".join(lines) + "\n")


def ratio(values: tuple[float, ...]) -> str:
    return f"{values[0]:.2f} ({values[1]:.2f}–{values[2]:.2f})"


def largest(found: Found, maps: int, who: str, what: str, kinds: Sequence[str]) -> float | None:
    return max((found[kind, maps, who, what][0] for kind in kinds if (kind, maps, who, what) in found), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--real-iad", action="store_true", help=f"also stream {REAL_IAD:,} maps")
    parser.add_argument("--measure", nargs=3, metavar=("FORM", "KIND", "MAPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        sys.exit("set OMP_NUM_THREADS=1: everyone is compared on one thread")
    if options.measure:
        form, kind, count = options.measure
        print(json.dumps(measure(form, kind, int(count))))
        return
    found: Found = {}
    for kind in KINDS:
        found |= side_by_side(kind, options.repeats)
    for kind in KINDS:
        for count in (500, 2000, 8000):
            found |= streaming(kind, count, 3)
    if options.real_iad:
        found |= streaming("smooth", REAL_IAD, 1, with_exact=False)
    extra = " --real-iad" if options.real_iad else ""
    write(f"OMP_NUM_THREADS=1 python benchmarks/metrics.py --repeats {options.repeats}{extra}", found)


if __name__ == "__main__":
    main()
