"""What several workers gain on a fleet, and what Ray costs with one.

    python benchmarks/fleet.py            # minutes; writes benchmarks/results/fleet.md

Eight rendered products of 12 photos are fitted three ways, interleaved and repeated: in this process one after the
other, by one of Ray's workers, and by two. Every fit has one thread. The time to start Ray and its workers is told
apart: it is paid once a command, whatever the number of products. Ratios are of the same repetition.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from safetensors import safe_open

from nfad import Config
from nfad.fleet.cluster import Cluster
from nfad.fleet.fit import fit_fleet
from nfad.fleet.products import Product, Wish, work_on
from nfad.vision.render import render

RESULTS = Path(__file__).parent / "results" / "fleet.md"
WORDS = {
    "two_workers_over_one": "two workers, times as fast as one",
    "ray_overhead_one_worker": "one worker, time over the serial loop's, less 1",
    "serial_s": "seconds, serial loop",
    "ray1_s": "seconds, one worker",
    "ray2_s": "seconds, two workers",
    "start1_s": "seconds to start Ray and one worker, once a command",
    "start2_s": "seconds to start Ray and two workers, once a command",
}
PRODUCTS, PHOTOS, REPEATS = 8, 12, 3
CONFIG = Config.preset("embedded-fast", acquisitions=24, pairs=2)


def write_products(folder: Path) -> list[Product]:
    """Products that differ by the seed of their photos."""
    found = []
    for number in range(PRODUCTS):
        place = folder / f"product{number}"
        place.mkdir()
        for index in range(PHOTOS):
            Image.fromarray(render(PHOTOS * number + index)[0]).save(place / f"{index:03}.png")
        found.append(Product(place.name, place, CONFIG))
    return found


def contents(path: Path) -> str:
    """Of a model file: its header holds the checksum of all that is in it."""
    with safe_open(path, framework="pt") as file:
        return file.metadata()["sha256"]


def serial(products: list[Product], out: Path) -> tuple[float, float]:
    out.mkdir()
    start = time.perf_counter()
    for product in products:
        work_on(product, Wish(out, device="cpu"))
    return 0.0, time.perf_counter() - start


def by_ray(products: list[Product], out: Path, workers: int) -> tuple[float, float]:
    start = time.perf_counter()
    with Cluster(workers=workers) as cluster:
        # Every worker is there, and has loaded what it needs, once it has fitted something.
        warm = out.with_name(out.name + "-warm")
        first = [
            Product(f"warm{index}", products[0].photos, CONFIG.changed(acquisitions=8)) for index in range(workers)
        ]
        list(fit_fleet(first, Wish(warm, device="cpu"), cluster))
        ready = time.perf_counter()
        failed = [each.error for _, each in fit_fleet(products, Wish(out, device="cpu"), cluster) if each.error]
        assert not failed, failed
        return ready - start, time.perf_counter() - ready


def main() -> None:
    torch.set_num_threads(1)
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        (photos := Path(folder) / "photos").mkdir()
        products = write_products(photos)
        work_on(products[0], Wish(Path(folder) / "warm", device="cpu"))
        for repeat in range(REPEATS):
            outs = {name: Path(folder) / f"{name}{repeat}" for name in ("serial", "one", "two")}
            _, alone = serial(products, outs["serial"])
            start_one, one = by_ray(products, outs["one"], 1)
            start_two, two = by_ray(products, outs["two"], 2)
            for product in products:
                models = [contents(out / f"{product.name}.nfad") for out in outs.values()]
                assert models[0] == models[1] == models[2], f"{product.name} differs from a serial run's"
            runs.append({
                "serial_s": alone, "ray1_s": one, "ray2_s": two, "start1_s": start_one, "start2_s": start_two,
                "two_workers_over_one": one / two, "ray_overhead_one_worker": one / alone - 1,
            })  # fmt: skip
            print(json.dumps({name: round(value, 3) for name, value in runs[-1].items()}), flush=True)
            RESULTS.write_text(told(runs, " ".join(sys.argv[1:])))


def told(runs: list[dict[str, float]], note: str) -> str:
    lines = [
        "# A fleet over workers",
        "",
        f"`python benchmarks/fleet.py`: {PRODUCTS} products of {PHOTOS} photos, embedded-fast, one thread a fit, on",
        f"two cores. {note} All models are those of the serial run to the last bit.".replace("  ", " "),
        "",
        "| measured | median | of the repetitions |",
        "| --- | --- | --- |",
    ]
    for name, words in WORDS.items():
        values = [run[name] for run in runs]
        each = ", ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {words} | {statistics.median(values):.2f} | {each} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
