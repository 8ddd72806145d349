"""The inspection page: one HTML file that needs nothing else, written image by image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from markupsafe import Markup

from nfad.errors import NfadError
from nfad.model import Model
from nfad.records import ANOMALOUS, NORMAL, Prediction
from nfad.report.card import card_of, changed, failure_of
from nfad.report.pictures import HIGH
from nfad.report.rendering import Figure, encoded, rendered, write_page
from nfad.system.files import scratch_beside, writing


class Strong(str):
    """A table cell to emphasise."""


class Cell(NamedTuple):
    """A table cell as table.html takes it."""

    text: str
    strong: bool


class Page:
    """Write the page image by image; memory does not grow with their number.

    with Page("report.html", "Line 3, Monday", metadata=[("Model", "bottle.nfad")]) as page:
        page.add(photo, prediction)
        page.add_failure("b.jpg", "the file is cut off")

    The file appears when the block ends; after an exception there is none, and an older one of that name is untouched.
    An image that `add` refuses leaves no trace, so that the caller may report it with `add_failure` and go on.
    """

    def __init__(self, path: str | Path, title: str, metadata: Iterable[tuple[str, object]] = (), high: float = HIGH):
        self.path, self.title, self.metadata, self.high = Path(path), title, list(metadata), high
        self.counts: Counter[str] = Counter()
        self._first_image: int | None = None  # where it begins in the body, after tables and headings
        self._listing = False  # whether the body is inside a list of images

    def __enter__(self) -> Self:
        # The head tells the counts, so it is written last; until then the body waits beside the page.
        self._body = scratch_beside(self.path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._body:
            if kind is not None:
                return
            self._list(False)
            end = self._body.tell()
            first_image = end if self._first_image is None else self._first_image
            write_page(
                self.path,
                "inspection.html",
                title=self.title,
                metadata=self.metadata,
                high=self.high,
                counts={name: self.counts[name] for name in ("shown", "judged", "not_judged", "gated")},
                figures=_figures(self.counts),
                choices=_choices(self.counts),
                opening=self._lines(0, first_image),
                images=self._lines(first_image, end),
            )

    def add(self, photo: np.ndarray, prediction: Prediction) -> None:
        """One image with its verdict."""
        name = prediction.source or f"Image {self.counts['shown'] + 1}"
        card = card_of(photo, prediction, self.high, name)
        self.counts.update(
            shown=1,
            judged=int(prediction.is_judged),
            not_judged=int(not prediction.is_judged),
            anomalous=int(prediction.verdict == ANOMALOUS),
            cleared=int(changed(prediction) and prediction.verdict == NORMAL),
            found=int(changed(prediction) and prediction.verdict == ANOMALOUS),
            gated=int(prediction.gate is not None),
        )
        self._list(True)
        self._write(rendered("card.html", card=card))

    def add_failure(self, source: str | Path, message: str, *, readable: bool = False) -> None:
        """One image that could not be read, or that could and that the model failed on; and why."""
        self.counts.update(shown=1, **{"not_judged" if readable else "failed": 1})
        self._list(True)
        self._write(rendered("failure.html", card=failure_of(str(source), str(message)), readable=readable))

    def add_section(self, title: str, text: str = "") -> None:
        """A heading for what follows. Sorting keeps images within their section."""
        self._list(False)
        self._write(rendered("section.html", title=title, text=text))

    def add_table(self, caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
        """A table whose first column names its rows; a `Strong` cell is emphasised."""
        checked = []
        for row in rows:
            if len(row) != len(header):
                raise NfadError(
                    f"table {caption!r}: a row must have a cell under each of the {len(header)} headings; "
                    f"got {len(row)}: fill it with empty cells."
                )
            checked.append(_cells(row))
        self._list(False)
        self._write(rendered("table.html", caption=caption, header=_cells(header), rows=checked))

    def _list(self, wanted: bool) -> None:
        """Open or close the list that images stand in."""
        if wanted and self._first_image is None:
            self._first_image = self._body.tell()
        if wanted != self._listing:
            self._write('<div class="items">\n' if wanted else "</div>\n")
            self._listing = wanted

    def _write(self, text: str) -> None:
        with writing(self.path):
            self._body.write(encoded(text))

    def _lines(self, start: int, end: int) -> Iterator[Markup]:
        """A stretch of the body."""
        with writing(self.path):  # what is still in the buffer
            self._body.seek(start)
        while (left := end - self._body.tell()) > 0:
            yield Markup(self._body.readline(left).decode())


def about(model: Model) -> dict[str, str]:
    """What a reader of a page should know of the model; of an export also which one it is."""
    config = model.config
    looks = zip(config.looks, model.architecture.split(", "), strict=True)
    told = {
        "Teacher": ", ".join(f"{look.teacher} ({architecture})" for look, architecture in looks),
        "Reference": f"{config.reference}, {config.order}",
        "Fitted on": config.normals_told(model.fitted_on, model.held_out.count),
        "False-alarm rate": model.held_out.told(config.false_alarm_rate),
    }
    return told | ({"Exported": model.exported} if model.exported else {})


def _cells(row: Sequence[object]) -> list[Cell]:
    return [Cell(str(cell), isinstance(cell, Strong)) for cell in row]


def _figures(counts: Counter[str]) -> list[Figure]:
    if not counts["shown"]:
        return []
    turns = f"{counts['cleared']} rejected only unfiltered, {counts['found']} only filtered"
    return [
        Figure(str(counts["judged"]), "judged"),
        Figure(str(counts["anomalous"]), "anomalous"),
        Figure(str(counts["cleared"] + counts["found"]), "verdicts changed by the filter", turns),
        Figure(str(counts["not_judged"]), "not judged"),
        Figure(str(counts["failed"]), "could not be read"),
    ]


def _choices(counts: Counter[str]) -> list[tuple[str, str, int]]:
    """Which images may be shown alone: the kind as the style sheet knows it, its words, how many there are."""
    return [
        ("all", "All", counts["shown"]),
        ("anomalous", "Anomalous", counts["anomalous"]),
        ("changed", "Verdict changed", counts["cleared"] + counts["found"]),
        ("not-judged", "Not judged", counts["not_judged"]),
        ("failed", "Could not be read", counts["failed"]),
    ]
