"""From a table's name and data sets to its CSV, Markdown and figure; and, before that, what it will take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfad.config import Config
from nfad.errors import NfadError
from nfad.paper.cells import Cell, run
from nfad.paper.estimates import Entry, Result
from nfad.paper.layout import KEY, as_csv, as_markdown
from nfad.paper.plugins import HostCell, run_hosts
from nfad.paper.table import Block, Options, Table, Variant
from nfad.paper.tables import TABLES, methods
from nfad.records import Dataset
from nfad.system.files import replacing
from nfad.system.progress import Progress
from nfad.system.results import ResultCache
from nfad.vision.corruptions import Corruption


@dataclass(frozen=True)
class Job:
    """A cell and where in the table it belongs."""

    dataset: str
    method: str
    variant: Variant
    cell: Cell | HostCell


def jobs(table: Table, datasets: Sequence[Dataset], config: Config, options: Options) -> list[Job]:
    """Every cell of a table."""
    if not datasets:
        raise NfadError(f"the table {table.name} needs at least one data set")
    for dataset in datasets:
        domains = dict.fromkeys(sample.domain for sample in dataset.test)
        if table.needs == "domains" and len(domains) < 2:
            raise NfadError(
                f"the table {table.name} compares acquisition domains, and {dataset.name} {dataset.category} has only "
                f"{', '.join(domains) or 'none'}; give aebad-s, mvtec-ad-2, magnetic-tile or demo"
            )
    made = []
    for method, variant, changed in variants_of(table, config, options):
        for dataset in datasets:
            if variant.host:
                ranks = tuple(dict.fromkeys((0, *options.ranks)))
                cell: Cell | HostCell = HostCell(dataset, changed, variant.host, ranks, options.steps)
            else:
                cell = Cell(dataset, changed, variant.measure, variant.corruption)
            made.append(Job(dataset.name, method, variant, cell))
    return made


def variants_of(table: Table, config: Config, options: Options) -> list[tuple[str, Variant, Config]]:
    """Every method and variant with its config; needs no data, so that a wrong option is told before any is made.

    The tables are of the paper's method: no score is read, no normal cross-fitted, and every photo judged.
    """
    for name in options.corruptions:
        Corruption.parse(name)
    config = config.changed(acquisitions=0)
    bases = methods(config) if table.both_orders else {config.teacher: config}
    return [
        (method, variant, _changed(base, variant))
        for method, base in bases.items()
        for variant in table.variants(base, options)
    ]


def run_table(
    table: Table,
    datasets: Sequence[Dataset],
    config: Config,
    options: Options,
    cache: ResultCache,
    progress: Progress | None = None,
    on_cell: Callable[[int, int], None] | None = None,
    device: str = "auto",
) -> list[Entry]:
    """Measure what is not yet on disk and lay everything out."""
    wanted = jobs(table, datasets, config, options)
    cells = [job.cell for job in wanted if isinstance(job.cell, Cell)]
    hosts = [job.cell for job in wanted if isinstance(job.cell, HostCell)]
    told = (cache, progress, on_cell, device)
    results = run_hosts(hosts, *told) if hosts else run(cells, *told)
    entries: list[Entry] = []
    for dataset, method in dict.fromkeys((job.dataset, job.method) for job in wanted):
        mine = [job for job in wanted if (job.dataset, job.method) == (dataset, method)]
        rows: dict[str, list[Result]] = {}
        for job in mine:
            rows.setdefault(job.variant.row, []).append(results[job.cell.key])
        categories = tuple(dict.fromkeys(job.cell.dataset.category for job in mine))
        entries += table.entries(Block(dataset, method, categories, rows))
    return entries


def write_table(table: Table, entries: Sequence[Entry], notes: Sequence[str], folder: Path, stem: str) -> list[Path]:
    """stem.csv and stem.md in `folder`."""
    told = "".join(f"- {note}\n" for note in notes)
    text = f"# {table.title} ({table.place})\n\n{KEY.format(baseline=table.baseline)}\n\n{told}\n{as_markdown(entries)}"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, contents in ((".csv", as_csv(entries)), (".md", text)):
        path = folder / f"{stem}{suffix}"
        with replacing(path) as file:
            file.write(contents.encode())
        written.append(path)
    return written


def table_named(name: str) -> Table:
    if name not in TABLES:
        raise NfadError(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
    return TABLES[name]


def _changed(config: Config, variant: Variant) -> Config:
    return config.changed(**variant.changes)
