"""Judge a stream of images and leave a record: CSV, JSON lines, overlay pictures and a page, all in one pass."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nfad.errors import NfadError
from nfad.judge import Judge
from nfad.page import Page
from nfad.pictures import save_png, triptych
from nfad.records import Prediction
from nfad.vision.pixels import find_images, photo_of

COLUMNS = (
    "image", "verdict", "score", "threshold", "p_value", "control_verdict", "control_score", "control_threshold",
    "excess_filtered", "nuisance_fraction", "gate", "participation", "explanation",
)  # fmt: skip
SHARES = ("excess_filtered", "nuisance_fraction", "gate", "participation")  # a digit fewer says enough of them


@dataclass
class Summary:
    """What came of a run; `failed` names the images that could not be read and why."""

    judged: int = 0
    anomalous: int = 0
    verdict_changed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def as_row(prediction: Prediction) -> dict[str, Any]:
    """A prediction without its maps, ready for JSON and CSV."""
    facts = {"image": prediction.source, "explanation": prediction.explain(), **prediction.facts()}
    return {name: _rounded(name, facts[name]) for name in COLUMNS}


def _rounded(name: str, value: str | float) -> str | float | None:
    """What is not a number is left out: JSON has no word for it."""
    if not isinstance(value, float):
        return value
    return round(value, 4 if name in SHARES else 5) if math.isfinite(value) else None


def expand(inputs: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Folders are walked, files are taken as they are: (image, its name in the output), no two names alike."""
    taken: Counter[str] = Counter()
    for given in dict.fromkeys(inputs):
        label = given.resolve().name
        taken[label] += 1
        if taken[label] > 1:
            label = f"{given.resolve().stem}-{taken[label]}{given.suffix}"
        for path in find_images(given):
            yield path, Path(label) if given.is_file() else label / path.relative_to(given)


def inspect(
    judge: Judge,
    inputs: Iterable[Path],
    out: Path | None = None,
    *,
    overlays: bool = True,
    on_result: Callable[[Prediction], None] | None = None,
    on_failure: Callable[[str, str], None] | None = None,
) -> Summary:
    """Judge every image; with `out`, write results.csv, results.jsonl, overlays/ and index.html there."""
    summary = Summary()
    underway: deque[tuple[str, Path]] = deque()  # read ahead by a batch, judged in the same order

    def stream() -> Iterator[Path]:
        for path, name in expand(inputs):
            underway.append((str(path), name))
            yield path

    def name_of(source: str) -> Path:
        while True:  # what comes before it could not be read
            path, name = underway.popleft()
            if path == source:
                return name

    def skip(image: object, reason: str) -> None:
        summary.failed.append((str(image), reason))
        if on_failure:
            on_failure(str(image), reason)

    def judged() -> Iterator[Prediction]:
        for prediction in judge.predict_stream(stream(), skip):
            summary.judged += 1
            summary.anomalous += prediction.is_anomalous
            summary.verdict_changed += prediction.is_anomalous != prediction.control_is_anomalous
            if on_result:
                on_result(prediction)
            yield prediction

    if out is None:
        for _ in judged():
            pass
        return summary
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NfadError(f"cannot make the folder {out}: {error.strerror}") from None
    with (
        (out / "results.csv").open("w", newline="", encoding="utf-8") as table,
        (out / "results.jsonl").open("w", encoding="utf-8") as lines,
        Page(out / "index.html", "Inspection", facts=list(judge.facts.items()), high=judge.scale) as page,
    ):
        writer = csv.DictWriter(table, COLUMNS)
        writer.writeheader()
        reported = 0

        def report_failures() -> None:
            nonlocal reported
            for source, reason in summary.failed[reported:]:
                page.add_failure(source, reason)
                row = {"image": source, "verdict": "unreadable", "explanation": reason}
                writer.writerow(row)
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            reported = len(summary.failed)

        for prediction in judged():
            row = as_row(prediction)
            writer.writerow(row)
            families = {name: round(share, 4) for name, share in prediction.nuisance_by_family.items()}
            lines.write(json.dumps(row | {"nuisance_by_family": families}, ensure_ascii=False) + "\n")
            photo = photo_of(prediction.source)
            page.add(photo, prediction)
            if overlays:
                name = name_of(prediction.source)
                target = out / "overlays" / name.with_name(name.name + ".png")
                target.parent.mkdir(parents=True, exist_ok=True)
                save_png(triptych(photo, prediction, judge.scale), target)
            report_failures()
        report_failures()
    return summary
