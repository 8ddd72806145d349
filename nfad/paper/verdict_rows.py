"""The verdict benchmark's tables: from every photo's scores to what an inspection engineer lives with."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nfad.evaluation.metrics import image_metrics
from nfad.paper.verdict import AS_TAKEN, HELD_BACK, RATES, Result, VerdictCell
from nfad.paper.verdict_pairs import as_markdown as pairs_as_markdown
from nfad.paper.verdict_pairs import differences
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED
from nfad.stats.conformal import smallest_rate
from nfad.stats.verdicts import verdict_error

StatedRate = tuple[str, str, float, tuple[int, int], tuple[int, int]]  # part, method, rate; flagged, of: all, own light


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
    in_own_light: tuple[int, int]  # of those, taken in the light of the fit's photos; none where no test photo was


class Shares(NamedTuple):
    """Of the photos under one shift."""

    flagged: float
    found: float
    error: float
    good_not_judged: float
    bad_not_judged: float
    auroc: float


Scored = tuple[bool, float, bool]  # whether a photo is bad, its score, whether it is judged


def _by_shift(cell: VerdictCell, result: Result) -> dict[str, list[Scored]]:
    """Every photo in the arm that is the method's own; unfiltered scores know no third verdict."""
    column = 0 if cell.arm == "filtered" else 1
    found: dict[str, list[Scored]] = {}
    for shift, bad, *scores, judged in result["rows"]:
        score = scores[column]
        known = score is not None and (judged or column == 1)
        found.setdefault(shift, []).append((bool(bad), np.nan if score is None else score, known))
    return found


def _limit(cell: VerdictCell, result: Result, rate: float) -> float:
    return result["limits"][str(rate)][0 if cell.arm == "filtered" else 1]


def shares_of(cell: VerdictCell, result: Result, rate: float = 0.05) -> dict[str, Shares]:
    """Both errors, what is not judged and AUROC, shift by shift."""
    limit, shares = _limit(cell, result, rate), {}
    for shift, rows in _by_shift(cell, result).items():
        if shift == HELD_BACK:
            continue
        bad, scores, judged = (np.array(each) for each in zip(*rows, strict=True))
        flagged = judged & (scores > limit)
        found = (
            flagged[~bad].mean(), flagged[bad].mean(), verdict_error(bad, flagged, judged), (~judged)[~bad].mean(),
            (~judged)[bad].mean(), _auroc(bad, scores),
        )  # fmt: skip
        shares[shift] = Shares(*map(float, found))
    return shares


def row_of(cell: VerdictCell, result: Result, rate: float = 0.05) -> VerdictRow:
    """What an inspection engineer lives with."""
    limit, shares = _limit(cell, result, rate), shares_of(cell, result, rate)
    # A photo under a held-back acquisition comes after the same as it is, whose light is then known.
    lights, before = [], ""
    for shift, *_ in result["rows"]:
        if shift == HELD_BACK:
            lights.append(before)
        else:
            before = shift
    kept = [(score, judged) for _, score, judged in _by_shift(cell, result).get(HELD_BACK, [])]
    fitted = {AS_TAKEN, *(sample.domain for sample in cell.dataset.train)}
    own = [each for each, light in zip(kept, lights, strict=True) if light in fitted]
    column = 0 if cell.arm == "filtered" else 1
    said = [verdict_of(scores[column], judged or column == 1, limit) for _, *scores, judged in result["strangers"]]
    return VerdictRow(
        cell.part, cell.method, cell.config.seed, rate, *np.mean(list(shares.values()), axis=0).tolist(),
        as_taken=shares[AS_TAKEN].error if AS_TAKEN in shares else float("nan"),
        strangers=len(said), strangers_passed=said.count(NORMAL),
        held_back=_flagged(kept, limit), in_own_light=_flagged(own, limit),
    )  # fmt: skip


def shifts_as_markdown(cells: Sequence[VerdictCell], results: Sequence[Result], rate: float = 0.05) -> str:
    """Where the errors are: a row a shift, a column a method, means over seeds."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    every: dict[tuple[str, str], dict[str, list[Shares]]] = {}
    for cell, result in zip(cells, results, strict=True):
        for shift, shares in shares_of(cell, result, rate).items():
            every.setdefault((cell.part, shift), {}).setdefault(cell.method, []).append(shares)

    def told(some: list[Shares]) -> str:
        mean = Shares(*np.mean(some, axis=0).tolist())
        refused = f"{mean.good_not_judged:.0%} / {mean.bad_not_judged:.0%}"
        return f"{mean.flagged:.0%} / {mean.found:.0%} / {mean.error:.3f} ({refused})"

    text = f"| part | shift | {' | '.join(methods)} |\n" + "| --- " * (2 + len(methods)) + "|\n"
    for (part, shift), by_method in every.items():
        columns = [told(by_method[method]) if method in by_method else "–" for method in methods]
        text += f"| {part} | {shift} | {' | '.join(columns)} |\n"
    return text


def _flagged(scored: Sequence[tuple[float, bool]], limit: float) -> tuple[int, int]:
    """Of so many judged."""
    return sum(judged and score > limit for score, judged in scored), sum(judged for _, judged in scored)


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
        "## Where the errors are\n\n"
        "Good flagged / bad found / verdict error (good / bad not judged), means over seeds.\n\n"
        f"{shifts_as_markdown(cells, results, rate)}\n"
        "## nfad less the others, on the same photos\n\n"
        "Means over seeds and shifts, 95 % intervals from photos drawn anew; bold where zero is excluded.\n\n"
        f"{pairs_as_markdown(differences(cells, results, rate))}\n"
        "## The stated rates, under acquisitions drawn by another generator\n\n"
        "Good test parts under ImageNet-C, severities 1 to 3, one each; all seeds together. Where photos are of "
        "several lights these come on top, but for those taken as the fit's were.\n\n"
        f"{rates_as_markdown(stated_rates(cells, results))}"
    )
    return text, as_csv(rows)


def as_csv(rows: Sequence[VerdictRow]) -> str:
    out = io.StringIO()
    counts = {"held_back": "held_back", "in_own_light": "held_back_own_light"}
    names = [name for name in VerdictRow.__dataclass_fields__ if name not in counts]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *(f"{name}_{what}" for name in counts.values() for what in ("flagged", "judged"))])
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow(
            [round(v, 4) if isinstance(v, float) else v for v in values] + [*row.held_back, *row.in_own_light]
        )
    return out.getvalue()


def stated_rates(cells: Sequence[VerdictCell], results: Sequence[Result]) -> list[StatedRate]:
    """Good parts under held-back acquisitions, all seeds together."""
    sums: dict[tuple[str, str, float], list[int]] = {}
    for cell, result in zip(cells, results, strict=True):
        for rate in RATES:
            row = row_of(cell, result, rate)
            held = result["fitted"] * (1 if cell.config.cross_fitted else cell.config.holdout or 0)
            key = row.part, row.method, max(rate, smallest_rate(round(held)))
            counts = (*row.held_back, *row.in_own_light)
            sums[key] = [sum(pair) for pair in zip(sums.get(key, [0] * 4), counts, strict=True)]
    return [(*key, (every[0], every[1]), (every[2], every[3])) for key, every in sums.items()]


def rates_as_markdown(rates: Sequence[StatedRate]) -> str:
    def told(counts: tuple[int, int]) -> str:
        flagged, count = counts
        return f"{flagged} of {count} ({flagged / count:.1%})" if count else "–"

    head = "| part | method | stated | good parts flagged | of those in the fit's own light |\n" + "| --- " * 5 + "|\n"
    lines = (
        f"| {part} | {method} | {rate:.1%} | {told(every)} | {told(own)} |\n"
        for part, method, rate, every, own in rates
    )
    return head + "".join(lines)
