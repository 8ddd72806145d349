import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from parts import part
from PIL import Image
from typer.testing import CliRunner

from nfad import NfadError
from nfad.cli.stress import stress as command
from nfad.model import load_model
from nfad.report.stress import write_results
from nfad.stress.axes import AXES
from nfad.stress.session import STRENGTHS, cache_in, stress
from nfad.verdict.threshold import Threshold


def test_notes_say_what_could_not_be_checked_and_what_was_left_out(detector, normals, found):
    assert "not fitted on" in found.notes[0] and "of 6 on" in found.notes[1]
    assert any("the fill cuts into the part" in note for note in found.notes)
    plain = stress(detector, normals, images=6)
    assert any("background was left alone" in note for note in plain.notes)
    named = stress(detector, normals, ["blur"], images=6)  # who names axes knows what was not named
    assert not any("background" in note for note in named.notes)


def test_normals_unlike_the_models_are_told_of(detector, normals):
    stricter = replace(detector, held_out=Threshold((-9.0,) * 20, (-9.0,) * 20))  # its own normals scored far lower
    found = stress(stricter, normals, ["blur"], images=6)
    assert any("100% of these images are flagged: they differ" in note for note in found.notes)
    assert "Does not hold even for unchanged photos" in found.as_dict()["axes"]["blur"]["told"]


def test_a_model_that_breaks_when_parts_move_is_told_what_may_help(detector, normals, chosen):
    as_taken = replace(detector, pose=None, config=replace(detector.config, pose="as taken"))
    still = float(as_taken.predict_tensor(chosen.views).score.max())
    touchy = replace(as_taken, held_out=Threshold((still,) * 20, (still,) * 20))  # flags whatever scores higher
    shifted = stress(touchy, normals, ["shift-x"], images=6)
    assert any(side.breaks for side in shifted.findings.sides())
    assert any("--nudged" in note for note in shifted.notes)
    seen = replace(touchy, config=replace(touchy.config, nudges=1))
    assert not any("--nudged" in note for note in stress(seen, normals, ["shift-x"], images=6).notes)


def test_a_rate_that_cannot_be_had_is_told_of(detector, normals):
    found = stress(detector.at_rate(0.01), normals, ["blur"], images=6)
    least = f"{detector.held_out.smallest_rate:.2%}"
    assert f"at most {least} of good parts flagged" in found.promise and "1.00% was asked for" in found.promise
    assert any(found.promise in note for note in found.notes)
    assert found.as_dict()["asked_false_alarm_rate"] == 0.01
    assert found.findings.rate == detector.held_out.smallest_rate > 0.01


def run(*arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_resumes_and_gates(model, normals, tmp_path):
    arguments = (model, "--normals", normals, "--axes", "exposure,noise", "--images", 6, "--out", tmp_path)
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "Exposure:" in first.output and "report.html" in first.output.replace("\n", "")
    with (tmp_path / "results.csv").open() as file:
        assert {row["axis"] for row in csv.DictReader(file)} == {"exposure", "noise"}
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / STRENGTHS).iterdir()}
    done = run(*arguments, "--json", "--limit", 0.01, "--false-alarm-rate", 0.3, "--require", "exposure=2")
    numbers = json.loads(done.stdout, parse_constant=pytest.fail)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / STRENGTHS).iterdir()} == kept
    assert numbers["limit"] == 0.01 and numbers["false_alarm_rate"] == pytest.approx(0.3)
    assert done.exit_code == bool(numbers["unmet"])
    assert numbers["unmet"] and "+2 stops is required" in " ".join(numbers["unmet"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--normals", "nowhere"), "nowhere does not exist"),
        (("--normals", "EMPTY"), "holds no images"),
        (("--normals", "NORMALS", "--axes", "fog"), "there is no axis 'fog'"),
        (("--normals", "NORMALS", "--images", "1"), "at least 2 images"),
        (("--normals", "NORMALS", "--require", "exposure"), "--require takes axis=strength"),
        (("--normals", "NORMALS", "--require", "exposure=9"), "exposure is measured up to 2 stops"),
        (("--normals", "NORMALS", "--axes", "blur", "--require", "noise=2"), "required but not measured"),
        (("--normals", "NORMALS", "--limit", "2", "--axes", "blur", "--images", "4"), "limit must lie between"),
        (("--normals", "NORMALS", "--out", "FILE"), "is a file"),
        (("--normals", "ONE"), "1 image cannot show a false-alarm rate"),
        (("--normals", "NORMALS", "--seed", "-1"), "the seed must lie between 0 and 4294967295"),
        (("--normals", "NORMALS", "--false-alarm-rate", "7"), "must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(model, normals, tmp_path, arguments, words):
    places = {"NORMALS": normals, "EMPTY": tmp_path, "FILE": normals / "00.png", "ONE": normals / "00.png"}
    out = () if "--out" in arguments else ("--out", tmp_path / "out")
    done = run(model, *(places.get(argument, argument) for argument in arguments), *out)
    assert isinstance(done.exception, NfadError) and words in str(done.exception) and "\n" not in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_measured_resumed_and_told_apart_from_its_file(shipped, normals, tmp_path):
    arguments = ("--normals", normals, "--axes", "exposure,shift-y", "--images", 6, "--limit", 0.4, "--out", tmp_path)
    first = run(shipped.folder, *arguments)
    assert first.exit_code == 0, first.output
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / STRENGTHS).iterdir()}
    again = run(shipped.folder, *arguments, "--json", "--false-alarm-rate", 0.4)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / STRENGTHS).iterdir()} == kept
    assert json.loads(again.stdout)["false_alarm_rate"] == pytest.approx(0.4, abs=0.1)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "fp32, onnx, from part.nfad" in page and "rounded" in page
    assert run(shipped.model, *arguments, "--json").exit_code == 0
    assert len(list((tmp_path / STRENGTHS).iterdir())) == 2 * len(kept)


def test_an_export_leaves_the_background_alone_and_says_so(shipped, normals, tmp_path):
    exported = load_model(shipped.folder)
    for asked in ({"axes": ["blur", "background"]}, {"required": {"background": 50}}):
        with pytest.raises(NfadError, match="only the teacher's prior can say, which an exported model lacks"):
            stress(exported, tmp_path / "nowhere", **asked)
    found = stress(exported, normals, images=4, limit=0.3)
    assert [curve.axis.name for curve in found.findings.curves] == [name for name in AXES if name != "background"]
    assert any("defects may lie on it" in note for note in found.notes)
    fitted = stress(shipped.detector, normals, ["background"], images=4, limit=0.3)
    assert not any("exported" in note for note in fitted.notes)


def test_a_graph_for_one_size_of_photo_is_refused(shipped, tmp_path):
    exported = load_model(shipped.folder)
    metadata = exported.metadata | {"input": exported.metadata["input"] | {"frame": [480, 640]}}
    framed = replace(exported, metadata=metadata)
    with pytest.raises(NfadError, match="takes frames of 480×640 pixels .* export it without --frame"):
        stress(framed, tmp_path / "nowhere")


@pytest.mark.parametrize("spoilt", ["model", "normals", "folder"])
def test_what_cannot_be_read_leaves_nothing(model, normals, tmp_path, spoilt):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "a.png").write_bytes(b"no image")
    given = {"model": bad / "a.png", "folder": bad}.get(spoilt, model)  # an exported model is a folder
    done = run(given, "--normals", bad if spoilt == "normals" else normals, "--out", tmp_path / "out")
    assert isinstance(done.exception, NfadError) and list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("name", ["report.html", "results.csv", "results.json"])
def test_a_report_of_someone_elses_is_not_written_over(model, normals, tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = run(model, "--normals", normals, "--axes", "blur", "--images", 6, "--out", tmp_path)
    assert isinstance(done.exception, NfadError) and f"holds a {name} that no earlier run" in str(done.exception)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", ["grey", "16 bits", "of all sizes"])
def test_normals_of_any_kind_are_measured(model, tmp_path, kind):
    for index in range(4):
        image = Image.fromarray(part(100 + index))
        if kind == "of all sizes":
            image = image.resize((70 + 20 * index, 160 - 30 * index))
        elif kind == "grey":
            image = image.convert("L")
        else:
            image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
        image.save(tmp_path / f"{index}.png")
    done = run(model, "--normals", tmp_path, "--axes", "rotation", "--limit", 0.3, "--json")
    assert done.exit_code == 0 and len(json.loads(done.stdout)["images"]) == 4


def test_an_unreadable_image_is_told_of_and_the_rest_measured(model, normals, tmp_path):
    shutil.copytree(normals, tmp_path / "normals")
    (tmp_path / "normals" / "00.png").write_bytes(b"no image")
    done = run(model, "--normals", tmp_path / "normals", "--axes", "blur", "--images", 14)
    assert done.exit_code == 0 and "skipped" in done.output and "13 normals" in done.output


def test_the_pages_python_runs(model, normals, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "stress.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "bottle.nfad")
    (tmp_path / "fresh").mkdir()
    for path in sorted(normals.iterdir())[:6]:
        shutil.copy(path, "fresh")
    exec(block, {})
    assert Path("stress/report.html").is_file()


def test_every_axis_and_its_unit_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "stress.md").read_text(encoding="utf-8")
    for axis in AXES.values():
        row = next(line for line in text.splitlines() if line.startswith("|") and f"`{axis.name}`" in line)
        assert {"°": "degrees"}.get(axis.unit, axis.unit) in row and f"{max(axis.strengths):g}" in row


def test_the_pages_tables_of_shifts_are_the_benchmarks():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "stress.md").read_text(encoding="utf-8").partition("## What we found about shifts")[2]
    measured = (root / "benchmarks" / "results" / "shifts.md").read_text(encoding="utf-8").replace("%", "").splitlines()
    named = {
        "magnetic tile": "| tile",
        "without the filter": "| demo | 40 | without",
        "with the filter": "| demo | 40 | with ",
    }
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [a-z ]+ \| \d", line)]
    assert len(rows) == 6
    for name, *cells in rows:
        its = [line for line in measured if line.startswith(named.get(name, f"| {name}"))]
        known = {cell.strip("| ") for line in its for cell in line.split(" | ")}
        assert {cell.replace(" %", "") for cell in cells} <= known


def test_parts_that_are_not_judged_are_counted_apart_kept_and_end_it(detector, normals, refusing, tmp_path):
    """In the dark nothing is judged: no false alarm there, and no hold either; a second run finds the same on disk."""
    dark = refusing(replace(detector, sha256="model"), lambda view: view.mean() < 0.3)
    runs = [stress(dark, normals, ["exposure"], images=6, cache=cache_in(tmp_path)) for _ in range(2)]
    assert runs[0].as_dict() == runs[1].as_dict()
    [curve] = runs[0].findings.curves
    point = curve.at(-2)
    assert point.not_judged["filtered"].value == 1 and point.alarms["filtered"].value == 0
    assert point.arms["filtered"].bad_not_judged.value == 1 and point.not_judged["unfiltered"].value == 0
    side = runs[0].findings.side(curve.axis, -1, "filtered")
    assert side.refuses is not None and abs(side.holds) < abs(side.refuses)
    told = runs[0].as_dict()["axes"]["exposure"]["told"]
    assert "0% of defects found, 100% of good parts not judged (100% of defects)" in told
    row = next(row for row in runs[0].as_dict()["rows"] if row["strength"] == -2 and row["arm"] == "filtered")
    assert (row["not_judged"], row["false_alarms"], row["found"], row["verdict_error"]) == (1, 0, 0, 0)
    page = write_results(runs[0], dark, "x", tmp_path)[0].read_text(encoding="utf-8")
    assert "◆ not judged:" in page and "Exposure: Not judged" in page
