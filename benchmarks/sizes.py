"""What the size of a photo costs an exported model: the first photo of a size it has not seen, and the next ones.

    python benchmarks/sizes.py IMAGE MODEL [MODEL ...] [--sides 256 1024 2400] [--write]

Each model runs in a process of its own, one size after the other, the same photo enlarged. Memory is the process's
after that size, not its peak. With `--peak SIDE` it is the peak, beyond what was there before, of one photo of that
side that is opened from a PNG and judged, and what is kept of it afterwards once free memory was given back.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

RESULTS = Path(__file__).parent / "results" / "sizes.md"
PEAKS = RESULTS.with_name("large.md")
NEXT = 5


def resident(name: str = "VmRSS") -> int:
    """Megabytes of this process in memory, or with VmHWM the most there were."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1000 for line in lines if line.startswith(name))


def measure(image: Path, model: Path, sides: list[int]) -> list[list[float]]:
    """A row a size: seconds of the first photo, median seconds of the next, megabytes."""
    from nfad.model import load_model

    loaded, rows = load_model(model), []
    with Image.open(image) as opened:
        photo = opened.convert("RGB")
    for side in sides:
        pixels = np.asarray(photo.resize((side, side)))
        seconds = []
        for _ in range(1 + NEXT):
            started = time.perf_counter()
            loaded.predict(pixels)
            seconds.append(time.perf_counter() - started)
        rows.append([seconds[0], statistics.median(seconds[1:]), resident()])
    return rows


def peak(image: Path, model: Path, side: int) -> list[int]:
    """Megabytes at the most, and kept."""
    from nfad.model import load_model
    from nfad.system.platform import keep_freed_memory, return_freed_memory

    keep_freed_memory()
    loaded = load_model(model, threads=1)
    with Image.open(image) as opened, tempfile.TemporaryDirectory() as folder:
        photo = opened.convert("RGB")
        loaded.predict(np.asarray(photo))
        large = Path(folder) / "large.png"
        photo.resize((side, side)).save(large, compress_level=1)
        return_freed_memory()
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, see proc(5)
        before = resident()
        loaded.predict(large)
        most = resident("VmHWM")
        return_freed_memory()
        return [most - before, resident() - before]


def peaks(given: argparse.Namespace) -> str:
    lines = [f"| a photo of {given.peak}², a PNG | at the most, MB | kept, MB |", "| --- | ---: | ---: |"]
    for model in given.models:
        command = [sys.executable, __file__, str(given.image), str(model), "--inner", "--peak", str(given.peak)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        lines.append(f"| {model.name} | {found[0]} | {found[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 512, 1024, 1600, 2400])
    parser.add_argument("--peak", type=int, metavar="SIDE")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}, or {PEAKS.name}")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak is not None:
        text = str(peak(given.image, given.models[0], given.peak)) if given.inner else peaks(given)
        print(text)
        if given.write:
            command = f"python benchmarks/sizes.py IMAGE MODEL … --peak {given.peak} --write"
            PEAKS.write_text(f"# What a very large photo costs\n\n`{command}`\n\n{text}\n", encoding="utf-8")
        return
    if given.inner:
        print(json.dumps(measure(given.image, given.models[0], given.sides)))
        return
    sides = [str(side) for side in given.sides]
    found = {}
    for model in given.models:
        command = [sys.executable, __file__, str(given.image), str(model), "--inner", "--sides", *sides]
        found[model.name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    lines = [f"| first / next photo, memory | {' | '.join(found)} |", "| --- |" + " --- |" * len(found)]
    for place, side in enumerate(sides):
        cells = (f"{rows[place][0]:.2f} s / {rows[place][1]:.3f} s, {rows[place][2]:.0f} MB" for rows in found.values())
        lines.append(f"| {side}² | {' | '.join(cells)} |")
    text = "\n".join(lines)
    print(text)
    if given.write:
        command = f"python benchmarks/sizes.py IMAGE MODEL … --sides {' '.join(sides)} --write"
        told = f"# What the size of a photo costs an exported model\n\n`{command}`\n\n{text}\n"
        RESULTS.write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
