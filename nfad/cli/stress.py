"""`nfad stress`: what a model bears before it is deployed, on the user's own normals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from nfad.cli.options import Device, Json, Weights
from nfad.cli.terminal import err, out, progress_bars, reporter
from nfad.errors import NfadError
from nfad.system.files import strict_json

SHORT = {"breaks": "alarms", "blind": "misses", "refuses": "not judged"}  # what ends it, for a narrow column


def stress(
    model: Annotated[Path, typer.Argument(help="A model written by `nfad fit`, or a folder by `nfad export`.")],
    normals: Annotated[
        Path, typer.Option(help="Folder of images of good parts, best ones that the model was not fitted on.")
    ],
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Write report.html, results.csv and results.json here; an interrupted run resumes."
        ),
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            help="Only these, with commas between: exposure, gamma, contrast, temperature, shading, blur, noise, "
            "background, shift-x, shift-y, rotation.",
            show_default="all; background only for a model fitted with --foreground, and never for an export",
        ),
    ] = None,
    images: Annotated[int, typer.Option(help="How many of the normals to use, a seeded choice.")] = 24,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Share of good parts that may be flagged, or not judged, e.g. 0.1.",
            show_default="3 × the model's rate, at least 0.05",
        ),
    ] = None,
    required: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            help="Exit with 1 if it does not hold within this strength, e.g. exposure=1; may be given several times.",
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float | None, typer.Option(help="Judge at this rate instead of the model's.", show_default="the model's")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same images: same numbers.")] = 0,
    weights: Weights = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Change normal parts on purpose, and say up to which strength the model holds.

    Exposure, gamma, contrast, colour temperature, shading, blur, noise, background, shifts
    and rotation: good parts flagged, synthetic defects still found and parts not judged, with
    and without the filter. It holds only where few good parts are flagged and defects are
    found as before. No defect image is needed. Exit code 0: measured; 1: a --require is not
    met; 2: nothing could be done.

    Example: nfad stress bottle.nfad --normals fresh/ --out stress --require exposure=1
    """
    wanted = _requirements(required or [])
    from nfad.model import load_model
    from nfad.report.stress import write_results
    from nfad.stress.session import cache_in
    from nfad.stress.session import stress as measure

    detector = load_model(model, weights, device=device)
    detector = detector if false_alarm_rate is None else detector.at_rate(false_alarm_rate)
    cache = cache_in(out_dir) if out_dir else None
    names = None if axes is None else [name.strip() for name in axes.split(",")]
    skipped: list[str] = []
    with progress_bars(not as_json) as progress:
        try:
            found = measure(
                detector, normals, names, images=images, seed=seed, limit=limit, required=wanted,
                cache=cache, skip=reporter(skipped), progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            if cache and any(cache.folder.glob("*.json")):
                err.print(f"Finished strengths are kept in {out_dir}; the same command goes on from there.")
            raise
        written = write_results(found, detector, f"What {model.name} bears", out_dir) if out_dir else []
    if as_json:
        print(strict_json({"model": str(model), **found.as_dict()}))
    else:
        _print(found, written)
    if found.unmet:
        raise typer.Exit(1)


def _requirements(pairs: list[str]) -> dict[str, float]:
    wanted = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            wanted[name] = float(value)
        except ValueError:
            raise NfadError(f"--require takes axis=strength, e.g. exposure=1; got {pair!r}") from None
    return wanted


def _print(found: Any, written: list[Path]) -> None:
    from nfad.stress.words import sentence

    findings = found.findings
    out.print(_table(findings))
    out.print(f"Thresholds: {found.promise}.", soft_wrap=True)
    for curve in findings.curves:
        out.print(f"[bold]{curve.axis.title}[/]: {escape(sentence(findings, curve))}", highlight=False, soft_wrap=True)
    for note in found.notes:
        err.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    for words in found.unmet:
        out.print(f"[red]Not met:[/] {escape(words)}", highlight=False, soft_wrap=True)
    if written:
        out.print(f"Look at [bold]{written[0]}[/]")
    else:
        out.print("Add --out DIR for a report with curves and pictures.")


def _table(findings: Any) -> Table:
    """A line an arm: how far it holds, what ends it, and both errors at the strongest that was tried."""
    from nfad.stress.findings import NEAR

    told = (
        f"It holds while no more than {findings.limit:.0%} of good parts are flagged, or not judged,\n"
        f"and of the defects that it stops in unchanged photos it still stops {NEAR:.0%}.\n"
        "What may be luck is not held against it. The first to end comes first."
    )
    table = Table(title=f"{len(findings.images)} normals\n{told}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    names = ("condition", "score", "holds to", "ended by", "strongest:\nflagged", "\nfound", "not\njudged")
    for name in names:
        table.add_column(name, justify="left" if name in names[:4] else "right")
    for filtered in findings.sides():
        for side in (filtered, findings.side(filtered.axis, filtered.side, "unfiltered")):
            curve = next(curve for curve in findings.curves if curve.axis is side.axis)
            last = curve.at(side.axis.of_side(side.side)[-1]).arms[side.arm]
            table.add_row(
                side.title if side is filtered else "",
                side.arm,
                "–" if side.ends == 0 else side.axis.told(side.holds) if side.holds else "unchanged",
                " and ".join(SHORT[name] for name in SHORT if getattr(side, name) == side.ends is not None) or "–",
                f"{last.false_alarms.value:.0%}",
                f"{last.detections.value:.0%}",
                f"{last.good_not_judged.value:.0%}" if side.arm == "filtered" or last.good_unjudged else "–",
            )
    return table
