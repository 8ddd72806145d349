"""Which map to show: synthetic defects on normals that were not fitted on, under changes of light and noise.

    python benchmarks/localization.py DATA

DATA holds mvtec_256/ and magnetic_tile/. Only good images are used: training bottles and screws, and good tiles at
exposure 3, split by file. Cut-paste, scars and stains are put on those left out; all of them are then seen clean,
darkened, brightened, with less contrast and with noise. Pixel AUROC / AUPRO over all maps of a condition, and of all
conditions together. This is how `localization` was chosen; no real defect and no test image had a say.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch

from nfad import Config, Detector
from nfad.evaluation.metrics import pixel_metrics
from nfad.system.platform import keep_freed_memory
from nfad.vision.caching import Remembering
from nfad.vision.defects import KINDS, with_defect
from nfad.vision.images import load_part, to_view
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results" / "localization.md"
NORMALS = {
    "bottle": "mvtec_256/bottle/train/good",
    "screw": "mvtec_256/screw/train/good",
    "tile": "magnetic_tile/free/exposure3",
}
FITTED, LEFT_OUT = 80, 16
VARIANTS = {
    "detection map (preset)": {},
    "V_g, all of V": {"localization": "global", "local_share": 0.0},
    "V_g, upper three quarters (paper)": {"localization": "global", "local_share": 0.25},
    "V_g, upper half": {"localization": "global", "local_share": 0.5},
}
CONDITIONS = {
    "clean": lambda view, _: view,
    "darkened": lambda view, _: view * 0.5,
    "brightened": lambda view, _: (view + 0.2).clamp(0, 1),
    "contrast": lambda view, _: (view - view.mean()) * 0.4 + view.mean(),
    "noise": lambda view, draw: (view + 0.08 * torch.randn(view.shape, generator=draw)).clamp(0, 1),
}


def scene(paths: list[Path], size: int) -> tuple[list[torch.Tensor], np.ndarray, np.ndarray]:
    """Every left-out normal and three defects on it, in every condition."""
    draw, noise = np.random.default_rng(0), torch.Generator().manual_seed(0)
    plain = []
    for path in paths:
        view, _ = to_view(load_part(path), size, None)
        plain.append((view, np.zeros((size, size), dtype=bool)))
        plain += [with_defect(view, kind, draw) for kind in KINDS]
    views = [change(view, noise) for change in CONDITIONS.values() for view, _ in plain]
    masks = np.stack([mask for _ in CONDITIONS for _, mask in plain])
    return views, masks, np.repeat(list(CONDITIONS), len(plain))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    base = Config.preset("embedded")
    lines = [
        f"Pixel AUROC / AUPRO of synthetic defects; `embedded`, up to {FITTED} normals fitted on, {LEFT_OUT} left out",
        "with three defects each.",
        "",
        f"| normals | map | {' | '.join(CONDITIONS)} | all |",
        "| --- " * (3 + len(CONDITIONS)) + "|",
    ]
    for name, place in NORMALS.items():
        paths = sorted((options.data / place).glob("*.jpg"))
        random.Random(0).shuffle(paths)
        left_out, fitted = paths[:LEFT_OUT], paths[LEFT_OUT:][:FITTED]
        teacher = Remembering(load_teacher(base.teacher, None, base.blocks, base.prior_blocks, base.size))
        views, masks, conditions = scene(left_out, base.size)
        for label, changes in VARIANTS.items():
            detector = Detector.fit(fitted, Config.preset("embedded", **changes), teacher=teacher)
            maps = [detector.predict_tensor(torch.stack(views[i : i + 8])).maps for i in range(0, len(views), 8)]
            shown = {"control": "control"} if label == next(iter(VARIANTS)) else {}
            shown[label] = "localization"
            for row, read_out in shown.items():
                stacked = torch.cat([batch[read_out] for batch in maps]).numpy()
                cells = []
                for condition in (*CONDITIONS, "all"):
                    here = (conditions == condition) | (condition == "all")
                    found = pixel_metrics(stacked[here], masks[here])
                    cells.append(f"{found.auroc:.3f} / {found.aupro:.3f}")
                lines.append(f"| {name} | {row} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
