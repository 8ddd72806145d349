"""The verdict benchmark's tables: from every photo's scores to what an inspection engineer lives with."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nfad.evaluation.metrics import image_metrics
from nfad.paper.verdict import AS_TAKEN, HELD_BACK, RATES, Result, VerdictCell
from nfad.paper.verdict_pairs import as_markdown as pairs_as_markdown
from nfad.paper.verdict_pairs import differences
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED
from nfad.stats.conformal import smallest_rate
from nfad.stats.verdicts import verdict_error


@dataclass(frozen=True)
class VerdictRow:
    """One method on one part with one seed, at one rate; shares are means over the shifts."""

    part: str
    method: str
    seed: int
    rate: float
    flagged: float  # good parts
    found: float  # bad parts
    error: float  # (flagged + passed) / 2
    good_not_judged: float
    bad_not_judged: float
    auroc: float  # inside a shift
    as_taken: float  # the verdict error without a shift; NaN where photos are of several lights
    strangers: int
    strangers_passed: int  # called normal
    held_back: tuple[int, int]  # good parts flagged under held-back acquisitions, of how many judged


def row_of(cell: VerdictCell, result: Result, rate: float = 0.05) -> VerdictRow:
    """What an inspection engineer lives with."""
    column = 0 if cell.arm == "filtered" else 1
    limit = result["limits"][str(rate)][column]
    third = column == 0  # unfiltered scores know no third verdict
    by_shift: dict[str, list[tuple[bool, float, bool]]] = {}
    for shift, bad, *scores, judged in result["rows"]:
        score = scores[column]
        known = score is not None and (judged or not third)
        by_shift.setdefault(shift, []).append((bool(bad), np.nan if score is None else score, known))
    shares, as_taken = [], float("nan")
    for shift, rows in by_shift.items():
        if shift == HELD_BACK:
            continue
        bad, scores, judged = (np.array(each) for each in zip(*rows, strict=True))
        flagged = judged & (scores > limit)
        shares.append((
            flagged[~bad].mean(), flagged[bad].mean(), verdict_error(bad, flagged, judged), (~judged)[~bad].mean(),
            (~judged)[bad].mean(), _auroc(bad, scores),
        ))  # fmt: skip
        if shift == AS_TAKEN:
            as_taken = shares[-1][2]
    kept = [(score, judged) for _, score, judged in by_shift.get(HELD_BACK, [])]
    said = [verdict_of(scores[column], judged or not third, limit) for _, *scores, judged in result["strangers"]]
    return VerdictRow(
        cell.part, cell.method, cell.config.seed, rate, *(float(share) for share in np.mean(shares, axis=0)),
        as_taken=as_taken, strangers=len(said), strangers_passed=said.count(NORMAL),
        held_back=(sum(judged and score > limit for score, judged in kept), sum(judged for _, judged in kept)),
    )  # fmt: skip


def _auroc(bad: np.ndarray, scores: np.ndarray) -> float:
    known = np.isfinite(scores)
    return image_metrics(scores[known], bad[known]).auroc


def verdict_of(score: float | None, judged: bool, limit: float) -> str:
    if score is None or not judged:
        return NOT_JUDGED
    return ANOMALOUS if score > limit else NORMAL


def as_markdown(rows: Sequence[VerdictRow]) -> str:
    """A table a part and one over all: mean over seeds, ± their spread."""
    parts = list(dict.fromkeys(row.part for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    head = (
        "| method | verdict error | good flagged | bad found | not judged, good / bad | AUROC | as taken "
        "| strangers called normal |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    text = ""
    for part in [*parts, "all parts"]:
        if part == "all parts" and len(parts) == 1:
            break
        text += f"\n## {part}\n\n{head}"
        for method in methods:
            mine = [row for row in rows if row.method == method and part in (row.part, "all parts")]
            if mine:
                text += _line(method, mine)
    return text


def _line(method: str, rows: Sequence[VerdictRow]) -> str:
    def mean(name: str) -> float:
        return float(np.mean([getattr(row, name) for row in rows]))

    by_seed: dict[int, list[float]] = {row.seed: [] for row in rows}
    for row in rows:
        by_seed[row.seed].append(row.error)
    spread = float(np.std(np.array([sum(errors) / len(errors) for errors in by_seed.values()])))
    passed, count = (sum(getattr(row, name) for row in rows) for name in ("strangers_passed", "strangers"))
    return (
        f"| {method} | {mean('error'):.3f} ± {spread:.3f} | {mean('flagged'):.0%} | {mean('found'):.0%} "
        f"| {mean('good_not_judged'):.1%} / {mean('bad_not_judged'):.1%} | {mean('auroc'):.3f} "
        f"| {mean('as_taken'):.3f} | {passed} of {count} |\n".replace("nan", "–")
    )


def written(
    cells: Sequence[VerdictCell], results: Sequence[Result], notes: Sequence[str], rate: float = 0.05
) -> tuple[str, str]:
    """The tables as Markdown, and every row as CSV."""
    rows = [row_of(cell, result, rate) for cell, result in zip(cells, results, strict=True)]
    told = "".join(f"- {note}\n" for note in notes)
    text = (
        f"# Verdicts under a shift, at a stated rate of {rate:.0%}\n\n"
        "Verdict error: (good parts flagged + bad parts passed) / 2. What is not judged is stopped, so neither flagged "
        "nor passed; it is told apart. Shares are means over the shifts, ± the spread over seeds. AUROC is inside a "
        f"shift. Strangers are photos without such a part.\n\n{told}{as_markdown(rows)}\n"
        "## nfad less the others, on the same photos\n\n"
        "Means over seeds and shifts, 95 % intervals from photos drawn anew; bold where zero is excluded.\n\n"
        f"{pairs_as_markdown(differences(cells, results, rate))}\n"
        "## The stated rates, under acquisitions drawn by another generator\n\n"
        "Good test parts under ImageNet-C, severities 1 to 3, one each; all seeds together.\n\n"
        f"{rates_as_markdown(stated_rates(cells, results))}"
    )
    return text, as_csv(rows)


def as_csv(rows: Sequence[VerdictRow]) -> str:
    out = io.StringIO()
    names = [name for name in VerdictRow.__dataclass_fields__ if name != "held_back"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "held_back_flagged", "held_back_judged"])
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([round(v, 4) if isinstance(v, float) else v for v in values] + list(row.held_back))
    return out.getvalue()


def stated_rates(cells: Sequence[VerdictCell], results: Sequence[Result]) -> list[tuple[str, str, float, int, int]]:
    """(part, method, rate, flagged, of): good parts under held-back acquisitions, all seeds together."""
    sums: dict[tuple[str, str, float], list[int]] = {}
    for cell, result in zip(cells, results, strict=True):
        for rate in RATES:
            row = row_of(cell, result, rate)
            held = result["fitted"] * (1 if cell.config.cross_fitted else cell.config.holdout or 0)
            entry = sums.setdefault((row.part, row.method, max(rate, smallest_rate(round(held)))), [0, 0])
            entry[0] += row.held_back[0]
            entry[1] += row.held_back[1]
    return [(*key, flagged, count) for key, (flagged, count) in sums.items()]


def rates_as_markdown(rates: Sequence[tuple[str, str, float, int, int]]) -> str:
    head = "| part | method | stated | good parts flagged |\n| --- | --- | --- | --- |\n"
    lines = (
        f"| {part} | {method} | {rate:.1%} | {flagged} of {count} ({flagged / max(count, 1):.1%}) |\n"
        for part, method, rate, flagged, count in rates
    )
    return head + "".join(lines)
