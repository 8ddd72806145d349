"""MVTec AD 2, eight scenarios under changed lighting (Heckler-Kram et al., 2025): the part with public labels.

    <category>/{train,validation}/good/<number>_regular.png
    <category>/test_public/{good,bad}/<number>_<lighting>.png
    <category>/test_public/ground_truth/bad/<number>_<lighting>_mask.png
    <category>/{test_private,test_private_mixed}/*.png

<lighting> is regular, overexposed, underexposed or shift_<n>; it is the domain, and regular is the source (`same`).
The validation normals are of the source too and train with the rest: a fit holds out normals of its own.
The private tests have no public labels and are left out, with a note.
"""

from __future__ import annotations

from pathlib import Path

from nfad.data.listing import GOOD, SOURCE, absent, check_category, dataset, folders, images, masks, sample, samples
from nfad.errors import NfadError
from nfad.records import Dataset

NAME = "mvtec-ad-2"
TITLE = "MVTec AD 2"
_PRIVATE = ("test_private", "test_private_mixed")


def recognises(root: Path) -> bool:
    return bool(_present(Path(root)))


def categories(root: Path) -> list[str]:
    found = _present(Path(root))
    if not found:
        raise absent(TITLE, Path(root), "train/good and test_public in folders such as can or vial")
    return found


def read(root: Path, category: str) -> Dataset:
    check_category(TITLE, category, categories(root))
    base = Path(root) / category
    train = [s for split in ("train", "validation") for s in samples(base / split / GOOD, GOOD)]
    truth = masks(base / "test_public" / "ground_truth" / "bad")
    test = [
        sample(path, kind, _lighting(path), truth.get(path.stem))
        for kind in (GOOD, "bad")
        for path in images(base / "test_public" / kind)
    ]
    private = sum(len(images(base / split)) for split in _PRIVATE)
    note = f"{category}: {private} images of {' and '.join(_PRIVATE)} are left out, their labels are not public"
    return dataset(NAME, category, base, train, test, [note] if private else [])


def _present(root: Path) -> list[str]:
    return [f.name for f in folders(root) if (f / "train" / GOOD).is_dir() and (f / "test_public").is_dir()]


def _lighting(path: Path) -> str:
    number, _, lighting = path.stem.partition("_")
    if not number.isdigit() or not lighting:
        raise NfadError(f"{path} is not named <number>_<lighting> as MVTec AD 2 does it: its domain can't be told")
    return SOURCE if lighting == "regular" else lighting
