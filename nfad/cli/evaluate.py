"""`nfad evaluate`: one data set, unfiltered against filtered, with a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from nfad.cli.options import (
    Category,
    Device,
    Foreground,
    Json,
    Reference,
    Setting,
    Size,
    Spread,
    Teacher,
    Weights,
    Workers,
    config_from,
    drawable,
    spread,
)
from nfad.cli.terminal import note, out, progress_bars
from nfad.errors import NfadError
from nfad.presets import DEFAULT
from nfad.system.files import ready_folder, strict_json


def evaluate(
    dataset: Annotated[
        str,
        typer.Argument(help="aebad-s, mvtec-ad, mvtec-ad-2, visa, real-iad, mpdd, magnetic-tile, folder or demo."),
    ],
    root: Annotated[Path, typer.Argument(help="The data set's folder.")],
    category: Category = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Judge with this model, fitted or exported, instead of fitting one on the set's training images."
        ),
    ] = None,
    maps: Annotated[
        list[Path] | None,
        typer.Option(
            help="Score what another program wrote: a folder laid out as ROOT with a map a photo (npy, npz, TIFF or "
            "16-bit PNG) and/or a scores.csv (image,score), or such a CSV. A second one is compared with the first."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="embedded-all, -both, embedded, embedded-fast (all offline), or paper.", show_default=DEFAULT
        ),
    ] = None,
    teacher: Teacher = None,
    weights: Weights = None,
    device: Device = "auto",
    reference: Reference = None,
    size: Size = None,
    foreground: Foreground = False,
    seed: Annotated[int | None, typer.Option(help="Same seed, same images: same numbers.")] = None,
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(help="The threshold's rate, set on held-out normals.", show_default="0.01, or the model's own"),
    ] = None,
    corrupt: Annotated[
        list[str] | None,
        typer.Option(
            help="Also judge under an ImageNet-C corruption (brightness, contrast, defocus_blur or gaussian_noise, "
            "severity 1 to 5), e.g. contrast:3; may be given several times."
        ),
    ] = None,
    readout: Annotated[str, typer.Option(help="Map of the pixel metrics: localization or detection.")] = "localization",
    protocol: Annotated[str, typer.Option(help="AUPRO as mvtec, dinomaly, ader or mmr compute it.")] = "mvtec",
    setting: Setting = None,
    ray: Spread = None,
    workers: Workers = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Write report.html, results.csv, scores.csv and triplets.png into this folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit on a data set's good images, judge its test images, and say how sure every number is.

    Every row compares the same detector unfiltered and filtered, by both errors:
    good parts flagged and bad parts passed. Parts that are not judged are counted
    apart. Thresholds come from held-out normals, never from the test set.

    With --maps nothing is fitted: bottle/test/dent/000.npy is the map of that photo, larger
    where more anomalous, and its largest value is the score unless scores.csv has one. Maps
    of training photos that the program was not fitted on set its threshold; without them
    nothing is judged. See docs/metrics.md.

    Example: nfad evaluate mvtec-ad DATA --category bottle --corrupt contrast:3 --out results
    """
    from nfad.data import folder
    from nfad.data.catalog import load
    from nfad.data.counts import total_notes
    from nfad.evaluation.session import evaluate_dataset
    from nfad.report.results import write_results

    given = {
        "--preset": preset, "--teacher": teacher, "--reference": reference, "--size": size, "--seed": seed,
        "--set": setting, "--foreground": foreground or None,
    }  # fmt: skip
    wrong = [name for name, value in given.items() if value is not None]
    if model is not None and wrong:
        raise NfadError(f"--model is judged as it was fitted; leave out {', '.join(wrong)}")
    if maps:
        given |= {"--model": model, "--weights": weights, "--corrupt": corrupt, "--size": None, "--seed": None}
        given |= {"--readout": None if readout == "localization" else readout}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise NfadError(f"--maps are scored as they are; leave out {', '.join(wrong)}")
        _maps(load(dataset, root, category), root, maps, false_alarm_rate, size, protocol, seed, out_dir, as_json)
        return
    if out_dir:
        ready_folder(out_dir)
    config = config_from(
        preset or DEFAULT, setting, teacher=teacher, weights=weights, reference=reference, size=size, seed=seed,
        foreground=foreground or None, false_alarm_rate=false_alarm_rate,
    )  # fmt: skip
    tested = model is not None and dataset == folder.NAME  # a published set has its split, a plain folder need not
    sets = folder.read_tested(root, category) if tested else load(dataset, root, category)
    findings = []
    with spread(ray, workers, device) as cluster, progress_bars(not as_json) as progress:
        judge = None
        if cluster is not None:
            from nfad.fleet.measuring import judging

            judge = judging(cluster, device)
        for words in [words for each in sets for words in each.notes] + ([] if category else list(total_notes(sets))):
            note(words)
        for each in sets:
            findings += evaluate_dataset(
                each, config, corrupt or [], model=model, weights=weights, rate=false_alarm_rate, readout=readout,
                protocol=protocol, progress=progress, device=device, judge=judge,
            )  # fmt: skip
        written = write_results(findings, out_dir, progress) if out_dir else []
        if out_dir and drawable():
            from nfad.paper.qualitative import draw_qualitative

            for finding, page in zip(findings, [path for path in written if path.suffix == ".html"], strict=True):
                draw_qualitative(finding, page.with_name(page.stem.replace("report", "triplets") + ".png"))
    if as_json:
        print(strict_json([finding.as_dict() for finding in findings]))
        return
    for finding in findings:
        for table in evaluation_tables(finding.title, finding.evaluation.rows):
            out.print(table)
        for words in finding.notes[len(finding.dataset.notes) :]:
            note(words)
    judge = findings[0].detector
    out.print(f"Thresholds: {judge.held_out.told(judge.config.false_alarm_rate)}.", soft_wrap=True)
    _look_at(written)


def _look_at(written: Sequence[Path]) -> None:
    if written:
        out.print(
            "Look at " + ", ".join(f"[bold]{path}[/]" for path in written if path.suffix == ".html"), soft_wrap=True
        )
    else:
        out.print("Add --out DIR for a report with curves, histograms and pictures.")


def _maps(
    sets: Any, root: Path, places: list[Path], rate: float | None, size: int | None, protocol: str, seed: int | None,
    out_dir: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """What other programs wrote."""
    from nfad.evaluation.foreign import SIZE, evaluate_maps
    from nfad.report.results import write_foreign

    if out_dir:
        ready_folder(out_dir)
    with progress_bars(not as_json) as progress:
        findings = evaluate_maps(
            root, sets, places, rate=0.01 if rate is None else rate, size=size or SIZE, protocol=protocol,
            seed=seed or 0, progress=progress,
        )  # fmt: skip
        written = write_foreign(findings, out_dir, progress) if out_dir else []
    for finding in findings:
        for words in (*finding.dataset.notes, *finding.notes):
            note(words)
    if as_json:
        print(strict_json([finding.as_dict() for finding in findings]))
        return
    for finding in findings:
        names = tuple(arm.name for arm in finding.arms)
        out.print(_verdict_table(finding.title, finding.rows, names))
        out.print(_metric_table(finding.rows, names))
        for arm in finding.arms:
            out.print(f"{arm.name}: {arm.promise}; {arm.normals} normals of its own.", soft_wrap=True, highlight=False)
    _look_at(written)


def _metric_table(rows: Any, arms: Sequence[str]) -> Table:
    """A line a program: all seven metrics; bold where its paired gain over the first excludes zero."""
    from nfad.evaluation.tally import METRICS

    table = Table(title="Ranking, per cent", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("domain", "program", *METRICS):
        table.add_column(name, justify="left" if name in ("domain", "program") else "right", no_wrap=True)
    for row in rows:
        for arm in arms:
            cells = []
            for metric in METRICS:
                told = f"{100 * getattr(row.arms[arm], metric):.1f}".replace("nan", "–")
                gain = row.gains.get(metric) if arm != arms[0] else None
                cells.append(f"[bold]{told}[/]" if gain and gain.excludes_zero else told)
            table.add_row(escape(row.domain) if arm == arms[0] else "", escape(arm), *cells)
    return table


def evaluation_tables(title: str, rows: Any) -> list[Table]:
    """For a terminal: what the threshold does, both errors side by side, and how well the scores rank."""
    from nfad.records import ARMS

    return [_verdict_table(title, rows, ARMS), _ranking_table(rows)]


def _verdict_table(title: str, rows: Any, arms: Sequence[str]) -> Table:
    """A line an arm: each error with its 95 % interval, and what is not judged."""
    from nfad.report.tables import alarm_rate, detection_rate, number_told, rate_told

    told = "Verdict error: (good flagged + bad passed) / 2; what is not judged is neither"
    table = Table(title=f"{escape(title)}\n{told}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("domain", "score", "good flagged", "bad found", "verdict\nerror", "not judged\ngood, bad"):
        table.add_column(name, justify="left" if name in ("domain", "score") else "right", no_wrap=True)
    for row in rows:
        for arm in arms:
            table.add_row(
                escape(row.domain) if arm == arms[0] else "",
                escape(arm),
                escape(rate_told(alarm_rate(row, arm))),
                escape(rate_told(detection_rate(row, arm))),
                number_told(row.arms[arm].verdict_error),
                _refused(row, arm),
            )
    return table


def _refused(row: Any, arm: str) -> str:
    """How many of the good and of the bad parts; a dash where there is no third verdict."""
    good, bad = row.arms[arm].good_not_judged, row.arms[arm].bad_not_judged
    return "–" if arm == "unfiltered" and not good + bad else f"{good}/{row.good}, {bad}/{row.bad}"


def _ranking_table(rows: Any) -> Table:
    told = "Ranking, unfiltered→filtered; gain with its 95 % interval"
    table = Table(title=told, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("domain", "image AUROC", "gain [95 %]", "AUPRO"):
        table.add_column(name, justify="left" if name == "domain" else "right", no_wrap=True)
    for row in rows:
        before, after, gain = row.arms["unfiltered"], row.arms["filtered"], row.gains["i_auroc"]
        change = f"{before.i_auroc:.3f}→{after.i_auroc:.3f}"
        table.add_row(
            escape(row.domain),
            (f"[bold]{change}[/]" if gain.excludes_zero else change).replace("nan", "–"),
            "–" if math.isnan(gain.value) else rf"{gain.value:+.2f} \[{gain.low:+.2f},{gain.high:+.2f}]",
            f"{before.aupro:.3f}→{after.aupro:.3f}".replace("nan", "–"),
        )
    return table
