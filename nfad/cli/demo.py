"""`nfad demo`: the whole job on a rendered set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.evaluate import evaluation_tables
from nfad.cli.options import Json
from nfad.cli.terminal import out, progress_bars
from nfad.presets import DEFAULT
from nfad.system.files import strict_json


def demo(
    folder: Annotated[
        Path, typer.Option("-o", "--out", help="Where the rendered set, the model and the page go.")
    ] = Path("demo"),
    preset: Annotated[str, typer.Option(help="embedded-all, embedded-both, embedded or embedded-fast.")] = DEFAULT,
    as_json: Json = False,
) -> None:
    """Render a small inspection set, fit on its good parts, and compare filtered with unfiltered under each shift.

    The table shows both errors: good parts flagged and bad parts passed, and what is said of a photo that shows no
    part of the set. Everything runs offline; about three minutes on two cores.
    """
    from nfad.report.demonstration import demonstrate

    with progress_bars(not as_json) as progress:
        found = demonstrate(folder, preset, progress)
    stranger = found.stranger
    if as_json:
        verdicts = {
            "image": stranger.source, "verdict": stranger.verdict, "unfiltered_verdict": stranger.unfiltered_verdict,
            "strangeness": stranger.strangeness, "explanation": stranger.explain(),
        }  # fmt: skip
        rows = [row.as_dict() for row in found.rows]
        print(strict_json({"page": str(found.page), "rows": rows, "stranger": verdicts}))
        return
    for table in evaluation_tables("The demo set", found.rows):
        out.print(table)
    out.print(f"Thresholds: {found.promise}.", soft_wrap=True)
    out.print(f"A stranger, a photo of the empty bench: [bold]{escape(stranger.explain())}[/]", soft_wrap=True)
    out.print(f"Look at [bold]{found.page}[/]")
