"""How the presets' settings compare on the rendered demo set, which is what they were chosen on.

    python benchmarks/settings.py FOLDER [--presets embedded,embedded-fast]

FOLDER receives the set (100 training parts; 24 good and 32 bad a domain). One setting is changed at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nfad import Config, Detector
from nfad.data.demo import DOMAINS, read_demo, write_demo
from nfad.evaluation.evaluate import evaluate
from nfad.system.platform import keep_freed_memory
from nfad.vision.caching import Remembering
from nfad.vision.teacher import load_teacher

RESULTS = Path(__file__).parent / "results" / "settings.md"
PAPER = {
    "order": "fit-then-filter",
    "interventions": "paper",
    "common_mode": False,
    "localization": "global",
}
VARIANTS = {
    "preset": {},
    "without foreground": {"foreground": False},
    "without common mode": {"common_mode": False},
    "variance 0.8": {"variance": 0.8},
    "variance 0.95": {"variance": 0.95},
    "light alone, C/16": {"rank": {"photometric": 0.0625}},
    "all families at C/8": {"rank": {"photometric": 0.125, "background": 0.125, "sensor": 0.125}},
    "the paper's families and order": PAPER | {"rank": {"photometric": 16, "background": 16}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--presets", default="embedded,embedded-fast")
    options = parser.parse_args()
    keep_freed_memory()
    train, test = read_demo(write_demo(options.folder, train=100, good=24, bad=8))
    test = sorted(test, key=lambda sample: DOMAINS.index(sample.domain))
    domains = " | ".join((*DOMAINS, "all"))
    lines = [
        "Image AUROC (false alarms at the 5 % source threshold) by domain.",
        "The control is the same detector without the filter. `--foreground` is on unless said otherwise.",
        "",
        f"| preset | setting | {domains} |",
        "| --- " * (3 + len(DOMAINS)) + "|",
    ]
    for preset in options.presets.split(","):
        base = Config.preset(preset)
        teacher = Remembering(load_teacher(base.teacher, None, base.blocks, base.prior_blocks, base.size))
        for name, changes in VARIANTS.items():
            changes = {"foreground": True, "false_alarm_rate": 0.05} | changes
            if preset == "embedded-fast" and name == "the paper's families and order":
                changes["rank"] = {"photometric": 0.0625, "background": 0.0625}
            config = Config.preset(preset, **changes)
            rows = evaluate(Detector.fit([sample.path for sample in train], config, teacher=teacher), test).rows
            shown = {"filtered": name}
            if name in ("preset", "without foreground"):
                shown = {"unfiltered": "unfiltered" if name == "preset" else "control without foreground"} | shown
            for arm, label in shown.items():
                cells = [f"{row.arms[arm].i_auroc:.3f} ({row.arms[arm].false_alarms:.0%})" for row in rows]
                lines.append(f"| {preset} | {label} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
