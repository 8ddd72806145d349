"""What a fit takes of memory at its peak, beside what is stated to Ray (`nfad.fleet.memory`).

    python benchmarks/memory.py SCRATCH --photos FOLDER

Every fit is a process of its own with one thread; its peak is the largest resident set, with all that is mapped. Rows
stay in SCRATCH, so that a stopped run goes on; the table goes to results/memory.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from nfad import Config, Detector
from nfad.fleet.memory import fit_memory, pixels_of
from nfad.system.results import ResultCache
from nfad.vision.images import find_images

RESULTS = Path(__file__).parent / "results" / "memory.md"
ROWS: tuple[tuple[str, int, dict], ...] = (
    ("embedded-fast", 20, {}),
    ("embedded-fast", 140, {}),
    ("embedded-fast", 20, {"size": 448}),
    ("embedded-fast", 20, {"acquisitions": 0}),
    ("embedded", 20, {"acquisitions": 0}),
    ("embedded", 20, {"acquisitions": 40}),
    ("embedded", 20, {"acquisitions": 40, "size": 384}),
    ("embedded", 80, {"acquisitions": 0, "reference": "nearest"}),
    ("embedded", 20, {}),
    ("embedded-both", 20, {"acquisitions": 40}),
    ("embedded-both", 20, {}),
    ("embedded-all", 20, {}),
)


def peak(preset: str, changes: dict, paths: list[Path]) -> int:
    import torch

    torch.set_num_threads(1)
    Detector.fit(paths, Config.preset(preset, **changes), device="cpu")
    # Not ru_maxrss, which a process begins with its parent's.
    told = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in told.splitlines() if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    every = sorted(find_images(args.photos))
    if args.one:
        preset, photos, changes = json.loads(args.one)
        print(peak(preset, changes, every[:photos]))
        return
    cache = ResultCache(args.scratch / "memory-cells")
    lines = [
        "# Memory of a fit",
        "",
        "Peak resident set of a process with one thread, beside what is stated to Ray before it starts, in GB.",
        "",
        "| preset | photos | settings | peak | stated | stated / peak |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for preset, photos, changes in ROWS:
        settings = {"preset": preset, "photos": photos, "changes": changes}
        found = cache.get(settings)
        if found is None:
            one = json.dumps([preset, photos, changes])
            command = [sys.executable, __file__, str(args.scratch), "--photos", str(args.photos), "--one", one]
            found = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            cache.put(settings, found)
        stated = fit_memory(Config.preset(preset, **changes), photos, pixels_of(every))
        told = ", ".join(f"{name}={value}" for name, value in changes.items())
        lines.append(
            f"| {preset} | {photos} | {told} | {found / 1e9:.2f} | {stated / 1e9:.2f} | {stated / found:.2f} |"
        )
        print(lines[-1], flush=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
