"""What a verdict to trust costs beside the filter alone: the fit, and judging one photo after the other.

    python benchmarks/verdict_costs.py DATA [--repeats 3] [--presets embedded-all]

Ratios of the embedded presets to themselves with acquisitions=0 (of `embedded-both` and `embedded-all` that is the ViT
alone), side by side in one run: fits of 60 photos of 256², then batches of eight of these, then one photo at a time by
both exports, with the spread over repeats; and of judging to the same without developing. Rows of presets that are not
named stay as they are.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
from costs import ratio
from PIL import Image

from nfad import Config, Detector
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.system.platform import keep_freed_memory
from nfad.vision.images import find_images, load_part, to_view
from nfad.vision.tiles import tiled_teacher

PRESETS = ("embedded-fast", "embedded", "embedded-both", "embedded-all")
RESULTS = Path(__file__).parent / "results" / "verdict_costs.md"


def measured(preset: str, images: list[Path], repeats: int) -> dict[str, tuple[float, float, float]]:
    now = Config.preset(preset, false_alarm_rate=0.05)
    before = now.changed(acquisitions=0)
    teachers = [tiled_teacher(*look.sight) for look in now.looks]
    fitted: dict[bool, Detector] = {}

    def fit(config: Config) -> None:
        fitted[config.acquisitions > 0] = Detector.fit(images, config, teacher=teachers[: len(config.looks)])

    fits = ratio(lambda: fit(now), lambda: fit(before), repeats)
    # Photos, as a camera sends them: random numbers are all noise, which is then taken out of every one.
    views = torch.stack([to_view(load_part(image), now.size, now.resize)[0] for image in images[:8]])
    judging = ratio(lambda: fitted[True].predict_tensor(views), lambda: fitted[False].predict_tensor(views), 30)
    with tempfile.TemporaryDirectory() as folder:
        runtimes = []
        as_taken = dataclasses.replace(fitted[True], development=None)
        for name, detector in (("now", fitted[True]), ("before", fitted[False]), ("as taken", as_taken)):
            model = detector.save(Path(folder) / f"{name}.nfad")
            export(model, Path(folder) / name, Options("openvino"))
            runtimes.append(Runtime.load(Path(folder) / name))
        photo = np.asarray(Image.open(images[0]).convert("RGB"))
        shipped, developing = (
            ratio(lambda: runtimes[0].predict(photo), lambda other=other: other.predict(photo), 60)
            for other in runtimes[1:]
        )
    return {
        f"{preset}, fit of 60 photos": fits,
        f"{preset}, judging": judging,
        f"{preset}, judging, exported to OpenVINO": shipped,
        f"{preset}, judging, exported, with developing / without": developing,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    options = parser.parse_args()
    keep_freed_memory()
    images = list(find_images(options.data / "mvtec_256" / "bottle" / "train" / "good"))[:60]
    lines = ["| with acquisitions / the filter alone | median ratio | lowest–highest |", "| --- | --- | --- |"]
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    for preset in PRESETS:
        if preset not in options.presets:
            lines += [line for line in before if line.startswith(f"| {preset},")]
            continue
        for what, (middle, low, high) in measured(preset, images, options.repeats).items():
            lines.append(f"| {what} | {middle:.2f} | {low:.2f}–{high:.2f} |")
            print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
