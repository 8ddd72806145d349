"""A report to look at: one HTML file that needs nothing else, written image by image."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Self

import numpy as np

from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import Prediction
from nfad.report.card import changed, failed_card, judged_card
from nfad.report.look import SCRIPT, STYLE
from nfad.report.pictures import COLOURS, HIGH
from nfad.system.files import replacing, scratch_beside

GUIDE = """
<details><summary>How to read this page</summary>
<p>Each part is judged twice: by the plain detector, and by the same detector after the changes that light, background
or camera cause have been filtered out. The verdict is the filtered one.</p>
<p>Colours and bars share one scale of z-scores on every image: 0 is an average normal part. The mark on a bar and the
outline in the map of a rejected part show the threshold. A map says where; the score, taken from the most deviating
hundredth of the image, decides.</p>
<p>The gate says how much of the filter the map uses: 1 when the deviation is spread over the whole part, as a change
of light is; less when it is concentrated, as a defect is. Point at a map to see the photo below it.</p>
</details>
"""


class Strong(str):
    """A table cell to emphasise."""


class Page:
    """Write the report image by image; memory does not grow with their number.

    with Page("report.html", "Line 3, Monday", facts=[("Model", "bottle.nfad")]) as page:
        page.add(photo, prediction)
        page.add_failure("b.jpg", "the file is cut off")

    The file appears when the block ends; after an exception there is none, and an older one of that name is untouched.
    An image that `add` refuses leaves no trace, so that the caller may report it with `add_failure` and go on.
    """

    def __init__(self, path: str | Path, title: str, facts: Iterable[tuple[str, object]] = (), high: float = HIGH):
        self.path, self.title, self.facts, self.high = Path(path), title, list(facts), high
        self.counts: Counter[str] = Counter()
        self._opening: int | None = None  # bytes of tables and headings before the first image
        self._listing = False  # whether the body is inside a list of images

    def __enter__(self) -> Self:
        # The head tells the counts, so it is written last; until then the body waits beside the page.
        self._body = scratch_beside(self.path)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        with self._body:
            if kind is not None:
                return
            self._list(False)
            self._body.seek(0)
            with replacing(self.path) as file:
                guide = GUIDE if self.counts["judged"] else ""
                file.write(encoded(opening(self.title, self.facts, summary=_summary(self.counts), after=guide)))
                file.write(self._body.read(self._opening))  # all of it, if there was no image
                file.write(encoded(_bar(self.counts, self.high)))
                shutil.copyfileobj(self._body, file)
                file.write(encoded(CLOSING))

    def add(self, photo: np.ndarray, prediction: Prediction) -> None:
        """One judged image."""
        name = prediction.source or f"Image {self.counts['shown'] + 1}"
        card = judged_card(photo, prediction, self.high, name)
        turned = changed(prediction)
        self.counts.update(
            shown=1,
            judged=1,
            anomalous=int(prediction.is_anomalous),
            cleared=int(turned and not prediction.is_anomalous),
            found=int(turned and prediction.is_anomalous),
        )
        self._list(True)
        self._write(card)

    def add_failure(self, source: str | Path, message: str) -> None:
        """One image that could not be judged, and why."""
        self.counts.update(shown=1, failed=1)
        self._list(True)
        self._write(failed_card(str(source), str(message)))

    def add_section(self, title: str, text: str = "") -> None:
        """A heading for what follows. Sorting keeps images within their section."""
        self._list(False)
        self._write(f"<h2>{escape(title)}</h2>\n" + (f'<p class="lead">{escape(text)}</p>\n' if text else ""))

    def add_table(self, caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
        """A table whose first column names its rows; a `Strong` cell is emphasised."""
        table = _table(caption, header, rows)
        self._list(False)
        self._write(table)

    def _list(self, wanted: bool) -> None:
        """Open or close the list that images stand in."""
        if wanted and self._opening is None:
            self._opening = self._body.tell()
        if wanted != self._listing:
            self._write('<div class="items">\n' if wanted else "</div>\n")
            self._listing = wanted

    def _write(self, text: str) -> None:
        self._body.write(encoded(text))


def about(model: Model) -> dict[str, str]:
    """What a reader of a page should know of the model; of an export also which one it is."""
    config = model.config
    told = {
        "Teacher": f"{config.teacher} ({model.architecture})",
        "Reference": f"{config.reference}, {config.order}",
        "Fitted on": f"{model.fitted_on} normal images, {len(model.held_out.filtered)} more held out",
        "False-alarm rate": f"{model.false_alarm_rate:.2%} of normal images at most, without shift",
    }
    return told | ({"Exported": model.exported} if model.exported else {})


def encoded(text: str) -> bytes:
    # A file name need not be valid Unicode; one odd name must not cost the whole report.
    return text.encode("utf-8", "replace")


def opening(
    title: str,
    facts: Iterable[tuple[str, object]],
    *,
    brand: str = "Inspection report",
    summary: str = "",
    after: str = "",
    style: str = "",
) -> str:
    """The page up to where its contents begin; `summary` stands above the facts and `after` below, both HTML."""
    # Only our own script may run and nothing may be fetched, even if some text were to slip through unescaped.
    allowed = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    told = "".join(f"<div><dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd></div>\n" for name, value in facts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        f'<header class="wide">\n<p class="brand"><b>NFAD</b>{escape(brand)}</p>\n<h1>{escape(title)}</h1>\n{summary}'
        + (f'<dl class="facts">\n{told}</dl>\n' if told else "")
        + f'{after}</header>\n<main class="wide">\n'
    )


CLOSING = f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"


def _summary(counts: Counter[str]) -> str:
    if not counts["shown"]:
        return ""
    turns = f"{counts['cleared']} rejected only without it, {counts['found']} only with it"
    return figures(
        [
            (counts["judged"], "judged", ""),
            (counts["anomalous"], "anomalous", ""),
            (counts["cleared"] + counts["found"], "verdicts changed by the filter", turns),
            (counts["failed"], "not judged", ""),
        ]
    )


def figures(numbers: Iterable[tuple[object, str, str]]) -> str:
    """What a reader in a hurry takes away: a large figure, what it counts, and more in small print."""
    items = "".join(
        f"<li><b>{escape(str(figure))}</b> {escape(words)}{f'<small>{escape(more)}</small>' if more else ''}</li>"
        for figure, words, more in numbers
    )
    return f'<ul class="counts">{items}</ul>\n'


def _bar(counts: Counter[str], high: float) -> str:
    """What to show and how: it follows the reader down the page."""
    if not counts["shown"]:
        return ""
    filters = [
        ("all", f"All <span>{counts['shown']}</span>"),
        ("anomalous", f"Anomalous <span>{counts['anomalous']}</span>"),
        ("changed", f"Verdict changed <span>{counts['cleared'] + counts['found']}</span>"),
        ("failed", f"Not judged <span>{counts['failed']}</span>"),
    ]
    return f"""<div class="bar">
<div>{_choice("show", "Images to show", filters)}
<label>Sort <select id="sort"><option value="given">as given</option>
<option value="high">highest score first</option><option value="low">lowest score first</option></select></label>
<span role="status"></span></div>
{map_controls(high)}</div>
"""


def map_controls(high: float) -> str:
    """Which of the maps to show, how strongly, and the scale they share."""
    maps = [("both", "Both maps"), ("without", "Without filter"), ("with", "With filter")]
    stops = ", ".join(f"rgb({r} {g} {b} / {a / 255:.2f})" for r, g, b, a in COLOURS[::15])
    return f"""<div>{_choice("map", "Maps to show", maps)}
<label>Photo <input id="fade" type="range" max="100" value="100" aria-label="Opacity of the maps"> Map</label>
<span class="scale" role="img" aria-label="Colour scale: z-scores from 0 to {high:g}">0
<i style="background: linear-gradient(90deg, {stops}), #808080"></i> {high:g} z</span></div>
"""


def _choice(key: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    """Buttons of which one is pressed, at first the first."""
    buttons = "".join(
        f'<button type="button" data-{key}="{value}" aria-pressed="{"false" if place else "true"}">{words}</button>'
        for place, (value, words) in enumerate(options)
    )
    return f'<div class="choice" role="group" aria-label="{label}">{buttons}</div>'


def _table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = []
    for row in rows:
        if len(row) != len(header):
            raise NfadError(
                f"table {caption!r}: a row must have a cell under each of the {len(header)} headings; "
                f"got {len(row)}: fill it with empty cells."
            )
        first, *others = map(_cell, row)
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in others)
        lines.append(f'<tr><th scope="row">{first}</th>{numbers}</tr>\n')
    first, *others = map(_cell, header)
    columns = f'<th scope="col">{first}</th>' + "".join(
        f'<th scope="col" class="number">{cell}</th>' for cell in others
    )
    label = escape(caption)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>\n<caption>{label}</caption>\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>\n</table></div>\n"
    )


def _cell(content: object) -> str:
    return f"<strong>{escape(content)}</strong>" if isinstance(content, Strong) else escape(str(content))
