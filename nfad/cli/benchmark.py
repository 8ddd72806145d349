"""`nfad benchmark`: the paper's tables on any data."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    dataset_at,
    drawable,
    spread,
)
from nfad.cli.terminal import err, note, out, progress_bars, settings
from nfad.errors import NfadError
from nfad.presets import DEFAULT
from nfad.system.files import ready_folder, strict_json

if TYPE_CHECKING:
    from nfad.paper.table import Options, Table


def benchmark(
    table: Annotated[str, typer.Argument(help="Which table; see above.")],
    roots: Annotated[
        list[str],
        typer.Argument(help="Data sets: FOLDER (its layout is recognised), NAME=FOLDER, or demo (rendered for you)."),
    ],
    category: Category = None,
    preset: Annotated[
        str | None,
        typer.Option(help="embedded, embedded-fast or paper.", show_default="embedded; plugins: embedded-fast, a CNN"),
    ] = None,
    teacher: Teacher = None,
    teachers: Annotated[
        str | None, typer.Option(help="foundations: the teachers to compare, e.g. embedded-vit,embedded-cnn,dinov3.")
    ] = None,
    weights: Weights = None,
    device: Device = "auto",
    reference: Reference = None,
    size: Size = None,
    foreground: Foreground = False,
    severities: Annotated[str | None, typer.Option(help="visa-c: corruption severities.", show_default="1,2,3")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="seeds, plugins, verdict: which; plugins gives their mean.",
            show_default="54,1,42,123,2025; plugins: 54; verdict: 54,1,42",
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="rank, plugins: columns a family.", show_default="8,16,32,64")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="plugins, verdict: the detectors that wear the filter; also anomalydino,subspacead,rad,dinomaly,mmr "
            "(glass needs nfad\\[anomalib]).",
            show_default="rd4ad,recontrast,patchcore,glass,uniad,nfad; verdict: none",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="plugins: training steps of hosts that are trained.", min=1, show_default="each its own"),
    ] = None,
    normals: Annotated[int | None, typer.Option(help="verdict: photos a fit.", min=8, show_default="60")] = None,
    photos: Annotated[
        int | None, typer.Option(help="verdict: good and bad photos tested, each.", min=4, show_default="30")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="verdict: the stated rate, 0.01, 0.05 or 0.1.", show_default="0.05")
    ] = None,
    setting: Setting = None,
    ray: Spread = None,
    workers: Workers = None,
    out_dir: Annotated[
        Path, typer.Option("-o", "--out", help="Where the table, its figure and the finished cells go.")
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
    seeds, basis, incidence, rank, entanglement, mechanism, plugins (other detectors
    wearing the filter).

    verdict is not of the paper: good parts flagged, bad ones passed and photos not judged
    under a suite of shifts at a stated rate, for the preset, for its filter alone, for
    developed photos alone, for plain augmentation in place of the filter, and for --hosts,
    bare and filtered; and how many strangers, photos without such a part, each calls normal.
    Give several sets: each is the others' strangers.

    Finished cells stay in OUT/cells: an interrupted run goes on where it stopped, and tables
    share what they have in common. Closed-form references are measured in both orders of
    filtering and fitting, and without acquisitions, which the paper does not know. With
    --preset paper the settings are exactly the paper's.

    Example: nfad benchmark aebad demo --foreground
    """
    from nfad.paper.layout import as_markdown
    from nfad.paper.plan import plan
    from nfad.paper.running import jobs, run_table, table_named, variants_of, write_table
    from nfad.system.results import ResultCache

    own = {"normals": normals, "photos": photos, "rate": rate}
    if table == "verdict":
        config = config_from(
            preset or DEFAULT, setting, teacher=teacher, weights=weights, reference=reference, size=size,
            foreground=foreground or None,
        )  # fmt: skip
        unused = {"severities": severities, "ranks": ranks, "teachers": teachers, "steps": steps, "dry-run": dry_run}
        _refuse(unused, "verdict")
        _verdict(roots, category, config, seeds, hosts, own, out_dir, as_json, device, ray, workers)
        return
    _refuse(own, table)
    wanted = table_named(table)
    config = config_from(
        preset or ("embedded-fast" if table == "plugins" else "embedded"), setting, teacher=teacher, weights=weights,
        reference=reference, size=size, foreground=foreground or None,
    )  # fmt: skip
    if config.beside:
        raise NfadError("the paper's tables look through one teacher: use --preset embedded or embedded-fast")
    if config.acquisitions and "acquisitions" in settings(setting or []):
        raise NfadError("the paper's tables know no acquisitions: leave --set acquisitions out")
    options = _options(
        wanted, {"severities": severities, "seeds": seeds, "ranks": ranks, "hosts": hosts, "teachers": teachers}, steps
    )
    variants_of(wanted, config, options)  # what makes no sense is told now, not after a set is rendered
    cache = ResultCache(out_dir / "cells")
    with progress_bars(not as_json) as progress, tempfile.TemporaryDirectory() as spare:
        datasets = _datasets(roots, category, Path(spare) if dry_run else out_dir, progress, dry_run)
        if dry_run:
            found = plan([job.cell for job in jobs(wanted, datasets, config, options)], cache)
            if as_json:
                print(strict_json(dataclasses.asdict(found)))
            else:
                out.print(found.told(), highlight=False, soft_wrap=True)
            return
        ready_folder(out_dir)
        try:
            with spread(ray, workers, device) as cluster:
                if cluster is not None:
                    from nfad.fleet.measuring import measure_cells

                    cells = [job.cell for job in jobs(wanted, datasets, config, options)]
                    measure_cells(cells, cache, cluster, lambda done, total: progress("cells", done, total), device)
            entries = run_table(
                wanted, datasets, config, options, cache, progress, lambda done, total: progress("cells", done, total),
                device,
            )  # fmt: skip
        except KeyboardInterrupt:
            err.print(f"Finished cells are kept in {cache.folder}; the same command goes on from there.")
            raise
        notes = [f"`{command_told(sys.argv[1:], roots)}`", *(words for each in datasets for words in each.notes)]
        names = "-".join(dict.fromkeys(each.name for each in datasets))
        stem = f"{table}-{names}"
        written = write_table(wanted, entries, notes, out_dir, stem)
        if drawable():
            from nfad.paper.figures import draw

            try:
                written.append(draw(table, entries, out_dir / f"{stem}.png"))
            except NfadError as error:  # e.g. pixel metrics of a set without masks: the table itself is written
                note(str(error))
    if as_json:
        print(strict_json([dataclasses.asdict(entry) for entry in entries]))
        return
    out.print(as_markdown(entries), markup=False, highlight=False, soft_wrap=True)
    out.print("Wrote " + ", ".join(str(path) for path in written))


def _refuse(options: dict[str, Any], table: str) -> None:
    for name, value in options.items():
        if value:
            raise NfadError(f"the table {table} does not use --{name}: leave it out")


def _verdict(
    roots: list[str],
    category: list[str] | None,
    config: Any,
    seeds: str | None,
    hosts: str | None,
    own: dict[str, Any],
    out_dir: Path,
    as_json: bool,
    device: str,
    ray: str | None,
    workers: int | None,
) -> None:
    from nfad.paper.plugins import HOSTS
    from nfad.paper.verdict import METHODS, RATES, SEEDS, cells_of, run_verdicts
    from nfad.paper.verdict_rows import row_of, written
    from nfad.system.files import replacing
    from nfad.system.results import ResultCache

    rate = own["rate"] or 0.05
    if rate not in RATES:
        raise NfadError(f"--rate must be one of {', '.join(map(str, RATES))}; got {rate:g}")
    chosen = hosts.split(",") if hosts else []
    if unknown := [name for name in chosen if name not in HOSTS]:
        raise NfadError(f"there is no host {unknown[0]!r}; the hosts are {', '.join(HOSTS)}")
    methods = [*METHODS, *(arm for name in chosen for arm in (name, f"{name} filtered"))]
    cache = ResultCache(ready_folder(out_dir) / "cells")
    with progress_bars(not as_json) as progress:
        datasets = _datasets(roots, category, out_dir, progress, False)
        cells = cells_of(
            datasets, config, methods, _numbers("seeds", seeds) if seeds else SEEDS, own["normals"] or 60,
            own["photos"] or 30,
        )  # fmt: skip
        with spread(ray, workers, device) as cluster:
            if cluster is not None:
                from nfad.fleet.measuring import measure_cells

                measure_cells(cells, cache, cluster, lambda done, total: progress("cells", done, total), device)
        results = run_verdicts(cells, cache, progress, lambda done, total: progress("cells", done, total), device)
    rows = [row_of(cell, result, rate) for cell, result in zip(cells, results, strict=True)]
    text, table = written(cells, results, [f"`{command_told(sys.argv[1:], roots)}`"], rate)
    stem = "verdict-" + "-".join(dict.fromkeys(each.category for each in datasets))
    paths = []
    for suffix, contents in ((".md", text), (".csv", table)):
        paths.append(out_dir / f"{stem}{suffix}")
        with replacing(paths[-1]) as file:
            file.write(contents.encode())
    if drawable():
        from nfad.paper.verdict_figure import draw

        paths.append(draw(cells, results, out_dir / f"{stem}.png", rate))
    if as_json:
        print(strict_json([dataclasses.asdict(row) for row in rows]))
        return
    out.print(text, markup=False, highlight=False, soft_wrap=True)
    out.print("Wrote " + ", ".join(str(path) for path in paths))


def _datasets(roots: list[str], categories: list[str] | None, out_dir: Path, progress: Any, dry_run: bool) -> list[Any]:
    from nfad.data.catalog import READERS, load
    from nfad.data.demo import write_demo
    from nfad.paper.plan import announced

    found = []
    for root in roots:
        if root == "demo" and not Path(root).exists():
            place = ready_folder(out_dir) / "demo-set"
            write_demo(place, progress=lambda done, total: progress("rendering", done, total))
            found += load("demo", place, categories)
        elif dry_run and root in READERS and not Path(root).exists():
            found += announced(root, categories)
        else:
            found += dataset_at(root, categories)[1]
    return found


def _options(table: Table, given: dict[str, str | None], steps: int | None) -> Options:
    """What the table may choose. An option of another table is refused: it would change nothing here."""
    from nfad.paper.table import Options
    from nfad.paper.tables import TABLES

    chosen = {name: text for name, text in given.items() if text is not None}
    for name in (*chosen, *(("steps",) if steps is not None else ())):
        if name not in table.options:
            users = " and ".join(each.name for each in TABLES.values() if name in each.options)
            raise NfadError(f"--{name} is for the table {users}; the table {table.name} does not use it: leave it out")
    lists: dict[str, Any] = {
        name: tuple(text.split(",")) if name in ("hosts", "teachers") else _numbers(name, text)
        for name, text in chosen.items()
    }
    return Options(**lists, steps=steps)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise NfadError(f"--{name} takes whole numbers with commas between, e.g. 1,2,3; got {text!r}") from None


OUT = ("-o", "--out")


def command_told(arguments: list[str], roots: list[str]) -> str:
    """The command as others may repeat it: data sets without the folders of this machine, nothing of --out."""
    told, skip = ["nfad"], False
    for argument in arguments:
        if skip or argument in (*OUT, "--json") or argument.startswith("--out="):
            skip = argument in OUT and not skip
            continue
        if argument in roots:
            name, _, place = argument.partition("=")
            argument = f"{name}=DATA" if place else Path(argument).name
        told.append(argument)
    return " ".join(told)
