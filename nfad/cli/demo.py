"""`nfad demo`: the whole job on a rendered set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nfad.cli.evaluate import evaluation_table
from nfad.cli.options import Json
from nfad.cli.terminal import out, progress_bars
from nfad.system.files import strict_json


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the rendered set, the model and the page go.")] = Path(
        "demo"
    ),
    preset: Annotated[str, typer.Option(help="embedded or embedded-fast.")] = "embedded",
    as_json: Json = False,
) -> None:
    """Render a small inspection set, fit on its good parts, and compare filtered with unfiltered under each shift.

    Everything runs offline; about three minutes on two cores.
    """
    from nfad.report.demonstration import demonstrate

    with progress_bars(not as_json) as progress:
        rows, page = demonstrate(folder, preset, progress)
    if as_json:
        print(strict_json({"page": str(page), "rows": [row.as_dict() for row in rows]}))
        return
    out.print(evaluation_table("The demo set", rows))
    out.print(f"Look at [bold]{page}[/]")
