"""What strangers call their files: no text, formulas, as long as can be."""

import csv
import json
import os
from pathlib import Path

import pytest
from parts import part
from PIL import Image

from nfad.records import NUMBERS
from nfad.report.inspection import inspect


def test_a_name_that_is_no_utf8_survives_everywhere(detector, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    name = os.fsdecode(b"caf\xe9 = \n.png")
    try:
        Image.fromarray(part(0)).save(folder / name)
        Image.fromarray(part(1)).save(folder / "=1+1.png")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    inspect(detector, "part", [folder], tmp_path / "out")
    lines = (tmp_path / "out/results.jsonl").read_bytes().decode("utf-8").splitlines()  # valid, for any parser
    assert {json.loads(line)["image"] for line in lines} == {str(folder / name), str(folder / "=1+1.png")}
    with (tmp_path / "out/results.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        assert {row["image"] for row in csv.DictReader(file)} == {str(folder / name), str(folder / "=1+1.png")}
    assert (tmp_path / "out/overlays/in" / f"{name}.png").is_file()
    assert "caf? = \n.png" in (tmp_path / "out/index.html").read_text(encoding="utf-8")


def test_no_name_starts_a_formula_and_json_has_it_as_it_is(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["=1+1.png", "+1.png", "-1.png", "@SUM(A1).png", "\t=1.png", "\r=1.png", "'plain.png"]
    for seed, name in enumerate(names):
        Image.fromarray(part(seed)).save(name)
    inspect(detector, "=cmd", [Path(name) for name in names], tmp_path / "out")
    with open("out/results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["'" + name for name in names[:-1]] + names[-1:]
    assert {row["model"] for row in rows} == {"'=cmd"}
    lines = [json.loads(line) for line in Path("out/results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["image"] for line in lines] == names
    for row, line in zip(rows, lines):
        assert [float(row[name]) for name in NUMBERS if line[name] is not None] == [
            line[name] for name in NUMBERS if line[name] is not None
        ]


def test_names_as_long_as_names_can_be_get_a_picture_each(detector, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["x" * 250 + ".png", "x" * 251 + ".png", "x" * 247 + "abcd.png", "日" * 83 + ".png"]
    for seed, name in enumerate(names):
        Image.fromarray(part(seed)).save(folder / name)
    summary = inspect(detector, "part", [folder], tmp_path / "out")
    made = [os.fsencode(path.name) for path in (tmp_path / "out/overlays/in").iterdir()]
    assert summary.judged + summary.not_judged == len(made) == 4 and max(map(len, made)) <= 255
