"""The documents are under test: every command and option is in docs/cli.md, and README's Python runs."""

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import typer
from parts import part, tiny

from nfad.cli.main import app
from nfad.records import RECORD_FIELDS
from nfad.watch.record import FIELDS as WATCH_FIELDS

ROOT = Path(__file__).parents[1]


def commands():
    waiting = list(typer.main.get_command(app).commands.items())
    while waiting:
        name, command = waiting.pop()
        yield name, command
        waiting += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_and_option_is_documented(name, command):
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", text.split(f"## `nfad {name}`")[1])[0]
    for parameter in command.params:
        wanted = parameter.opts[-1] if parameter.opts[-1].startswith("-") else parameter.name
        assert wanted in section, f"docs/cli.md: nfad {name} lacks {wanted}; run `make docs`"


def test_the_readme_names_the_two_commands_and_real_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text and "make test" in text
    for target in re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`((?:docs|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / target).exists(), target


def test_the_page_of_the_inspection_record_names_its_fields_in_order():
    text = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```json\n(.*?)```", text, re.S)
    assert tuple(json.loads(example)) == RECORD_FIELDS
    assert fields_named_in(text.split("\n## Fields")[1].split("\n## ")[0]) == RECORD_FIELDS
    added = text.split("`nfad watch` adds")[1].split("`nfad serve` adds")[0]
    assert RECORD_FIELDS + fields_named_in(added) == WATCH_FIELDS


def test_the_plan_of_a_plant_states_what_was_simulated_and_measured():
    plan, results = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), ROOT / "benchmarks" / "results"
    simulated = (results / "scale.md").read_text(encoding="utf-8").split("stations for 1,000:")[1]
    rows = re.findall(r"^\| (\S+), (\d+²) \| (.*) \|$", simulated, re.M)
    assert len(rows) == 3
    for preset, size, numbers in rows:
        assert f"| `{preset}`, {size} | {numbers} |" in plan
    measured = (results / "service.md").read_text(encoding="utf-8")
    for rate in re.findall(r"\| ([\d.]+) / ([\d.]+) \| (?:`benchmarks/results/service.md`|the same)", plan):
        assert all(f" {each} images/s" in measured for each in rate), rate


def test_the_papers_claims_are_those_of_the_kept_results():
    """Written by benchmarks/claims.py from the CSVs, and not by hand."""
    spec = importlib.util.spec_from_file_location("claims", ROOT / "benchmarks" / "claims.py")
    claims = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"claims": claims}):
        spec.loader.exec_module(claims)
        wanted = claims.section()
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    assert wanted in text, "docs/paper.md is older than benchmarks/results; run benchmarks/claims.py"
    for verdict in ("| holds |", "| does not |", "| open |"):
        assert verdict in wanted


def fields_named_in(section):
    """The first column of a table."""
    return tuple(re.findall(r"^\| `(\w+)`", section, re.M))


def test_what_the_readme_installs_on_the_line_pc_serves_as_well():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("## Ship it")[1].split("```")[1]
    [extras] = re.findall(r"pip install 'nfad\[([\w,]+)\]'", block.split("nfad serve")[0])
    assert set(extras.split(",")) == {"runtime", "serve"}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


def test_the_readmes_python_runs(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block, wrapping] = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "Filtered(Patchcore())" in wrapping  # docs/anomalib.md has it in full, and under test
    monkeypatch.chdir(tmp_path)
    from PIL import Image

    Image.fromarray(part(1)).save("part.png")
    fit = "Detector.fit(paths_or_arrays)"  # with the default preset it would take minutes
    assert fit in block
    block = block.replace(fit, "Detector.fit(paths_or_arrays, small)")
    exec(block, {"small": tiny(), "paths_or_arrays": [part(i) for i in range(12)], "np": np})
    assert Path("part.nfad").is_file()
