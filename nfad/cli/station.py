"""`nfad station`: look after what `nfad serve` keeps: backup, restore, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nfad.cli.terminal import note, out

if TYPE_CHECKING:
    from sqlalchemy import Engine

station = typer.Typer(help="Look after a station: what `nfad serve` keeps.", no_args_is_help=True)
tokens = typer.Typer(help="Who may do what; changes hold within a second, also while it runs.", no_args_is_help=True)
station.add_typer(tokens, name="token")
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


Name = Annotated[str, typer.Argument(help="Whose it is: a person, a camera, a program.")]


@tokens.command()
def add(
    name: Name,
    role: Annotated[
        str, typer.Option(help="view: look; operate: also judge and review; administer: also what --lock locks.")
    ],
    data: Data = Path("inspections"),
    db: Db = None,
) -> None:
    """Make a token and print it, this once; only its hash is kept.

    Example: nfad station token add camera-3 --role operate
    """
    from nfad.service.access import make_token

    with _engine(data, db) as engine:
        print(make_token(engine, name, role))


@tokens.command()
def rotate(name: Name, data: Data = Path("inspections"), db: Db = None) -> None:
    """Print a new token for a name; the old one is void."""
    from nfad.service.access import rotate_token

    with _engine(data, db) as engine:
        print(rotate_token(engine, name))


@tokens.command()
def revoke(name: Name, data: Data = Path("inspections"), db: Db = None) -> None:
    """Make a name's token void; its entries in the audit log stay."""
    from nfad.service.access import revoke_token

    with _engine(data, db) as engine:
        revoke_token(engine, name)
    out.print(f"{escape(name)} is revoked.", highlight=False)


@tokens.command("list")
def list_tokens(data: Data = Path("inspections"), db: Db = None) -> None:
    """Name all tokens, their roles, and whether they were revoked."""
    from nfad.service.access import all_tokens

    with _engine(data, db) as engine:
        for each in all_tokens(engine):
            state = f"revoked {each.revoked}" if each.revoked else f"since {each.made}"
            out.print(f"{escape(each.name)}  {each.role}  {state}", highlight=False)


@contextmanager
def _engine(data: Path, db: str | None) -> Iterator[Engine]:
    """The station's database, made if it is not there yet: a token may be made before the first start."""
    from nfad.service.settings import Settings
    from nfad.service.store import Store
    from nfad.system.files import ready_folder

    with closing(Store(Settings(ready_folder(data), db).database)) as store:
        yield store.engine
