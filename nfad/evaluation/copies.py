"""Shifted copies of a data set on disk, for programs that read photos and not views: each corruption in a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Dataset
from nfad.system.files import replacing, strict_json, sync_folder, writing
from nfad.system.progress import Progress
from nfad.vision.corruptions import Corruption
from nfad.vision.pixels import eight_bits, load_part

SETTINGS = "corruption.json"  # in each copy: what was done to it
FORMAT = 1
LISTS = frozenset({".csv", ".json"})  # some sets say in such files which photo is what
# A photo keeps its name and its format: as little is lost as the format allows.
SAVED: dict[str, tuple[str, dict[str, object]]] = {
    ".png": ("PNG", {"compress_level": 1}),
    ".jpg": ("JPEG", {"quality": 100, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 100, "subsampling": 0}),
    ".tif": ("TIFF", {}),
    ".tiff": ("TIFF", {}),
    ".bmp": ("BMP", {}),
    ".webp": ("WEBP", {"lossless": True}),
    ".ppm": ("PPM", {}),
    ".pgm": ("PPM", {}),
}


@dataclass(frozen=True)
class Copy:
    """One corruption's copy of a data set."""

    corruption: str
    folder: Path
    images: int  # test photos, corrupted
    kept: int  # training photos, masks and lists, byte by byte
    seed: int
    written: int  # files of it that this run wrote; 0 where it was there already

    def as_dict(self) -> dict[str, object]:
        return {**vars(self), "folder": str(self.folder)}


def write_copies(
    root: Path,
    datasets: Sequence[Dataset],
    suite: Iterable[Corruption],
    out: Path,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Copy]:
    """`out/contrast-3` and so on: the layout of `root`, test photos corrupted in their own pixels, all else as it is.

    A copy takes its name when it is whole; until then it lies in a hidden folder, where an interrupted run goes on.
    """
    if root.resolve() in (out.resolve(), *out.resolve().parents):
        raise NfadError(f"{out} lies in the data set {root}; write the copies elsewhere, or they would be read with it")
    tested = list(dict.fromkeys(sample.path for each in datasets for sample in each.test))
    kept = list(dict.fromkeys(_kept(root, datasets)))
    if both := set(tested) & set(kept):
        raise NfadError(f"{min(both)} is both tested and fitted on; choose one --category at a time")
    for path in tested:
        if path.suffix.lower() not in SAVED:
            raise NfadError(f"{path} cannot be written in its own format again; save the test photos as PNG first")
    names = {path.relative_to(root).as_posix(): path.stat().st_size for path in [*tested, *kept]}
    for corruption in suite:
        settings = {
            "format": FORMAT,
            "corruption": str(corruption),
            "seed": seed,
            "source": root.resolve().name,
            "files": names,
        }
        folder = out / str(corruption).replace(":", "-").replace("_", "-")
        written = 0
        if not _is_there(folder, settings):
            written = _write(root, tested, kept, corruption, seed, folder, settings, progress)
        yield Copy(str(corruption), folder, len(tested), len(kept), seed, written)


def _kept(root: Path, datasets: Sequence[Dataset]) -> Iterator[Path]:
    for dataset in datasets:
        for sample in dataset.train:
            yield sample.path
        for sample in dataset.test:
            if sample.mask:
                yield sample.mask
    yield from (path for path in sorted(root.rglob("*")) if path.suffix.lower() in LISTS and path.is_file())


def _is_there(folder: Path, settings: Mapping[str, object]) -> bool:
    """Whether this copy is whole already; what is there under its name and is something else is refused."""
    if not folder.exists():
        return False
    if _settings_of(folder) != settings:
        raise NfadError(
            f"{folder} exists and is another copy, of other photos or with another seed; remove it or choose another -o"
        )
    return True


def _settings_of(folder: Path) -> object:
    try:
        return json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(
    root: Path,
    tested: Sequence[Path],
    kept: Sequence[Path],
    corruption: Corruption,
    seed: int,
    folder: Path,
    settings: Mapping[str, object],
    progress: Progress | None,
) -> int:
    part = folder.with_name(f".{folder.name}.part")
    if part.exists() and _settings_of(part) != settings:
        shutil.rmtree(part)  # ours, of an interrupted run with other settings
    with writing(part):
        part.mkdir(parents=True, exist_ok=True)
    with replacing(part / SETTINGS) as file:
        file.write(strict_json(settings).encode())
    written, total = 0, len(tested) + len(kept)
    for done, path in enumerate([*tested, *kept], start=1):
        target = part / path.relative_to(root)
        if not target.exists():
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            content = corrupted_file(path, corruption, seed) if done <= len(tested) else path.read_bytes()
            with replacing(target, durable=False) as file:
                file.write(content)
            written += 1
        if progress:
            progress(f"writing {corruption}", done, total)
    with writing(folder):
        part.rename(folder)
        sync_folder(folder.parent)
    return written


def corrupted_file(path: Path, corruption: Corruption, seed: int) -> bytes:
    """The photo in 8 bits, upright and with three channels, under the corruption, in its own format."""
    pixels: np.ndarray = corruption(eight_bits(load_part(path)), seed)
    format_, options = SAVED[path.suffix.lower()]
    content = BytesIO()
    Image.fromarray(pixels).save(content, format_, **options)
    return content.getvalue()
