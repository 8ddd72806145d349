"""What things cost, as ratios measured side by side in one run, with their spread over repeats.

    python benchmarks/costs.py DATA [--repeats 7]

- cached tokens: a student epoch that runs the teacher against one that reads the cache
- the operator: a forward pass with the three read-outs against one with the control alone
- folding: the embedded CNN as timm builds it against the folded one that is used, a batch of 8
- memory kept by malloc: the embedded CNN on a batch of 8, in a process as it comes / in one after keep_freed_memory()
- predict's memory: peak resident memory, with the fit before it, after 50 and after 400 images
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nfad import Config, Detector
from nfad.fitting.tokens import TokenCache
from nfad.fitting.views import ViewCache
from nfad.operator import discrepancy, read_out
from nfad.vision.images import find_images
from nfad.vision.teacher import CnnTeacher, load_teacher
from nfad.vision.weights import embedded_cnn

RESULTS = Path(__file__).parent / "results" / "costs.md"


def ratio(
    numerator: Callable[[], object], denominator: Callable[[], object], repeats: int
) -> tuple[float, float, float]:
    """Median of paired ratios, and their lowest and highest: what disturbs one of a pair mostly disturbs both."""
    numerator(), denominator()
    ratios = []
    for _ in range(repeats):
        start = time.perf_counter()
        numerator()
        middle = time.perf_counter()
        denominator()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios), min(ratios), max(ratios)


CNN = """
import sys, time, torch
from nfad.system.platform import keep_freed_memory
from nfad.vision.teacher import load_teacher
if sys.argv[1] == "kept":
    assert keep_freed_memory()
teacher, views = load_teacher("embedded-cnn", None, (2, 3), (), 256), torch.rand(8, 3, 256, 256)
teacher.tokens(views)
start = time.perf_counter()
for _ in range(10):
    teacher.tokens(views)
print(time.perf_counter() - start)
"""


def malloc_ratio(repeats: int) -> tuple[float, float, float]:
    def seconds(how: str) -> float:
        return float(subprocess.run([sys.executable, "-c", CNN, how], capture_output=True, check=True).stdout)

    ratios = [seconds("plain") / seconds("kept") for _ in range(repeats)]
    return statistics.median(ratios), min(ratios), max(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    images = list(find_images(options.data / "mvtec_256" / "bottle" / "train" / "good"))[:40]
    config = Config.preset("embedded")
    teacher = load_teacher(config.teacher, None, config.blocks, config.prior_blocks, config.size)
    lines = ["| what | median ratio | lowest–highest |", "| --- | --- | --- |"]

    def report(what: str, measured: tuple[float, float, float], digits: int) -> None:
        lines.append(f"| {what} | {measured[0]:.{digits}f} | {measured[1]:.{digits}f}–{measured[2]:.{digits}f} |")
        print(lines[-1], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        views = ViewCache.read(images, config.size, config.resize, Path(folder))
        store = TokenCache(teacher, views, config.batch, Path(folder))
        for _ in store.fill():
            pass
        batches = torch.arange(len(images)).split(config.batch)

        def fresh() -> None:
            for indices in batches:
                teacher.tokens_and_prior(store.views(indices))

        def cached() -> None:
            for indices in batches:
                store.read(indices)

        report("teacher tokens of 40 images: computed / read from the cache", ratio(fresh, cached, options.repeats), 0)

    views = torch.rand(4, 3, config.size, config.size)
    with torch.inference_mode():
        bases = [torch.linalg.qr(torch.randn(c, 32)).Q for c in teacher.channels]
        keep = [torch.arange(32) >= 8] * len(bases)

        def with_operator() -> None:
            tokens = teacher.tokens(views)
            read_out(tokens, [t.flip(1) for t in tokens], bases, keep, 0.5)

        def control_only() -> None:
            tokens = teacher.tokens(views)
            torch.stack([discrepancy(t, t.flip(1)) for t in tokens]).mean(dim=0)

        name = "forward pass with the paper's operator (32 columns) / with the control alone"
        report(name, ratio(with_operator, control_only, options.repeats), 3)

        detector = Detector.fit(images, config, teacher=teacher)

        def whole() -> None:
            detector.predict_tensor(views)

        def teacher_only() -> None:
            teacher.tokens(views)

        report("predict with the embedded preset / its teacher alone", ratio(whole, teacher_only, options.repeats), 3)

    cnn = load_teacher("embedded-cnn", None, (2, 3), (), 256)
    as_built = CnnTeacher(embedded_cnn().eval(), cnn.identity, (2, 3), 256)
    views = torch.rand(8, 3, 256, 256)
    folding = ratio(lambda: as_built.tokens(views), lambda: cnn.tokens(views), 5 * options.repeats)
    report("embedded CNN, batch of 8: as timm builds it / folded", folding, 2)
    report("embedded CNN, batch of 8: malloc as it comes / keeping memory", malloc_ratio(options.repeats), 2)

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    stream = detector.predict_stream(images[i % len(images)] for i in range(400))
    for count, _ in enumerate(stream, start=1):
        if count == 50:
            first = peak()
    told = f"{first:.0f} MiB after predict has seen 50 images, {peak():.0f} MiB after 400."
    lines += ["", f"Peak memory, with the fit before: {told}"]
    print(lines[-1])
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
