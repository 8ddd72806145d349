"""Real-IAD, thirty objects seen from five sides (Wang et al., 2024), in its multi-view setting: each view is an image.

    realiad_jsons/<category>.json, or one folder deeper: {meta: {normal_class, prefix}, train: […], test: […]}
    realiad_{1024,512,256,raw}/<prefix><image_path>

Every entry has image_path, mask_path (null for a normal) and anomaly_class. The first of these sizes that is there is
read, and a note says which. The five views are one domain: a fit sees them all.
"""

from __future__ import annotations

import json
from pathlib import Path

from nfad.data.listing import GOOD, absent, check_category, check_listed, dataset, files, inside, sample
from nfad.errors import NfadError
from nfad.records import Dataset, Sample

NAME = "real-iad"
TITLE = "Real-IAD"
_LISTS = ("realiad_jsons/realiad_jsons", "realiad_jsons")
_SIZES = ("realiad_1024", "realiad_512", "realiad_256", "realiad_raw")


def recognises(root: Path) -> bool:
    return bool(_present(Path(root)))


def categories(root: Path) -> list[str]:
    found = _present(Path(root))
    if not found:
        raise absent(TITLE, Path(root), f"realiad_jsons/<category>.json and <category> in one of {', '.join(_SIZES)}")
    return list(found)


def read(root: Path, category: str) -> Dataset:
    root = Path(root)
    check_category(TITLE, category, categories(root))
    source, base = _present(root)[category]
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise NfadError(f"{source} is not a JSON file: {problem}") from problem
    meta = content.get("meta", {}) if isinstance(content, dict) else None
    if not isinstance(meta, dict) or not all(isinstance(content.get(part), list) for part in ("train", "test")):
        raise NfadError(f"{source} must hold an object with meta, train and test, the last two lists")
    folder = inside(base, meta.get("prefix", category), source)
    normal = meta.get("normal_class", "OK")
    train, test = ([_sample(entry, folder, normal, source) for entry in content[part]] for part in ("train", "test"))
    if any(s.anomalous for s in train):
        raise NfadError(f"{source} trains on anomalies; only its lists with normal training images can be read")
    check_listed([s.path for s in train + test] + [s.mask for s in test if s.mask], source)
    return dataset(NAME, category, folder, train, test, [f"{category}: images of {base.name}"])


def _present(root: Path) -> dict[str, tuple[Path, Path]]:
    """The list and the image folder of each category that has both."""
    found = {}
    for place in _LISTS:
        for source in files(root / place, {".json"}):
            bases = [root / size for size in _SIZES if (root / size / source.stem).is_dir()]
            if bases:
                found[source.stem] = (source, bases[0])
    return dict(sorted(found.items()))


def _sample(entry: object, folder: Path, normal: str, source: Path) -> Sample:
    if not isinstance(entry, dict) or not isinstance(entry.get("anomaly_class"), str):
        raise NfadError(f"{source} has an entry without anomaly_class: {entry!r:.80}")
    kind = GOOD if entry["anomaly_class"] == normal else entry["anomaly_class"]
    mask = inside(folder, entry["mask_path"], source) if entry.get("mask_path") else None
    return sample(inside(folder, entry.get("image_path"), source), kind, mask=mask)
