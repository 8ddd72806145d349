"""Exported models beside anomalib's and beside torch: latency, distance from the machine's limit, memory, size.

    python benchmarks/deploy.py DATA SCRATCH [--rounds 12]

One image at a time from uint8 pixels to a verdict, preprocessing included, every candidate in turn in each round of one
run. Peers keep untrained weights, which do not change what they cost. Exports stay in SCRATCH for the next run.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from nfad import Config, Detector
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.deploy.parity import LIMITS, Limits
from nfad.machine import keep_freed_memory, ready_for_openvino
from nfad.vision.images import find_images, load_part

RESULTS = Path(__file__).parent / "results" / "deploy.md"
SIZE = 256  # of the embedded models and of the peers beside them
BANK = 20_480  # patches PatchCore keeps of 200 images at 256²: a tenth of 32 × 32 each
OURS = {"NFAD CNN": "embedded-fast", "NFAD ViT": "embedded"}
Judge = Callable[[np.ndarray], object]


def peers() -> dict[str, Callable]:
    """anomalib's models, on networks of our size where they take one."""
    from anomalib.models import EfficientAd, Patchcore, ReverseDistillation

    def patchcore() -> Patchcore:
        made = Patchcore(
            "tf_efficientnet_lite0", ["blocks.2", "blocks.4"], pre_trained=False,
            pre_processor=Patchcore.configure_pre_processor((SIZE, SIZE)),
        )  # fmt: skip
        made.model.memory_bank = torch.randn(BANK, sum(made.model.feature_extractor.out_dims))
        return made

    return {
        "anomalib PatchCore (the same CNN)": patchcore,
        "anomalib ReverseDistillation (ResNet-18)": lambda: ReverseDistillation(
            "resnet18", pre_trained=False, pre_processor=ReverseDistillation.configure_pre_processor((SIZE, SIZE))
        ),
        "anomalib EfficientAD-S": lambda: EfficientAd(pre_processor=EfficientAd.configure_pre_processor((SIZE, SIZE))),
    }


def dinomaly() -> object:
    import timm
    from anomalib.models import Dinomaly

    def untrained(name: str, pretrained: bool = False, **options: object) -> torch.nn.Module:
        return create(name, pretrained=False, **options)

    create = timm.create_model
    with mock.patch("timm.create_model", untrained):  # it has no option to leave the hub alone
        return Dinomaly("vit_base_patch14_reg4_dinov2", pre_processor=Dinomaly.configure_pre_processor((224, 224), 224))


class _Plain(torch.nn.Module):
    """A peer without Lightning around it; its post-processing, which is nothing beside the rest, is left out."""

    def __init__(self, peer: torch.nn.Module) -> None:
        super().__init__()
        self.before, self.model = peer.pre_processor, peer.model

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(self.before(images))
        return found.pred_score, found.anomaly_map


def opened_peer(make: Callable, folder: Path, size: int) -> Judge:
    """Its OpenVINO export at f32, fed as its own inferencer does: floats in [0, 1], channels first."""
    import openvino

    graph = folder / "weights" / "openvino" / "model.xml"
    if not graph.exists():
        make().eval().to_openvino(folder, input_size=(size, size))
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    model = core.read_model(graph)
    try:
        model.reshape([1, 3, size, size])
    except RuntimeError:  # PatchCore's own export comes out for a batch of two: traced for one instead
        model = openvino.convert_model(_Plain(make().eval()), example_input=torch.rand(1, 3, size, size))
        model.reshape([1, 3, size, size])
    compiled = core.compile_model(model, "CPU", settings)
    return lambda pixels: compiled(pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255)


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


def peak(precision: str) -> float:
    """GFLOP/s of the machine's best product of two large matrices."""
    import openvino as ov
    from openvino import opset13 as ops

    n = 2048
    x = ops.parameter([n, n], np.float32)
    w = np.random.default_rng(0).integers(-127, 128, (n, n)).astype(np.float32)
    left, right = x, ops.constant(w)
    if precision == "int8":
        left = ops.fake_quantize(x, *[np.float32(v) for v in (0, 255, 0, 255)], 256)
        right = ops.fake_quantize(right, *[np.float32(v) for v in (-127, 127, -127, 127)], 255)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    product = ov.compile_model(ov.Model([ops.matmul(left, right, False, False)], [x]), "CPU", settings)
    given = np.random.default_rng(1).integers(0, 256, (n, n)).astype(np.float32)
    best = np.inf
    for _ in range(12):
        started = time.perf_counter()
        product(given)
        best = min(best, time.perf_counter() - started)
    if precision == "fp32":  # whichever library multiplies best here
        left, right = torch.from_numpy(given), torch.from_numpy(w)
        for _ in range(12):
            started = time.perf_counter()
            left @ right
            best = min(best, time.perf_counter() - started)
    return 2 * n**3 / best / 1e9


def gflop(detector: Detector) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        detector.predict_tensor(torch.rand(1, 3, detector.config.size, detector.config.size))
    return counted.get_total_flops() / 1e9


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


def fitted(scratch: Path, name: str, images: list[Path], config: Config) -> Path:
    path = scratch / f"{name}.nfad"
    if not path.exists():
        Detector.fit(images, config).save(path)
    return path


def instructions() -> str:
    """What the CPU multiplies with: 8 bits are fast only where it has instructions for them (VNNI)."""
    flags = Path("/proc/cpuinfo").read_text()
    known = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8")
    return ", ".join(flag for flag in known if re.search(rf"\b{flag}\b", flags))


def keep(lines: list[str]) -> None:
    """After every part, so that an interrupted run leaves what it has."""
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--without", nargs="*", default=[], choices=["pair-int8", "dinomaly"], help="the longest parts")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    keep_freed_memory()
    ready_for_openvino()
    scratch = options.scratch
    scratch.mkdir(parents=True, exist_ok=True)
    normals = list(find_images(options.data / "mvtec_256" / "bottle" / "train" / "good"))
    pixels = [load_part(path) for path in normals[:8]]
    lines = [f"{os.cpu_count()} cores ({instructions()}), batch 1, 256×256 photos, preprocessing included.", ""]

    models = {title: fitted(scratch, preset, normals[:60], Config.preset(preset)) for title, preset in OURS.items()}
    runtimes = {
        f"{title} {precision}": exported(path, scratch / f"{path.stem}-{precision}", precision, normals[:60])
        for title, path in models.items()
        for precision in ("fp32", "int8")
    }
    detectors = {title: Detector.load(path) for title, path in models.items()}
    candidates: dict[str, Judge] = {
        name: opened_peer(make, scratch / re.sub(r"\W+", "-", name), SIZE) for name, make in peers().items()
    }
    candidates |= {name: runtime.predict for name, runtime in runtimes.items()}
    candidates |= {f"{title} torch": detector.predict for title, detector in detectors.items()}
    times = latencies(candidates, pixels, options.rounds)
    peers_here = [name for name in times if name.startswith("anomalib")]
    fastest = min(peers_here, key=lambda name: statistics.median(times[name]))
    lines += ["## Beside anomalib's OpenVINO models at 256²", "", *table(times, fastest, options.rounds), ""]
    keep(lines)

    lines += ["## Memory and size by the number of fitted images", ""]
    lines += ["| reference | images | resident | folder |", "| --- | ---: | ---: | ---: |"]
    small = partial(Config.preset, "embedded-fast")
    references = {
        "linear": small(), "nearest": small(reference="nearest"),
        "student": small(reference="student", order="fit-then-filter", epochs=1),
    }  # fmt: skip
    for name, config in references.items():
        for count in (40, 160):
            path = fitted(scratch, f"memory-{name}-{count}", normals[:count], config)
            exported(path, scratch / f"memory-{name}-{count}-out", "fp32", normals[:8])
            folder = scratch / f"memory-{name}-{count}-out"
            lines.append(f"| {name} | {count} | {resident(folder):.0f} MiB | {size_of(folder):.1f} MiB |")
    lines.append("")
    keep(lines)

    pair = Config.preset(
        "paper", teacher="vit_base_patch16_224", weights="untrained", student="untrained-vit_base_patch16_224", epochs=1
    )
    path = fitted(scratch, "vit-b-pair", normals[:12], pair)
    detector = Detector.load(path)
    judges: dict[str, Judge] = {"ViT-B pair torch": detector.predict}
    precisions = ("fp32",) if "pair-int8" in options.without else ("fp32", "int8")
    for precision in precisions:
        # Its weights are random, so whether 8 bits keep its verdicts means nothing here.
        with mock.patch.dict(LIMITS, {"int8": Limits(np.inf, np.inf, 1.0)}):
            runtime = exported(path, scratch / f"vit-b-pair-{precision}", precision, normals[:60])
        judges[f"ViT-B pair {precision}"] = runtime.predict
    if "dinomaly" not in options.without:
        judges["anomalib Dinomaly (ViT-B) at 224²"] = opened_peer(dinomaly, scratch / "dinomaly", 224)
    big = latencies(judges, pixels[:2], options.rounds)
    lines += [
        "## The ViT-B pair (teacher and student) at 224²",
        "",
        *table(big, "ViT-B pair torch", options.rounds),
        "",
    ]
    keep(lines)

    lines += ["## How far from the limit", ""]
    lines += ["| | GFLOP an image | GFLOP/s | of the GEMM peak |", "| --- | ---: | ---: | ---: |"]
    peaks = {precision: peak(precision) for precision in ("fp32", "int8")}
    for title, each, found in [*((t, d, times) for t, d in detectors.items()), ("ViT-B pair", detector, big)]:
        work = gflop(each)
        for precision, limit in peaks.items():
            if f"{title} {precision}" not in found:
                continue
            speed = work / statistics.median(found[f"{title} {precision}"])
            lines.append(f"| {title} {precision} | {work:.2f} | {speed:.0f} | {speed / limit:.0%} of {limit:.0f} |")
    keep(lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
