"""docs/anomalib.md is under test: its Python runs, on small networks and without the slow export."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import nfad
from parts import part
from PIL import Image

pytest.importorskip("anomalib.models", reason="anomalib is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "anomalib.md"
QUIET = "Engine(accelerator='cpu', enable_progress_bar=False)"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def small(block, *changes):
    for before, after in (("Engine()", QUIET), ('abnormal_dir="bad"', 'abnormal_dir="bad", num_workers=0'), *changes):
        assert before in block
        block = block.replace(before, after)
    return block


def test_its_models_wear_the_filter_and_are_measured(blocks, root, seen, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"root": root, "photo": root / "bad" / "0.png", "left_out_images": seen[:2]}
    first, export = blocks[0].split("path = engine.export")
    assert 'model, "onnx"' in export
    exec(small(first, ("Patchcore()", "Patchcore('test_resnet', visualizer=False)")), names)
    assert type(names["model"]).__name__ == "FilteredPatchcore" and len(names["predictions"]) == 1
    exec(blocks[1], names)
    assert "AUROC" in capsys.readouterr().out


def test_nfad_is_one_of_its_models(blocks, root, tmp_path, monkeypatch):
    from anomalib.data import Folder
    from anomalib.engine import Engine

    monkeypatch.chdir(tmp_path)
    names = {"root": root, "photo": root / "bad" / "0.png", "Engine": Engine, "Folder": Folder}
    exec(small(blocks[2], ('"embedded-fast"', '"embedded-fast", {"size": 64, "pairs": 2}, visualizer=False')), names)
    assert Path("part.nfad").is_file() and len(names["predictions"]) == 1


def test_its_maps_are_scored_here(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, seeds, bad in (
        ("train/good", range(10), False),
        ("test/good", (20, 21), False),
        ("test/dent", (30, 31), True),
    ):
        (tmp_path / "data" / place).mkdir(parents=True)
        for seed in seeds:
            Image.fromarray(part(seed, 64, bad)).save(tmp_path / "data" / place / f"{seed}.png")
    network = "Padim('test_resnet', layers=['layer1'], n_features=8, visualizer=False, "
    changes = [
        ("Engine()", QUIET),
        ("Padim(", network),
        ('val_split_mode="synthetic"', 'val_split_mode="synthetic", num_workers=0'),
    ]
    block = blocks[3]
    for before, after in changes:
        assert before in block
        block = block.replace(before, after)
    exec(block, {})
    [found] = json.loads(nfad("evaluate", "folder", "data", "--maps", "maps/padim", "--json").stdout)
    [program] = found["programs"]
    assert program["normals"] == 3 and found["rows"][0]["arms"]["padim"]["good_not_judged"] == 0
    assert max(float(np.load(path).max()) for path in tmp_path.glob("maps/padim/test/**/*.npy")) > 1  # raw
