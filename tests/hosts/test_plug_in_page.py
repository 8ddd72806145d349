"""docs/plug-in.md is under test: its Python runs as it stands, but for weights that would need a download."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "plug-in.md"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture
def names(images):
    return {"normal_images": images[:5], "left_out_images": images[5:], "images": images[5:] * 0.6}


def test_patchcore_wears_the_filter(blocks, names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(blocks[0], names)
    assert "AUROC" in capsys.readouterr().out
    assert Path("light.safetensors").is_file()
    assert names["filtered"].unwrap() is names["host"]
    assert names["scores"].image.shape == (3,) and names["scores"].maps.shape == (3, 64, 64)


def test_your_own_detector_wears_it_by_hooks(blocks, names):
    assert len(blocks) == 2 and "pretrained=True" in blocks[1]
    torch.manual_seed(0)
    exec(blocks[1].replace("pretrained=True", "pretrained=False"), names)
    detector, seen, dark = names["detector"], names["left_out_images"], names["images"]

    def rise():
        detector.fit(names["normal_images"])
        return float((detector.score(dark) / detector.score(seen)).mean())

    bare = rise()
    with names["HookedFilter"](names["layers"], names["light"]):
        worn = rise()
        assert torch.equal(names["filtered_scores"], detector.score(dark))
    assert bare > 1.2  # the dark lamp raised every score before,
    assert worn - 1 < 0.7 * (bare - 1)  # and does so less now
