"""AeBAD-S, turbine blades under changed background, illumination and view (Zhang et al., 2023).

    AeBAD_S/train/good/{background,illumination,view}/*.png
    AeBAD_S/test/{good,ablation,breakdown,fracture,groove}/{same,background,illumination,view}/*.png
    AeBAD_S/ground_truth/<defect>/<domain>/<the image's name>

The root is AeBAD_S or the folder above it. The three folders of train/good are together the source, as the authors'
own code (MMR) reads them; `same` is the test without a shift.
"""

from __future__ import annotations

from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, dataset, folders, masks, samples
from nfad.records import Dataset

NAME = "aebad-s"
TITLE = "AeBAD-S"
_CATEGORY = "blade"
_TRAINED = ("background", "illumination", "view")


def recognises(root: Path) -> bool:
    return _base(Path(root)) is not None


def categories(root: Path) -> list[str]:
    _present(Path(root))
    return [_CATEGORY]


def read(root: Path, category: str) -> Dataset:
    base = _present(Path(root))
    check_category(TITLE, category, [_CATEGORY])
    train = [s for folder in folders(base / "train" / GOOD) for s in samples(folder, GOOD)]
    test = [
        s
        for kind in folders(base / "test")
        for domain in folders(kind)
        for s in samples(domain, kind.name, domain.name, masks(base / "ground_truth" / kind.name / domain.name))
    ]
    return dataset(NAME, category, base, train, test)


def _present(root: Path) -> Path:
    base = _base(root)
    if base is None:
        raise absent(TITLE, root, f"train/good/{{{','.join(_TRAINED)}}} and test, in it or in its AeBAD_S")
    return base


def _base(root: Path) -> Path | None:
    for base in (root / "AeBAD_S", root):
        trained = {folder.name for folder in folders(base / "train" / GOOD)}
        if trained & set(_TRAINED) and (base / "test").is_dir():
            return base
    return None
