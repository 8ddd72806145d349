"""Unshifted quality and synthetic shifts: MVTec AD categories, clean and under five changes, control and NFAD.

    python benchmarks/mvtec.py DATA [--categories bottle,screw] [--seeds 3]

DATA holds mvtec_256/<category> in the standard layout. Fitted on train/good alone; false alarms are of test/good at the
5 % threshold that held-out training images set. A finished row of results/mvtec.csv is skipped when run again.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import torch

from nfad import Config, Detector
from nfad.evaluation.metrics import image_metrics
from nfad.system.platform import keep_freed_memory
from nfad.vision.images import load_image
from nfad.vision.interventions import affine, blur, contrast, noise
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results" / "mvtec.csv"
SHIFTS = {
    "clean": None,
    "contrast ×0.3": partial(contrast, 0.3),
    "brightness +0.3": partial(affine, 1.0, 0.3),
    "darkened ×0.5": partial(affine, 0.5, 0.0),
    "noise 0.12": partial(noise, 0.12),
    "blur 1.5": partial(blur, 1.5),
}
MODELS = {
    "embedded": ("embedded", {}),
    "embedded 512": ("embedded", {"size": 512, "pairs": 4}),
    "embedded-fast": ("embedded-fast", {}),
    "embedded with the paper's filter": (
        "embedded",
        {
            "order": "fit-then-filter",
            "interventions": "paper",
            "rank": {"photometric": 16, "background": 16},
            "localization": "global",
            "common_mode": False,
        },
    ),
}
COLUMNS = (
    "category", "model", "seed", "shift", "control_auroc", "auroc", "control_false_alarms", "false_alarms",
)  # fmt: skip


def shifted(pixels: np.ndarray, shift, seed: int) -> np.ndarray:
    if shift is None:
        return pixels
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
    changed = shift(image, torch.ones(1, 1, 1, 1, dtype=torch.bool), torch.Generator().manual_seed(seed)).clamp(0, 1)
    return (changed[0].permute(1, 2, 0) * 255).round().byte().numpy()


def run(root: Path, category: str, model: str, seed: int, shifts: list[str], teachers: dict) -> list[tuple]:
    preset, changes = MODELS[model]
    config = Config.preset(preset, seed=54 + seed, false_alarm_rate=0.05, **changes)
    key = (config.teacher, config.size)
    if key not in teachers:
        teachers[key] = load_teacher(config.teacher, None, config.blocks, config.prior_blocks, config.size)
    base = root / category
    detector = Detector.fit(sorted((base / "train/good").iterdir()), config, teacher=teachers[key])
    test = sorted(path for path in (base / "test").glob("*/*") if path.suffix in (".png", ".jpg"))
    labels = np.array([path.parent.name != "good" for path in test])
    rows = []
    for name in shifts:
        photos = (shifted(load_image(path), SHIFTS[name], index) for index, path in enumerate(test))
        judged = [
            (prediction.score, prediction.unfiltered_score, prediction.is_anomalous, prediction.unfiltered_is_anomalous)
            for prediction in detector.predict_stream(photos)
        ]
        score, control, alarm, control_alarm = map(np.array, zip(*judged, strict=True))
        values = (
            image_metrics(control, labels).auroc, image_metrics(score, labels).auroc,
            control_alarm[~labels].mean(), alarm[~labels].mean(),
        )  # fmt: skip
        rows.append((category, model, seed, name, *(round(float(v), 4) for v in values)))
        print(*rows[-1], flush=True)
    return rows


def summarise() -> str:
    with RESULTS.open() as file:
        rows = list(csv.DictReader(file))
    text = [
        "Control → NFAD, mean over seeds (± standard deviation of NFAD's where there are several).",
        "",
        "| category, model | seeds | shift | image AUROC | false alarms at 5 % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for key in dict.fromkeys((r["category"], r["model"], r["shift"]) for r in rows):
        mine = [r for r in rows if (r["category"], r["model"], r["shift"]) == key]

        def cell(name: str, style: str, mine: list = mine) -> str:
            before = statistics.mean(float(r[f"control_{name}"]) for r in mine)
            after = [float(r[name]) for r in mine]
            spread = f" ± {format(statistics.pstdev(after), style)}" if len(mine) > 1 else ""
            return f"{format(before, style)} → {format(statistics.mean(after), style)}{spread}"

        cells = [cell("auroc", ".3f"), cell("false_alarms", ".0%")]
        text.append(f"| {key[0]}, {key[1]} | {len(mine)} | {key[2]} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--categories", default="bottle,screw")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--shifts", default=",".join(SHIFTS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    keep_freed_memory()
    if not RESULTS.exists():
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    with RESULTS.open() as file:
        done = {(r["category"], r["model"], r["seed"], r["shift"]) for r in csv.DictReader(file)}
    teachers: dict = {}
    for seed in range(options.seeds):
        for category in options.categories.split(","):
            for model in options.models.split(","):
                wanted = options.shifts.split(",")
                shifts = [name for name in wanted if (category, model, str(seed), name) not in done]
                if shifts:
                    rows = run(options.data / "mvtec_256", category, model, seed, shifts, teachers)
                    with RESULTS.open("a", newline="") as file:
                        csv.writer(file).writerows(rows)
    summary = summarise()
    RESULTS.with_suffix(".md").write_text(summary)
    print(summary)


if __name__ == "__main__":
    main()
