"""A fleet's products, and what is done for one of them; knows nothing of workers."""

from __future__ import annotations

import csv
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nfad.config import Config, Sight
from nfad.data.photos import images_of
from nfad.deploy.export import Options, export
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.model import load_model
from nfad.report.stress import write_results
from nfad.stress.session import cache_in, stress
from nfad.system.files import sha256_of
from nfad.system.progress import Progress
from nfad.system.results import ResultCache
from nfad.vision.devices import device_of
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import tiled_teacher

COLUMNS = ("name", "photos", "settings")
NAME = re.compile(r"[\w][\w .+-]{0,99}")  # it becomes the name of a file
RECORDS = ".fleet"  # below the models: what was finished, and from which photos and settings
FORMAT = 1


@dataclass(frozen=True)
class Product:
    name: str
    photos: Path  # a folder, or a list of paths (.txt)
    config: Config


@dataclass(frozen=True)
class Wish:
    """What is wanted of every product, and where."""

    out: Path
    stress: bool = False
    export: str | None = None  # onnx or openvino
    device: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """One product's line of the table; `error` says why there is no model."""

    name: str
    photos: int = 0
    fitted_on: int = 0
    threshold: float | None = None
    false_alarm_rate: float | None = None
    flagged: float | None = None  # share of normals flagged at that rate, in random lights
    found: float | None = None  # share of synthetic defects found at that rate, in the light of the fit
    skipped: int = 0  # photos that cannot be read
    stress: str = ""
    export: str = ""
    sha256: str = ""  # of the model file
    seconds: float = 0.0
    kept: bool = False  # finished before, from the same photos and settings
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


ConfigOf = Callable[[list[str]], Config]  # from a product's own settings, name=value each


def read_manifest(path: Path, config_of: ConfigOf) -> list[Product]:
    """A folder of folders, or a CSV file; all of it is checked before anything is fitted."""
    if not path.exists():
        raise NfadError(f"{path} does not exist; name a folder of folders of photos, or a CSV file")
    found = _of_folders(path, config_of) if path.is_dir() else _of_csv(path, config_of)
    if not found:
        raise NfadError(f"{path} names no product; give a folder with a folder of photos a product, or a CSV file")
    for product in found:
        if not NAME.fullmatch(product.name):
            raise NfadError(
                f"{path}: the name {product.name!r} cannot become a file's; use letters, digits, spaces and . + - _"
            )
    name, times = Counter(product.name.casefold() for product in found).most_common(1)[0]
    if times > 1:
        raise NfadError(f"{path} names {name!r} {times} times; each product needs a name of its own")
    return found


def _of_folders(root: Path, config_of: ConfigOf) -> list[Product]:
    folders = [each for each in sorted(root.iterdir()) if each.is_dir() and not each.name.startswith((".", "__"))]
    return [Product(folder.name, folder, config_of([])) for folder in folders]


def _of_csv(path: Path, config_of: ConfigOf) -> list[Product]:
    found = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"name", "photos"} <= set(rows.fieldnames or ()) <= set(COLUMNS):
                raise NfadError(f"{path} must have the columns name, photos and, if needed, settings")
            for row in rows:
                where = f"{path}, line {rows.line_num}"
                if not row["name"] or not row["photos"]:
                    raise NfadError(f"{where}: name and photos must not be empty")
                try:
                    own = [part.strip() for part in (row.get("settings") or "").split(";")]
                    config = config_of([part for part in own if part])
                except NfadError as error:
                    raise NfadError(f"{where}: {error}") from None
                found.append(Product(row["name"], path.parent / row["photos"], config))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise NfadError(f"{path} cannot be read as CSV: {error}; write name,photos,settings as UTF-8") from None
    return found


def work_on(product: Product, wish: Wish, weights: Path | None = None, progress: Progress | None = None) -> Outcome:
    """Fit, and on request stress and export, unless the same was finished before; `weights` are the teacher's, here."""
    start = time.perf_counter()
    model = wish.out / f"{product.name}.nfad"
    images = images_of([product.photos])
    settings = {
        "format": FORMAT,
        "name": product.name,
        "photos": [[image.name, sha256_of(image)] for image in images],
        "config": product.config.as_dict(),
        "stress": wish.stress,
        "export": wish.export,
    }
    records = ResultCache(wish.out / RECORDS)
    done = records.get(settings)
    if done is not None and model.is_file() and sha256_of(model) == done["sha256"]:
        return replace(Outcome(**done), kept=True)
    skipped: list[object] = []
    detector = Detector.fit(
        images,
        product.config,
        progress=progress,
        skip=lambda image, _: skipped.append(image),
        teacher=[
            _teacher(look, None if place or weights is None else str(weights), wish.device)
            for place, look in enumerate(product.config.looks)
        ],
    )
    detector.save(model)
    folder = wish.out / f"{product.name}-{wish.export}"
    if wish.export:
        shutil.rmtree(folder, ignore_errors=True)  # of other photos or settings
        export(model, folder, Options(wish.export), images, None if weights is None else str(weights), progress)
    outcome = Outcome(
        name=product.name,
        photos=len(images),
        fitted_on=detector.fitted_on,
        threshold=detector.threshold,
        false_alarm_rate=detector.false_alarm_rate,
        flagged=detector.choice and detector.choice.flagged["filtered"],
        found=detector.choice and detector.choice.found_as_taken["filtered"],
        skipped=len(skipped),
        stress=_stressed(product, wish, model, weights, progress) if wish.stress else "",
        export=folder.name if wish.export else "",
        sha256=sha256_of(model),
        seconds=round(time.perf_counter() - start, 3),
    )
    records.put(settings, outcome.as_dict())
    return outcome


def _stressed(product: Product, wish: Wish, model: Path, weights: Path | None, progress: Progress | None) -> str:
    folder = wish.out / f"{product.name}-stress"
    shutil.rmtree(folder, ignore_errors=True)  # of other photos or settings
    detector = load_model(model, None if weights is None else str(weights), device=wish.device)
    found = stress(detector, product.photos, cache=cache_in(folder), progress=progress)
    write_results(found, detector, f"What {model.name} bears", folder)
    ends = [(side, side.ends) for side in found.findings.sides() if side.ends is not None]
    return "; ".join(f"{side.title} ends at {side.axis.told(end)}" for side, end in ends) or "holds throughout"


def _teacher(config: Config, weights: str | None, device: str) -> Teacher:
    return _loaded(replace(config, weights=weights or config.weights).sight, device)


@lru_cache(maxsize=4)
def _loaded(sight: Sight, device: str) -> Teacher:
    """A worker fits one product after the other: their teachers are loaded once."""
    return tiled_teacher(*sight, device_of(device))
