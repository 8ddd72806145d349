"""`nfad upgrade`: write model files of older formats anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.terminal import out
from nfad.errors import NfadError


def upgrade(
    files: Annotated[list[Path], typer.Argument(help="Models written by `nfad fit`, also of older versions.")],
) -> None:
    """Bring model files to today's format; each old file is kept beside the new one as NAME.format-N.

    Files from format 3 on are read as they are, so this is only for those who want one format. The verdicts stay the
    same: what fits before format 5 did not measure, such as what a photo must look like to be judged, only a new fit
    can tell.
    To `nfad serve` the new file is another model of the same name: drift and review begin anew.

    Example: nfad upgrade models/*.nfad
    """
    from nfad.artifact.file import read_header
    from nfad.artifact.file import upgrade as write
    from nfad.artifact.formats import FORMAT, READ

    for path in files:  # first: all are models, or none is changed
        if path.is_dir():
            raise NfadError(f"{path} is an export; export it again from its model, which may be of an older format")
        read_header(path)
    for path in files:
        before = write(path)
        said = f"has format {FORMAT} already"
        if before < FORMAT:
            said = f"format {before} → {FORMAT}, kept as {path.name}.format-{before}"
            said += "; it judges every photo, as before" if before < READ else ""
        out.print(f"{escape(str(path))}: {escape(said)}.", soft_wrap=True, highlight=False)
