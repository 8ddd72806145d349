"""Templates → HTML. Python prepares the data, the files under templates/ hold all markup, style and script."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nfad.report.pictures import COLOURS
from nfad.system.files import replacing

FOLDER = Path(__file__).with_name("templates")


class Figure(NamedTuple):
    """A large figure for figures.html, what it counts, and more in small print."""

    value: str
    words: str
    more: str = ""


@cache
def source(name: str) -> Markup:
    """A style sheet or script as it stands, to be put into the page."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def policy(script: str) -> Markup:
    """The Content-Security-Policy of a page with this script inside.

    Only our own script may run and nothing may be fetched, even if some text were to slip through unescaped.
    """
    allowed = b64encode(sha256(source(script).encode()).digest()).decode()
    return Markup(f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'")


def rendered(template: str, **values: object) -> Markup:
    """One piece of a page."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))


def write_page(path: str | Path, template: str, **values: object) -> Path:
    """Write a page piece by piece, so that iterators among the values are never held whole.

    It appears whole or not at all.
    """
    with replacing(path) as file:
        file.writelines(map(encoded, _ENVIRONMENT.get_template(template).generate(**values)))
    return Path(path)


def encoded(text: str) -> bytes:
    # A file name need not be valid Unicode; one odd name must not cost the whole report.
    return text.encode("utf-8", "replace")


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals.update(
    source=source,
    policy=policy,
    colour_stops=", ".join(f"rgb({r} {g} {b} / {a / 255:.2f})" for r, g, b, a in COLOURS[::15]),
)
