"""`nfad station`: keep what `nfad serve` has: backup and restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.terminal import note, out

station = typer.Typer(help="Look after a station: what `nfad serve` keeps.", no_args_is_help=True)
Data = Annotated[Path, typer.Option(help="The folder of `nfad serve --data`.")]
Db = Annotated[
    str | None,
    typer.Option(envvar="NFAD_DB", help="The database of `nfad serve --db`.", show_default="SQLite in the folder"),
]


@station.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A new file, or a folder, in which its name will tell the time.")],
    data: Data = Path("inspections"),
    db: Db = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write database, pictures and models to one file, as they are at one moment; the service may go on.

    The file is a tar with a checksum of everything in it. It also moves a station from SQLite to PostgreSQL or back.

    Example: nfad station backup /mnt/backup --data inspections
    """
    from nfad.service.backup import backup as write

    made = write(data, target, db, force=force)
    if not made.models:
        note(f"the models are not in it: {data} does not say which; start `nfad serve` once with this version")
    counted = f"{made.inspections} inspections, {made.pictures} with pictures, {len(made.models)} models"
    out.print(f"{escape(str(made.path))}: {counted}.", soft_wrap=True, highlight=False)


@station.command()
def restore(
    file: Annotated[Path, typer.Argument(help="Written by `nfad station backup`.")],
    data: Data = Path("inspections"),
    db: Db = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take the place of what is there; the folder is kept beside it.")
    ] = False,
) -> None:
    """Put a backup back: all of it after every checksum was looked at, or nothing.

    Example: nfad station restore nfad-station-20260302T090000Z.tar --data inspections
    """
    from nfad.service.backup import restore as put_back

    held = put_back(file, data, db, force=force)
    models = " ".join(f"{Path(each).name.removesuffix('.nfad')}={data / each}" for each in held.models) or "MODEL"
    out.print(f"{held.inspections} inspections, {held.pictures} with pictures.", highlight=False)
    command = f"nfad serve {models} --data {data}{' --db …' if db else ''}"
    out.print(f"Go on with: {escape(command)}", soft_wrap=True, highlight=False)
