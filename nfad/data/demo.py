"""The demonstration set on disk: rendered blades in the folder layout of AeBAD-S, for a first run without a download.

Every test part is photographed in every domain, so the domains differ in nothing but acquisition.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from nfad.data.listing import absent, check_category, dataset
from nfad.errors import NfadError
from nfad.records import Dataset, Sample
from nfad.vision.blade import DEFECTS
from nfad.vision.render import DOMAINS, render, render_stranger

__all__ = [
    "DEFECTS", "DOMAINS", "NAME", "TITLE", "categories", "read", "read_demo", "recognises", "render", "write_demo",
    "write_stranger",
]  # fmt: skip

NAME = "demo"
TITLE = "NFAD demo"
CATEGORY = "blade"
RENDERER = 2  # raise it whenever the same seed gives other pixels: older sets are then no longer reused
SETTINGS = "demo.json"
PARTS = 100_000  # seeds set aside for each group of parts, so that no part is in two groups


def write_demo(
    root: Path,
    train: int = 100,
    good: int = 20,
    bad: int = 5,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Render a set into `root`, or keep the one that is there if it has the same settings.

    `good` counts normal test images per domain, `bad` anomalous ones per defect and domain.
    """
    root = Path(root)
    settings = {"renderer": RENDERER, "train": train, "good": good, "bad": bad, "seed": seed}
    if not (0 < train < PARTS and 0 <= good < PARTS and 0 <= bad < PARTS and seed >= 0):
        raise NfadError(
            f"A demo set needs 1 to {PARTS - 1} training images, 0 to {PARTS - 1} good and bad ones and a seed of 0 "
            f"or more; got train={train}, good={good}, bad={bad}, seed={seed}."
        )
    photos = list(_photos(train, good, bad, seed))
    if root.is_file() or (root.is_dir() and any(root.iterdir())):
        _check_same(root, settings, photos)
        return root
    part = root.with_name(f".{root.name}.{os.getpid()}.part")
    try:
        for done, (name, part_seed, defect, domain) in enumerate(photos, start=1):
            image, mask = render(part_seed, defect, domain)
            _save(image, part / name)
            if defect != "good":
                _save(mask.astype(np.uint8) * 255, part / _mask_name(name))
            if progress:
                progress(done, len(photos))
        (part / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        if root.exists():
            root.rmdir()
        part.rename(root)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return root


def write_stranger(path: Path) -> Path:
    """A photo from the same station that shows no part of the set: the same bytes each time."""
    _save(render_stranger(), path)
    return path


def read_demo(root: Path) -> tuple[list[Sample], list[Sample]]:
    """The training and the test samples of a written set, sorted by path."""
    root = Path(root)
    if not (root / SETTINGS).is_file():
        raise NfadError(f"There is no demo set in {root}: {root / SETTINGS} was looked for; write one there first.")
    train, test = (
        [_sample(root, path) for path in sorted((root / split).glob("*/*/*.png"))] for split in ("train", "test")
    )
    return train, test


def recognises(root: Path) -> bool:
    return (Path(root) / SETTINGS).is_file()


def categories(root: Path) -> list[str]:
    if not recognises(root):
        raise absent(TITLE, Path(root), SETTINGS)
    return [CATEGORY]


def read(root: Path, category: str) -> Dataset:
    """A written set as a reader of any other data set gives it."""
    check_category(TITLE, category, categories(root))
    return dataset(NAME, category, Path(root), *read_demo(root))


def _photos(train: int, good: int, bad: int, seed: int) -> Iterator[tuple[Path, int, str, str]]:
    """File, part, defect and domain of each image; a part's domains follow one another."""
    groups = [("train", "good", train, DOMAINS[:1]), ("test", "good", good, DOMAINS)]
    groups += [("test", defect, bad, DOMAINS) for defect in DEFECTS]
    for group, (split, defect, count, domains) in enumerate(groups):
        first = (seed * len(groups) + group) * PARTS
        for i in range(count):
            for domain in domains:
                yield Path(split, defect, domain, f"{i:03d}.png"), first + i, defect, domain


def _mask_name(name: Path) -> Path:
    return Path("ground_truth", *name.parts[1:])


def _save(pixels: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, compress_level=1)  # sensor noise gains nothing from more


def _sample(root: Path, path: Path) -> Sample:
    name = path.relative_to(root)
    _, kind, domain, _ = name.parts
    bad = kind != "good"
    return Sample(path, anomalous=bad, kind=kind, domain=domain, mask=root / _mask_name(name) if bad else None)


def _check_same(root: Path, settings: dict[str, int], photos: list[tuple[Path, int, str, str]]) -> None:
    """Refuse a folder that is not the complete set with these settings: it may be someone's work."""
    if not (root / SETTINGS).is_file():
        raise NfadError(f"{root} exists and is not a demo set: it has no {SETTINGS}; choose another folder.")
    try:
        found = json.loads((root / SETTINGS).read_text())
    except json.JSONDecodeError:
        found = None
    if found != settings:
        raise NfadError(
            f"The demo set in {root} has settings {found}, not {settings}; delete it or choose another folder."
        )
    names = [name for name, *_ in photos] + [_mask_name(name) for name, _, defect, _ in photos if defect != "good"]
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise NfadError(f"The demo set in {root} is incomplete: {missing[0]} is missing; delete it and write it again.")
