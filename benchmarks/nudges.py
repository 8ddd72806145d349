"""What a nudged camera does to verdicts: photos as taken, steadied (the default), `nfad fit --nudged`, `--turned`.

    python benchmarks/nudges.py DATA SCRATCH [--presets embedded-both] [--sets demo bottle …] [--fits "the default" …]

DATA holds mvtec_256/ and magnetic_tile/; the demo set is rendered into SCRATCH. Every photo is brought to 288 pixels a
side; the model is fitted on the middle 256 of at most 60 normals, and a nudge moves or turns that window on the photo,
so that nothing at its edge is made up: by 4, 8 and 12 px along either axis, and by 2 and 5 degrees either way. At most
12 good and 12 bad photos are judged so. The fit's own nudges are by at most 8 px and 3 degrees. The
demo's `view` is another camera position, rendered. Each cell: good flagged / bad found, and in brackets good ones not
judged, at 5 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from verdict import datasets

from nfad import Config, Detector
from nfad.errors import NfadError
from nfad.presets import DEFAULT
from nfad.records import Sample
from nfad.system.platform import keep_freed_memory
from nfad.vision.images import load_image

RESULTS = Path(__file__).parent / "results" / "nudges.md"
PHOTO, VIEW, FITTED, TESTED, RATE = 288, 256, 60, 12, 0.05
FITS = {
    "the default": {},
    "as taken": {"pose": "as taken"},
    "as taken, `--nudged`": {"pose": "as taken", "nudges": 2},
    "`--turned`": {"pose": "turned"},
}
MOVES = {
    "as taken": [(0, 0, 0)],
    **{f"{by} px": [(by, 0, 0), (0, -by, 0)] for by in (4, 8, 12)},
    **{f"{angle}°": [(0, 0, angle), (0, 0, -angle)] for angle in (2, 5)},
}


def seen(path: Path, right: int = 0, down: int = 0, degrees: float = 0) -> np.ndarray:
    photo = Image.fromarray(load_image(path)).resize((PHOTO, PHOTO), Image.Resampling.LANCZOS)
    photo = photo.rotate(degrees, Image.Resampling.BICUBIC) if degrees else photo
    left, top = (PHOTO - VIEW) // 2 - right, (PHOTO - VIEW) // 2 - down
    return np.asarray(photo.crop((left, top, left + VIEW, top + VIEW)))


def judged(detector: Detector, samples: list[Sample], moves: list[tuple[int, int, float]]) -> str:
    good, bad = ([each.path for each in samples if each.anomalous is anomalous][:TESTED] for anomalous in (False, True))
    flagged, found = (detector.predict([seen(path, *move) for move in moves for path in some]) for some in (good, bad))
    refused = np.mean([not each.is_judged for each in flagged])
    shares = (np.mean([each.is_anomalous for each in some]) for some in (flagged, found))
    return " / ".join(f"{share:.0%}" for share in shares) + (f" ({refused:.0%})" if refused else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--presets", nargs="+", default=[DEFAULT])
    parser.add_argument("--sets", nargs="+", default=["demo", "bottle"])
    parser.add_argument("--fits", nargs="+", choices=list(FITS), default=list(FITS))
    given = parser.parse_args()
    keep_freed_memory()
    rows = []
    for preset in given.presets:
        for name in given.sets:
            [dataset] = datasets(given.data, given.scratch, [name])[:1]
            train = [seen(each.path) for each in dataset.train[:FITTED]]
            source, view = (
                [each for each in dataset.test if each.domain == domain] for domain in (dataset.test[0].domain, "view")
            )
            for fit, changes in ((name, FITS[name]) for name in given.fits):
                row = dict.fromkeys(("preset", "set", "fit", *MOVES, "`view`"), "")
                row |= {"preset": preset, "set": name, "fit": fit}
                try:
                    detector = Detector.fit(train, Config.preset(preset, false_alarm_rate=RATE, **changes))
                    row |= {move: judged(detector, source, moves) for move, moves in MOVES.items()}
                    row["`view`"] = judged(detector, view, [(0, 0, 0)]) if view else ""
                except NfadError as error:  # parts that cannot be turned
                    row["as taken"] = f"refused: {error}"
                rows.append(row)
                print(row, flush=True)
                write(rows, given)


def write(rows: list[dict[str, str]], given: argparse.Namespace) -> None:
    fits = "" if given.fits == list(FITS) else f" --fits {' '.join(repr(name) for name in given.fits)}"
    command = f"python benchmarks/nudges.py DATA SCRATCH --sets {' '.join(given.sets)}{fits}"
    head = (
        f"# A nudged camera\n\n`{command}`\n\nGood flagged / bad found (good ones not judged), at 5 %, one split.\n\n"
    )
    lines = [
        f"| {' | '.join(rows[0])} |",
        "| --- " * len(rows[0]) + "|",
        *(f"| {' | '.join(row.values())} |" for row in rows),
    ]
    RESULTS.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
