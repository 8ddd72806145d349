import csv
import json

import numpy as np
import pytest
from parts import part
from PIL import Image
from test_cli import TINY, nfad


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A plain folder: good parts to fit on, good and bad ones under two lights to test, with masks."""
    root = tmp_path_factory.mktemp("parts")
    truth = np.zeros((64, 64), np.uint8)
    truth[32:42, 32:42] = 255

    def photo(kind: str, name: str, seed: int, light: float = 1.0):
        path = root / kind / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((part(seed, 64, "square" in kind) * light).astype(np.uint8)).save(path)

    for i in range(12):
        photo("train/good", f"{i}", i)
    for domain, light in (("same", 1.0), ("illumination", 0.5)):
        for i in range(4):
            photo(f"test/good/{domain}", f"{i}", 100 + i, light)
            photo(f"test/square/{domain}", f"{i}", 200 + i, light)
            mask = root / "ground_truth" / "square" / domain / f"{i}.png"
            mask.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(truth).save(mask)
    return root


def test_evaluate_says_how_sure_it_is_and_writes_a_report(root, tmp_path):
    done = nfad("evaluate", "folder", root, *TINY, "--corrupt", "contrast:2", "--out", tmp_path / "out")
    assert "illumination" in done.stdout and "[95 %]" in done.stdout and "contrast:2" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"results.csv", "scores.csv"} < names
    assert sum(name.endswith(".html") for name in names) == 2
    assert sum(name.startswith("triplets") for name in names) == 2
    with (tmp_path / "out" / "results.csv").open() as file:
        assert {row["domain"] for row in csv.DictReader(file)} == {"same", "illumination", "all"}


def test_evaluate_json_is_all_numbers_and_a_model_can_be_judged(root, tmp_path):
    model = tmp_path / "part.nfad"
    nfad("fit", root / "train" / "good", "-o", model, *TINY, "--json")
    [found] = json.loads(nfad("evaluate", "folder", root, "--model", model, "--json").stdout)
    assert found["rows"][0]["arms"]["nfad"]["intervals"]["i_auroc"][0] <= found["rows"][0]["arms"]["nfad"]["i_auroc"]
    [fitted] = json.loads(nfad("evaluate", "folder", root, *TINY, "--json").stdout)
    assert fitted["rows"][0]["good"] == found["rows"][0]["good"] == 4


def test_benchmark_writes_csv_markdown_and_a_figure_and_resumes(root, tmp_path):
    arguments = ("benchmark", "rank", root, *TINY, "--ranks", "2,4", "--out", tmp_path)
    dry = nfad(*arguments, "--dry-run").stdout
    assert "4 cells, 0 of them finished" in dry and "hours" in dry and not list(tmp_path.glob("*.csv"))
    first = nfad(*arguments)
    assert "d=4" in first.stdout and "### folder" in first.stdout
    assert {"rank-folder.csv", "rank-folder.md", "rank-folder.png"} <= {path.name for path in tmp_path.iterdir()}
    told = (tmp_path / "rank-folder.md").read_text()
    assert f"`nfad benchmark rank {root.name} --teacher" in told and str(root) not in told and "--out" not in told
    assert "4 cells, 4 of them finished" in nfad(*arguments, "--dry-run").stdout
    again = json.loads(nfad(*arguments, "--json").stdout)
    assert {"sheet", "row", "column", "value", "low", "high", "paper", "strong"} == set(again[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "mvtec", "."), "There is no data set 'mvtec'"),
        (("evaluate", "folder", "ROOT", "--corrupt", "fog:3"), "a corruption is one of"),
        (("evaluate", "folder", "ROOT", "--category", "none"), "none"),
        (("evaluate", "folder", "nowhere"), "nowhere"),
        (("evaluate", "folder", "ROOT", "--readout", "control"), "readout must be one of"),
        (("evaluate", "folder", "ROOT", "--model", "m.nfad", "--size", "64"), "--model is judged as it was fitted"),
        (("benchmark", "table9", "ROOT"), "there is no table 'table9'"),
        (("benchmark", "rank", "ROOT", "--ranks", "2;4"), "whole numbers"),
        (("benchmark", "rank", "nowhere"), "No data set was recognised"),
    ],
)
def test_bad_input_is_one_sentence(root, arguments, words):
    arguments = [str(root) if argument == "ROOT" else argument for argument in arguments]
    tiny = [] if "--model" in arguments else TINY
    done = nfad(*arguments, *tiny, code=2)
    assert words in done.stderr.replace("\n", " ") and "Traceback" not in done.stderr
    assert done.stdout == ""
