import csv
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer
from markup import Balanced
from parts import part
from PIL import Image
from typer.testing import CliRunner

from nfad import NfadError
from nfad.cli_stress import stress as command
from nfad.evaluation.exported import Exported
from nfad.judge import load_judge
from nfad.stress.axes import AXES, photographed
from nfad.stress.judgement import range_told
from nfad.stress.page import prediction_at, shown_image
from nfad.stress.session import STRENGTHS, stress, write_results
from nfad.threshold import Threshold

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = "<img src=x onerror='alert(1)'>&.png"


@pytest.fixture(scope="module")
def odd(normals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "normals"
    folder.mkdir()
    for index in range(6):
        Image.fromarray(part(200 + index)).save(folder / (NASTY if index == 0 else f"{NASTY[:-4]}{index}.png"))
    return folder


@pytest.fixture(scope="module")
def found(detector, odd):
    return stress(detector, odd, ["exposure", "blur", "background"], images=6)


@pytest.fixture(scope="module")
def page(detector, found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    written = write_results(found, detector, "What <b>part</b> bears", folder)
    assert [path.name for path in written] == ["report.html", "results.csv", "results.json"]
    return written[0].read_text(encoding="utf-8")


def test_the_page_is_whole_needs_nothing_else_and_trusts_no_name(page, found):
    parsed = Balanced(page)
    assert not re.search(r"https?://|//cdn|@import|<link", page)
    images = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert all(image["src"].startswith("data:image/") and "onerror" not in image for image in images)
    assert "What &lt;b&gt;part&lt;/b&gt; bears" in page and "<b>part" not in page
    assert any(shown_image(found.findings, curve)[1] is not None for curve in found.findings.curves)  # a card is shown
    assert "&lt;img src=x onerror=" in page
    targets = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    assert {attributes["href"][1:] for tag, attributes in parsed.tags if tag == "a"} <= targets


def test_every_axis_has_both_curves_a_picture_a_strength_and_its_sentence(page, found):
    numbers = json.loads(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1]))
    for curve in found.findings.curves:
        title = curve.axis.title
        for name in ("False alarms", "Synthetic defects found"):
            assert page.count(f'aria-label="{title}: {name}"') == 1
        assert len(re.findall(rf'<img alt="{title}: ', page)) == len(curve.points)
        assert numbers["axes"][curve.axis.name]["told"] in unescape(page)
    assert page.count('<figure class="asis">') == len(found.findings.curves)


def test_the_first_screen_says_how_far_each_condition_may_go(page, found):
    first = page[: page.index('<dl class="facts">')]
    rows = re.findall(r'<li><a class="title" href="#([\w-]+)">(.*?)</li>', first)
    assert {name for name, _ in rows} == {curve.axis.name for curve in found.findings.curves}
    for name, row in rows:
        curve = next(curve for curve in found.findings.curves if curve.axis.name == name)
        for arm in ("nfad", "control"):
            assert range_told(found.findings, curve, arm) in unescape(row)
            [(left, right)] = re.findall(rf'<i class="{arm}" style="left: ([\d.]+)%; right: ([\d.]+)%">', row)
            holds = [side.holds / max(map(abs, curve.axis.of_side(side.side))) for side in
                     found.findings.both(curve.axis, arm)]  # fmt: skip
            length = sum(map(abs, holds)) / len(holds)
            assert 100 - float(left) - float(right) == pytest.approx(100 * length, abs=0.1)


@pytest.mark.parametrize("kind", ["fitted", "exported"])
def test_the_card_of_a_moved_part_says_what_was_counted(detector, shipped, odd, kind):
    stricter = replace(detector, held_out=Threshold((-9.0,) * 20, (-9.0,) * 20))
    if kind == "exported":
        judge = load_judge(shipped.folder)
        stricter = Exported(replace(judge, engine=replace(judge.engine, held_out=stricter.held_out)))
    found = stress(stricter, odd, ["shift-x"], images=6, limit=0.3)
    [curve] = found.findings.curves
    # As it is everything is flagged, so the first strength shown is 0; beyond it the card must tell the same scores.
    index, step = 0, found.findings.steps["shift-x", 12]
    told = prediction_at(stricter, found.parts, found.findings, curve.axis, 12, index)
    assert (told.score, told.control_score) == (step.normal["nfad"][index], step.normal["control"][index])
    known = photographed(curve.axis, 12, told.map.shape[-1]).numpy()
    assert (np.isnan(told.map) == ~known).all() and (np.isnan(told.control_map) == ~known).all()


def test_axe_finds_nothing_to_object_to(page, tmp_path):
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; install it to look at the page")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright drives the browser")
    if find_spec("axe_playwright_python") is None:
        pytest.skip("there is no axe-core; pip install axe-playwright-python brings it")
    from playwright.sync_api import sync_playwright

    [folder] = find_spec("axe_playwright_python").submodule_search_locations
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    objections = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for width, scheme in ((1280, "light"), (390, "light"), (820, "dark")):
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.add_init_script(path=Path(folder) / "axe.min.js")
            tab.goto(file.as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}  # nothing else differs
            options = {"resultTypes": ["violations"]} | rules
            found = tab.evaluate("options => axe.run(document, options)", options)["violations"]
            objections |= {(width, each["id"]): [node["html"] for node in each["nodes"]] for each in found}
            assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing is cut off
        browser.close()
    assert objections == {}


def test_the_part_shown_is_one_that_is_flagged_where_it_breaks(found):
    for curve in found.findings.curves:
        index, strength = shown_image(found.findings, curve)
        if strength is not None:
            step = found.findings.steps[curve.axis.name, strength]
            assert any(step.normal[arm][index] > found.findings.thresholds[arm] for arm in ("control", "nfad"))


def test_notes_say_what_could_not_be_checked_and_what_was_left_out(detector, normals, found):
    assert "not fitted on" in found.notes[0] and "of 6 flagged" in found.notes[1]
    assert any("the fill cuts into the part" in note for note in found.notes)
    plain = stress(detector, normals, images=6)
    assert any("background was left alone" in note for note in plain.notes)
    named = stress(detector, normals, ["blur"], images=6)  # who names axes knows what was not named
    assert not any("background" in note for note in named.notes)


def test_normals_unlike_the_models_are_told_of(detector, normals):
    stricter = replace(detector, held_out=Threshold((-9.0,) * 20, (-9.0,) * 20))  # its own normals scored far lower
    found = stress(stricter, normals, ["blur"], images=6)
    assert any("100% of these images are flagged: they differ" in note for note in found.notes)
    assert "Breaks already as it is" in found.as_dict()["axes"]["blur"]["told"]


def test_a_model_that_breaks_when_parts_move_is_told_what_may_help(detector, normals, chosen):
    still = float(detector.predict_tensor(chosen.views).score.max())
    touchy = replace(detector, held_out=Threshold((still,) * 20, (still,) * 20))  # flags whatever scores higher
    shifted = stress(touchy, normals, ["shift-x"], images=6)
    assert any(side.breaks for side in shifted.findings.sides())
    assert any("--nudged" in note for note in shifted.notes)
    seen = replace(touchy, config=replace(touchy.config, nudges=1))
    assert not any("--nudged" in note for note in stress(seen, normals, ["shift-x"], images=6).notes)


def test_a_rate_that_cannot_be_had_is_told_of(detector, normals):
    found = stress(detector.at_rate(0.01), normals, ["blur"], images=6)
    least = f"{detector.held_out.smallest_rate:.2%}"
    assert any("model's rate is 1.00%" in note and f"support {least} at the least" in note for note in found.notes)
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
        (("--normals", "NORMALS", "--seed", "-1"), "the seed must be 0 or more"),
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
    exported = Exported.load(shipped.folder)
    for asked in ({"axes": ["blur", "background"]}, {"required": {"background": 50}}):
        with pytest.raises(NfadError, match="only the teacher's prior can say, which an exported model lacks"):
            stress(exported, tmp_path / "nowhere", **asked)
    found = stress(exported, normals, images=4, limit=0.3)
    assert [curve.axis.name for curve in found.findings.curves] == [name for name in AXES if name != "background"]
    assert any("defects may lie on it" in note for note in found.notes)
    fitted = stress(shipped.detector, normals, ["background"], images=4, limit=0.3)
    assert not any("exported" in note for note in fitted.notes)


def test_a_graph_for_one_size_of_photo_is_refused(shipped, tmp_path):
    judge = load_judge(shipped.folder)
    facts = judge.engine.facts | {"input": judge.engine.facts["input"] | {"frame": [480, 640]}}
    framed = Exported(replace(judge, engine=replace(judge.engine, facts=facts)))
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
