"""What the operator's corrections say: how often verdicts are right, and which rate would do better."""

from __future__ import annotations

import re
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nfad.model import Model
from nfad.service.pictures import PictureStore
from nfad.service.record import Inspection, time_of
from nfad.service.store import Filters, Store
from nfad.stats.intervals import Interval, rate_interval
from nfad.system.files import strict_json
from nfad.vision.pixels import SUFFIXES

NEEDED = 5  # reviews of either kind before a rate is suggested
CHUNK = 1 << 18
STEM_BYTES, ID_DIGITS = 100, 12  # of a file system's 255; chance and a quarter of a second tell namesakes apart
SPECIAL = frozenset('<>:"/\\|?*')
DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *\.", re.IGNORECASE)  # of Windows


@dataclass(frozen=True)
class Suggestion:
    """A false-alarm rate at which fewer of the reviewed inspections would be judged wrongly than at the one in use."""

    rate: float
    threshold: float
    false_alarms: tuple[int, int]  # now, then
    missed: tuple[int, int]

    @property
    def sentence(self) -> str:
        now, then = (self.false_alarms[i] + self.missed[i] for i in (0, 1))
        return (
            f"At a false-alarm rate of {self.rate:.1%} (threshold {self.threshold:.2f}) {then} reviewed "
            f"image{'' if then == 1 else 's'} would be judged wrongly instead of {now}."
        )


def precision_and_recall(counts: dict[str, int]) -> tuple[Interval, Interval]:
    """Of what was rejected, how much is bad; of what is bad, how much was rejected: among reviewed inspections."""
    caught = counts["bad"] - counts["missed"]
    return rate_interval(caught, caught + counts["false_alarms"]), rate_interval(caught, counts["bad"])


def suggest(model: Model, good: list[float], bad: list[float]) -> Suggestion | None:
    """The supported rate with the fewest wrong verdicts on reviewed scores; None if that is no improvement.

    Every held-out score is a threshold with a rate of its own. Of equals, the one nearest to the rate in use.
    """
    lines, rates = model.held_out.every()
    lines, rates = np.append(lines, model.threshold), np.append(rates, model.false_alarm_rate)
    false_alarms = len(good) - np.searchsorted(np.sort(good), lines, side="right")
    missed = np.searchsorted(np.sort(bad), lines, side="right")
    wrong = false_alarms + missed
    best = np.lexsort((np.abs(np.log(rates / model.false_alarm_rate)), wrong))[0]
    if wrong[best] == wrong[-1]:
        return None
    return Suggestion(
        rate=float(rates[best]),
        threshold=float(lines[best]),
        false_alarms=(int(false_alarms[-1]), int(false_alarms[best])),
        missed=(int(missed[-1]), int(missed[best])),
    )


def export(store: Store, pictures: PictureStore, model: str) -> Iterator[bytes]:
    """A zip, piece by piece, of the originals under `good` and `bad`, as `nfad evaluate folder` reads them, and of
    their inspection records, in which `image` is the file's name in the zip."""
    pipe = _Pipe()
    lines: list[bytes] = []
    with zipfile.ZipFile(pipe, "w") as archive:
        for verdict in ("good", "bad"):
            for inspection in store.every(Filters(model=model, review=verdict)):
                original = pictures.path(inspection.id, f"original{inspection.suffix}")
                if original is None:  # removed by retention
                    continue
                name = f"{verdict}/{photo_name(inspection)}"
                lines.append(strict_json(replace(inspection, image=name).as_dict()).encode() + b"\n")
                with archive.open(_entry(f"{model}/{name}", inspection), "w", force_zip64=True) as entry:
                    for chunk in _chunks(original):
                        entry.write(chunk)
                        yield pipe.take()
        archive.writestr(f"{model}/inspections.jsonl", b"".join(lines))
    yield pipe.take()


def photo_name(inspection: Inspection) -> str:
    """What the client called it as far as every file system takes it, and the end of its id: cam3-b17c04d2e9aa.png.

    A stranger's text: of a path the last part, nothing unprintable or turning the writing round, no dot first.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", inspection.image))[-1]
    stem = last[: last.rindex(".")] if Path(last).suffix.lower() in SUFFIXES else last
    clean = "".join("_" if each in SPECIAL or unicodedata.category(each)[0] == "C" else each for each in stem)
    short = " ".join(clean.split()).lstrip(".- ").encode()[:STEM_BYTES].decode(errors="ignore").rstrip(". ")
    stem = f"_{short}" if DEVICES.match(short) else short
    return f"{stem}-{inspection.id[-ID_DIGITS:]}{inspection.suffix}".removeprefix("-")


def _entry(name: str, inspection: Inspection) -> zipfile.ZipInfo:
    moment = time_of(inspection.id)
    return zipfile.ZipInfo(name, (max(moment.year, 1980), *moment.timetuple()[1:6]))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


class _Pipe:
    """A file to write a zip to that can be read while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
