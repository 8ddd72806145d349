"""The commands for measuring: `nfad evaluate` on one data set, `nfad benchmark` for the paper's tables."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from nfad.errors import NfadError
from nfad.terminal import err, out, progress_bars, settings
from nfad.writing import ready_folder, strict_json

Preset = Annotated[str, typer.Option(help="embedded (offline), embedded-fast, or paper (DINOv3 + student).")]
Teacher = Annotated[str | None, typer.Option(help="Another teacher than the preset's, as for `nfad fit`.")]
Weights = Annotated[str | None, typer.Option(help="Teacher weights on this machine: a file or folder (no hub needed).")]
Reference = Annotated[str | None, typer.Option(help="linear, nearest or student.")]
Size = Annotated[int | None, typer.Option(help="Side of the model's view.")]
Foreground = Annotated[bool, typer.Option("--foreground", help="Only the part counts, not what lies behind it.")]
Category = Annotated[
    list[str] | None, typer.Option("--category", help="Only this category; may be given several times.")
]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting as name=value (JSON), e.g. --set variance=0.95.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]


def evaluate(
    dataset: Annotated[
        str,
        typer.Argument(help="aebad-s, mvtec-ad, mvtec-ad-2, visa, real-iad, mpdd, magnetic-tile, folder or demo."),
    ],
    root: Annotated[Path, typer.Argument(help="The data set's folder.")],
    category: Category = None,
    model: Annotated[
        Path | None, typer.Option(help="Judge with this model instead of fitting one on the set's training images.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="embedded (offline), embedded-fast, or paper (DINOv3 + student).", show_default="embedded"
        ),
    ] = None,
    teacher: Teacher = None,
    weights: Weights = None,
    reference: Reference = None,
    size: Size = None,
    foreground: Foreground = False,
    seed: Annotated[int | None, typer.Option(help="Same seed, same images: same numbers.")] = None,
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(
            help="The threshold's rate, set on held-out normals.", show_default="0.01, or the model's own"
        ),
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
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Write report.html, results.csv, scores.csv and triplets.png into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit on a data set's good images, judge its test images, and say how sure every number is.

    Every row compares the same detector without (control) and with the filter. Thresholds
    come from held-out normals, never from the test set.

    Example: nfad evaluate mvtec-ad DATA --category bottle --corrupt contrast:3 --out results
    """
    from nfad.data.catalog import load
    from nfad.data.counts import total_notes
    from nfad.evaluation.session import evaluate_dataset, write_results

    given = {
        "--preset": preset, "--teacher": teacher, "--reference": reference, "--size": size, "--seed": seed,
        "--set": setting, "--foreground": foreground or None,
    }  # fmt: skip
    wrong = [name for name, value in given.items() if value is not None]
    if model is not None and wrong:
        raise NfadError(f"--model is judged as it was fitted; leave out {', '.join(wrong)}")
    if out_dir:
        ready_folder(out_dir)
    config = _config(preset or "embedded", teacher, weights, reference, size, foreground, seed, setting)
    if false_alarm_rate is not None:
        config = dataclasses.replace(config, false_alarm_rate=false_alarm_rate)
    sets = load(dataset, root, category)
    findings = []
    with progress_bars(not as_json) as progress:
        for note in [note for each in sets for note in each.notes] + ([] if category else list(total_notes(sets))):
            err.print(f"[yellow]Note:[/] {escape(note)}", highlight=False)
        for each in sets:
            findings += evaluate_dataset(
                each, config, corrupt or [], model=model, weights=weights, rate=false_alarm_rate, readout=readout,
                protocol=protocol, progress=progress,
            )  # fmt: skip
        written = write_results(findings, out_dir, progress) if out_dir else []
        if out_dir and drawable():
            from nfad.benchmark.qualitative import draw_qualitative

            for finding, page in zip(findings, [path for path in written if path.suffix == ".html"], strict=True):
                draw_qualitative(finding, page.with_name(page.stem.replace("report", "triplets") + ".png"))
    if as_json:
        print(strict_json([finding.as_dict() for finding in findings]))
        return
    for finding in findings:
        out.print(evaluation_table(finding.title, finding.evaluation.rows))
        for note in finding.notes[len(finding.dataset.notes) :]:
            err.print(f"[yellow]Note:[/] {escape(note)}", highlight=False)
    _print_rate(findings[0].detector)
    if written:
        out.print("Look at " + ", ".join(f"[bold]{path}[/]" for path in written if path.suffix == ".html"))
    else:
        out.print("Add --out DIR for a report with curves, histograms and pictures.")


def benchmark(
    table: Annotated[str, typer.Argument(help="Which table; see above.")],
    roots: Annotated[
        list[str],
        typer.Argument(help="Data sets: FOLDER (its layout is recognised), NAME=FOLDER, or demo (rendered for you)."),
    ],
    category: Category = None,
    preset: Preset = "embedded",
    teacher: Teacher = None,
    teachers: Annotated[
        str | None, typer.Option(help="foundations: the teachers to compare, e.g. embedded-vit,embedded-cnn,dinov3.")
    ] = None,
    weights: Weights = None,
    reference: Reference = None,
    size: Size = None,
    foreground: Foreground = False,
    severities: Annotated[str, typer.Option(help="visa-c: corruption severities.")] = "1,2,3",
    seeds: Annotated[str, typer.Option(help="seeds: which.")] = "54,1,42,123,2025",
    ranks: Annotated[str, typer.Option(help="rank: columns a family.")] = "8,16,32,64",
    setting: Setting = None,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Where the table, its figure and the finished cells go.")
    ] = Path("benchmark"),
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say which images, weights and hours it takes, and stop. A data set's bare name will do: aebad-s.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure one of the paper's tables on your data, with the paper's values beside yours.

    Tables: aebad, standard, detection-ablation, localization-ablation, visa-c, foundations,
    seeds, basis, incidence, rank, entanglement, mechanism.

    Finished cells stay in OUT/cells: an interrupted run goes on where it stopped, and tables
    share what they have in common. Closed-form references are measured in both orders of
    filtering and fitting. With --preset paper the settings are exactly the paper's.

    Example: nfad benchmark aebad demo --foreground
    """
    from nfad.benchmark.cells import Store
    from nfad.benchmark.layout import as_markdown
    from nfad.benchmark.plan import plan
    from nfad.benchmark.running import jobs, run_table, table_named, write_table
    from nfad.benchmark.table import Options

    wanted = table_named(table)
    if not dry_run:
        ready_folder(out_dir)
    config = _config(preset, teacher, weights, reference, size, foreground, None, setting)
    options = Options(
        severities=_numbers("severities", severities),
        seeds=_numbers("seeds", seeds),
        ranks=_numbers("ranks", ranks),
        **({"teachers": tuple(teachers.split(","))} if teachers else {}),
    )
    store = Store(out_dir / "cells")
    with progress_bars(not as_json) as progress:
        datasets = _datasets(roots, category, out_dir, progress, dry_run)
        if dry_run:
            found = plan([job.cell for job in jobs(wanted, datasets, config, options)], store)
            if as_json:
                print(strict_json(dataclasses.asdict(found)))
            else:
                out.print(found.told(), highlight=False, soft_wrap=True)
            return
        try:
            entries = run_table(
                wanted, datasets, config, options, store, progress, lambda done, total: progress("cells", done, total)
            )
        except KeyboardInterrupt:
            err.print(f"Finished cells are kept in {store.folder}; the same command goes on from there.")
            raise
        notes = [f"`{command_told(sys.argv[1:], roots)}`", *(note for each in datasets for note in each.notes)]
        names = "-".join(dict.fromkeys(each.name for each in datasets))
        stem = f"{table}-{names}"
        written = write_table(wanted, entries, notes, out_dir, stem)
        if drawable():
            from nfad.benchmark.figures import draw

            try:
                written.append(draw(table, entries, out_dir / f"{stem}.png"))
            except NfadError as error:  # e.g. pixel metrics of a set without masks: the table itself is written
                err.print(f"[yellow]Note:[/] {escape(str(error))}", highlight=False)
    if as_json:
        print(strict_json([dataclasses.asdict(entry) for entry in entries]))
        return
    out.print(as_markdown(entries), markup=False, highlight=False, soft_wrap=True)
    out.print("Wrote " + ", ".join(str(path) for path in written))


def evaluation_table(title: str, rows: Any) -> Table:
    """Control → filtered by domain, for a terminal."""
    told = "Control→filtered; gain with its 95 % interval; alarms: good parts flagged"
    table = Table(title=f"{escape(title)}\n{told}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("domain", "image AUROC", "gain [95 %]", "alarms", "AUPRO"):
        table.add_column(name, justify="left" if name == "domain" else "right", no_wrap=True)
    for row in rows:
        control, ours, gain = row.arms["control"], row.arms["nfad"], row.gains["i_auroc"]
        change = f"{control.i_auroc:.3f}→{ours.i_auroc:.3f}"
        table.add_row(
            escape(row.domain),
            (f"[bold]{change}[/]" if gain.excludes_zero else change).replace("nan", "–"),
            "–" if math.isnan(gain.value) else rf"{gain.value:+.2f} \[{gain.low:+.2f},{gain.high:+.2f}]",
            f"{control.false_alarms:.0%}→{ours.false_alarms:.0%}".replace("nan%", "–"),
            f"{control.aupro:.3f}→{ours.aupro:.3f}".replace("nan", "–"),
        )
    return table


def _print_rate(detector: Any) -> None:
    asked, rate = detector.config.false_alarm_rate, detector.false_alarm_rate
    out.print(f"Thresholds: set on {len(detector.held_out.detection)} held-out normals for {rate:.2%} false alarms.")
    if rate > asked:
        err.print(f"[yellow]Note:[/] that is the least so few held-out images support; {asked:.2%} was asked for.")


def drawable() -> bool:
    """Whether figures can be drawn; if not, what to install is said, and the rest is written all the same."""
    if importlib.util.find_spec("matplotlib"):
        return True
    err.print("[yellow]Note:[/] no figure is drawn without matplotlib; run: pip install 'nfad\\[figures]'")
    return False


def _config(
    preset: str,
    teacher: str | None,
    weights: str | None,
    reference: str | None,
    size: int | None,
    foreground: bool,
    seed: int | None,
    setting: list[str] | None,
) -> Any:
    from nfad.config import Config

    changes = {"teacher": teacher, "weights": weights, "reference": reference, "size": size, "seed": seed}
    changes["foreground"] = foreground or None
    if reference == "student":  # it is trained on raw tokens
        changes["order"] = "fit-then-filter"
    changes = {name: value for name, value in changes.items() if value is not None} | settings(setting or [])
    return Config.preset(preset, **changes)


def _datasets(
    roots: list[str], categories: list[str] | None, out_dir: Path, progress: Any, dry_run: bool
) -> list[Any]:
    from nfad.benchmark.plan import announced
    from nfad.data.catalog import READERS, load, recognise
    from nfad.data.demo import write_demo

    found = []
    for root in roots:
        name, _, place = root.partition("=")
        if root == "demo" and not Path(root).exists():
            written = write_demo(out_dir / "demo-set", progress=lambda done, total: progress("rendering", done, total))
            found += load("demo", written, categories)
        elif dry_run and root in READERS and not Path(root).exists():
            found += announced(root, categories)
        elif place and name in READERS:
            found += load(name, Path(place), categories)
        else:
            found += load(recognise(Path(root)), Path(root), categories)
    return found


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise NfadError(f"--{name} takes whole numbers with commas between, e.g. 1,2,3; got {text!r}") from None


def command_told(arguments: list[str], roots: list[str]) -> str:
    """The command as others may repeat it: data sets without the folders of this machine, nothing of --out."""
    told, skip = ["nfad"], False
    for argument in arguments:
        if skip or argument in ("--out", "--json"):
            skip = argument == "--out"
            continue
        if argument in roots:
            name, _, place = argument.partition("=")
            argument = f"{name}=DATA" if place else Path(argument).name
        told.append(argument)
    return " ".join(told)
