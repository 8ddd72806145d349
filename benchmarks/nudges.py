"""What it gains and costs to let the reference see each normal as a nudged camera would (`nfad fit --nudged`).

    python benchmarks/nudges.py DATA SCRATCH [--presets embedded-fast embedded] [--nudges 0 1 2] [--sets demo bottle …]

DATA holds mvtec_256/ and magnetic_tile/; the demo set is rendered into SCRATCH. Every photo is brought to 288 pixels a
side; the model is fitted on the middle 256 of at most 80 normals, and a nudge moves or turns that window over the
photo, so that nothing at its edge is made up. Image AUROC and the share of defects found are of test images as they
are; false alarms of the good ones alone, moved by 4, 8 and 12 px (each way along each axis) and turned by 2 and 5
degrees (each way). The fit's own copies are moved by at most 8 px and 3 degrees. The demo's `view` is another camera
position, rendered. Each cell: control → filtered. Thresholds are those of held-out normals, unmoved, at 5 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from nfad import Config, Detector
from nfad.data.catalog import load
from nfad.data.demo import write_demo
from nfad.evaluation.metrics import image_metrics
from nfad.records import Prediction, Sample
from nfad.system.platform import keep_freed_memory
from nfad.vision.images import load_image
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results" / "nudges.md"
PHOTO, VIEW, FITTED, RATE = 288, 256, 80, 0.05
SETS = {
    "demo": ("demo", "demo", None),
    "bottle": ("mvtec-ad", "mvtec_256", "bottle"),
    "screw": ("mvtec-ad", "mvtec_256", "screw"),
    "tile": ("magnetic-tile", "magnetic_tile", None),
}
MOVES = {
    **{f"{by} px": [(by, 0, 0), (-by, 0, 0), (0, by, 0), (0, -by, 0)] for by in (4, 8, 12)},
    **{f"{angle}°": [(0, 0, angle), (0, 0, -angle)] for angle in (2, 5)},
}


def seen(path: Path, right: int = 0, down: int = 0, degrees: float = 0) -> np.ndarray:
    photo = Image.fromarray(load_image(path)).resize((PHOTO, PHOTO), Image.Resampling.LANCZOS)
    photo = photo.rotate(degrees, Image.Resampling.BICUBIC) if degrees else photo
    left, top = (PHOTO - VIEW) // 2 - right, (PHOTO - VIEW) // 2 - down
    return np.asarray(photo.crop((left, top, left + VIEW, top + VIEW)))


def false_alarms(predictions: Sequence[Prediction]) -> str:
    shares = (
        np.mean([each.unfiltered_is_anomalous for each in predictions]),
        np.mean([each.is_anomalous for each in predictions]),
    )
    return " → ".join(f"{share:.0%}" for share in shares)


def measure(train: list[Path], test: list[Sample], config: Config, teacher) -> dict[str, str]:
    """One row."""
    detector = Detector.fit([seen(path) for path in train], config, teacher=teacher)
    source = [each for each in test if each.domain == test[0].domain]
    good = [each.path for each in source if not each.anomalous]
    judged = detector.predict([seen(each.path) for each in source])
    labels = np.array([each.anomalous for each in source])
    arms = [np.array([each.unfiltered_score for each in judged]), np.array([each.score for each in judged])]
    row = {
        "AUROC": " → ".join(f"{100 * image_metrics(scores, labels).auroc:.1f}" for scores in arms),
        "defects found": false_alarms([each for each, bad in zip(judged, labels, strict=True) if bad]),
        "as they are": false_alarms([each for each, bad in zip(judged, labels, strict=True) if not bad]),
    }
    for name, moves in MOVES.items():
        row[name] = false_alarms(detector.predict([seen(path, *move) for move in moves for path in good]))
    view = [seen(each.path) for each in test if each.domain == "view" and not each.anomalous]
    return row | {"`view`": false_alarms(detector.predict(view)) if view else ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--presets", nargs="+", default=["embedded-fast", "embedded"])
    parser.add_argument("--nudges", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    given = parser.parse_args()
    keep_freed_memory()
    rows = []
    for preset in given.presets:
        plain = Config.preset(preset, false_alarm_rate=RATE)
        teacher = load_teacher(plain.teacher, None, plain.blocks, plain.prior_blocks, plain.size)
        for name in given.sets:
            reader, folder, category = SETS[name]
            root = write_demo(given.scratch / "demo") if name == "demo" else given.data / folder
            dataset = load(reader, root, category and [category])[0]
            train = [each.path for each in dataset.train][:FITTED]
            for nudges in given.nudges:
                config = Config.preset(preset, false_alarm_rate=RATE, nudges=nudges, foreground=name == "demo")
                row = measure(train, list(dataset.test), config, teacher)
                rows.append({"preset": preset, "set": name, "nudges": str(nudges)} | row)
                print(rows[-1], flush=True)
                write(rows, given)


def write(rows: list[dict[str, str]], given: argparse.Namespace) -> None:
    command = f"python benchmarks/nudges.py DATA SCRATCH --nudges {' '.join(map(str, given.nudges))}"
    head = f"# Nudged copies at the fit\n\n`{command}`\n"
    head += "\nControl → filtered; false alarms of good test images as they are, moved, and turned.\n\n"
    lines = [
        f"| {' | '.join(rows[0])} |",
        "| --- " * len(rows[0]) + "|",
        *(f"| {' | '.join(row.values())} |" for row in rows),
    ]
    RESULTS.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
