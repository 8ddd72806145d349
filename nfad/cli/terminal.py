"""What the commands share: two consoles, records, notes, progress bars, skipped images, name=value settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from nfad.errors import NfadError
from nfad.records import ANOMALOUS, NORMAL, NOT_JUDGED, UNREADABLE, InspectionRecord
from nfad.verdict.choice import Choice

COLOURS = {NORMAL: "green", ANOMALOUS: "red", NOT_JUDGED: "yellow", UNREADABLE: "yellow"}
SOME_UNREADABLE, SOME_NOT_JUDGED = 1, 3  # exit codes; 2 is that nothing could be done
out, err = Console(), Console(stderr=True)


def note(sentence: str) -> None:
    """What a person should know, beside the results; brackets in it are not taken for colours."""
    err.print("[yellow]Note:[/] ", escape(sentence), sep="", soft_wrap=True, highlight=False)


def show(record: InspectionRecord) -> None:
    """One image a line; what is not judged shows no numbers, because they say nothing about the part."""
    scores = f"{record.score:7.2f} / {record.threshold:.2f}" if record.is_judged else ""
    out.print(
        f"[{COLOURS[record.verdict]}]{record.verdict:>10}[/]  {scores:14}  ", escape(record.image.replace("\n", "\\n")),
        f" [dim]{escape(record.explanation)}[/]", sep="", soft_wrap=True, highlight=False,
    )  # fmt: skip


def told(verdicts: Mapping[str, int]) -> str:
    """How many there are of each verdict, also of those that there are none of."""
    return ", ".join(f"{verdicts.get(verdict, 0)} {verdict}" for verdict in COLOURS)


def exit_code(verdicts: Mapping[str, int]) -> int:
    """0 if every image is judged."""
    if verdicts.get(UNREADABLE):
        return SOME_UNREADABLE
    return SOME_NOT_JUDGED if verdicts.get(NOT_JUDGED) else 0


def candidate_table(choice: Choice) -> Table:
    """What `--preset auto` tried."""
    table = Table(caption=choice.why_chosen(), caption_justify="left")
    for heading in ("candidate", "evidence", "synthetic defects found", "ms a photo, here"):
        table.add_column(heading)
    for each in choice.candidates:
        found = "too slow, not tried" if each.found is None else f"{each.found:.0%}"
        style = "bold" if each.name == choice.chosen else None
        table.add_row(each.name, each.evidence or "", found, f"{each.milliseconds:.0f}", style=style)
    return table


def settings(pairs: list[str]) -> dict[str, Any]:
    settings = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise NfadError(f"--set takes name=value; got {pair!r}")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value  # a bare word
    return settings


def reporter(failed: list[str]) -> Callable[[object, str], None]:
    def skip(image: object, reason: str) -> None:
        failed.append(str(image))
        err.print("[yellow]skipped:[/] ", escape(reason), sep="", soft_wrap=True, highlight=False)

    return skip


@contextmanager
def progress_bars(visible: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar a stage, on stderr, gone when done."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not visible) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            key = stage.split(" (")[0]
            if key not in tasks:
                tasks[key] = bars.add_task(stage, total=total)
            bars.update(tasks[key], completed=done, total=total, description=stage)

        yield report
