import csv
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from commands import TINY, nfad
from parts import part, parts
from PIL import Image

from nfad import Detector


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("good")
    for index, image in enumerate(parts(16)):
        Image.fromarray(image).save(root / f"{index:02}.png")
    return root


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "part.nfad"
    done = nfad("fit", folder, "-o", path, *TINY, "--json")
    facts = json.loads(done.stdout)
    assert facts["fitted_on"] == facts["held_out"] == 16
    return path


def test_help_teaches_and_is_quick_to_import():
    text = nfad("--help").stdout
    assert all(command in text for command in ("fit", "predict", "info", "demo"))
    assert "--false-alarm-rate" in nfad("predict", "--help").stdout
    script = "import sys, nfad.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_real_process_ends_in_one_sentence_and_no_traceback(tmp_path):
    command = [sys.executable, "-c", "from nfad.cli.main import main; main()", "info", tmp_path / "absent.nfad"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert " ".join(done.stderr.split()).endswith("name a model file written by `nfad fit`")


@pytest.mark.parametrize("options", [(), ("--json",), ("--out", "out")])
def test_a_name_that_is_no_text_is_judged_and_told_by_a_real_process(model, tmp_path, options):
    """With a terminal's own encoding, which is strict."""
    for seed, name in enumerate((b"caf\xe9.png", b"plain.png")):
        Image.fromarray(part(seed)).save(tmp_path / os.fsdecode(name))
    (tmp_path / os.fsdecode(b"\xff.png")).write_bytes(b"no image")
    script = "from nfad.cli.main import main; main()"
    command = [sys.executable, "-c", script, "predict", model, ".", *options]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment)
    assert done.returncode == 1 and b"Traceback" not in done.stderr, done.stderr
    if "--json" in options:
        told = {json.loads(line).get("image") for line in done.stdout.splitlines()}
        assert told >= {os.fsdecode(name) for name in (b"caf\xe9.png", b"plain.png", b"\xff.png")}


def test_fit_states_the_smallest_rate_and_will_not_overwrite(folder, model):
    done = nfad("fit", folder, "-o", model, *TINY, code=2)
    assert "--force" in done.stderr
    done = nfad("fit", folder, "-o", model.with_name("b.nfad"), *TINY)
    assert "1.00% needs 99 photos; these 16 will support 5.88%" in done.stderr


def test_predict_writes_everything_and_skips_a_bad_image(model, tmp_path):
    images = tmp_path / "new"
    (images / "a").mkdir(parents=True)
    Image.fromarray(part(1)).save(images / "one.png")
    Image.fromarray(part(2, defect=True)).save(images / "a" / "one.png")
    (images / "bad <script>.png").write_bytes(b"not an image")
    out = tmp_path / "out"
    done = nfad("predict", model, images, "--out", out, code=1)
    assert "skipped" in done.stderr and "0 not judged, 1 unreadable; " in done.stdout
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and [row["verdict"] for row in rows].count("unreadable") == 1
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert set(lines[0]["nuisance_by_family"]) == {"photometric", "background", "sensor"}
    assert (out / "overlays/new/one.png.png").is_file() and (out / "overlays/new/a/one.png.png").is_file()
    page = (out / "index.html").read_text()
    assert "bad &lt;script&gt;.png" in page and "bad <script>" not in page


def test_the_same_image_by_two_ways_and_the_same_name_twice(model, tmp_path):
    for index, place in enumerate(("a", "b")):
        (tmp_path / place / "x").mkdir(parents=True)
        Image.fromarray(part(index)).save(tmp_path / place / "x" / "one.png")
    inputs = [tmp_path / "a/x", tmp_path / "a/x", tmp_path / "b/x", tmp_path / "a/x/one.png", tmp_path / "b/x/one.png"]
    nfad("predict", model, *inputs, "--out", tmp_path / "out")
    assert len((tmp_path / "out/results.jsonl").read_text().splitlines()) == 4
    pictures = sorted(str(p.relative_to(tmp_path / "out/overlays")) for p in (tmp_path / "out").rglob("*.png"))
    assert pictures == ["one-2.png.png", "one.png.png", "x-2/one.png.png", "x/one.png.png"]


def test_predict_prints_json_lines_at_another_rate(model, folder):
    done = nfad("predict", model, folder / "00.png", folder / "01.png", "--json", "--false-alarm-rate", "0.5")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2 and rows[0]["threshold"] == rows[1]["threshold"]
    assert all(row["excess_filtered"] is None or 0 <= row["excess_filtered"] <= 1 for row in rows)
    assert "NaN" not in done.stdout  # which is not JSON


@pytest.fixture
def strange(monkeypatch):
    """Models find every other photo strange."""
    stream = Detector.predict_stream
    outside = {"is_anomalous": False, "strangeness": 1.5, "why_not_judged": "does not look like the fitted part"}

    def predict_stream(self, *given, **more):
        for place, prediction in enumerate(stream(self, *given, **more)):
            yield replace(prediction, **outside) if place % 2 == 0 else prediction

    monkeypatch.setattr(Detector, "predict_stream", predict_stream)


def test_predict_tells_what_is_not_judged_and_ends_with_3(model, folder, tmp_path, strange):
    done = nfad("predict", model, folder / "00.png", folder / "01.png", folder / "02.png", "--out", tmp_path, code=3)
    shown = done.stdout.splitlines()
    assert [line.strip().startswith("not judged") for line in shown[:3]] == [True, False, True]
    assert "Not judged: does not look like the fitted part." in shown[0]
    assert [" / " in line for line in shown[:3]] == [False, True, False]  # its numbers would be taken for a verdict
    assert re.match(r"(1 normal, 0|0 normal, 1) anomalous, 2 not judged, 0 unreadable; ", shown[3])
    with (tmp_path / "results.csv").open() as file:
        assert [row["verdict"] == "not judged" for row in csv.DictReader(file)] == [True, False, True]


def test_nothing_but_photos_that_are_not_judged_is_a_result_all_the_same(model, folder, strange):
    done = nfad("predict", model, folder / "00.png", code=3)
    assert "0 normal, 0 anomalous, 1 not judged, 0 unreadable; " in done.stdout


def test_predict_prints_a_line_of_json_for_every_image_also_for_unreadable_ones(model, folder, tmp_path, strange):
    (tmp_path / "bad.png").write_bytes(b"not an image")
    done = nfad("predict", model, folder / "00.png", tmp_path / "bad.png", folder / "01.png", "--json", code=1)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["verdict"] for row in rows[:2]] == ["not judged", "unreadable"] and len(rows) == 3
    assert rows[0]["strangeness"] == 1.5 and rows[1]["score"] is None and "not an image" in rows[1]["explanation"]
    assert "skipped" in done.stderr


def test_predict_that_can_read_nothing_says_so_in_json_too(model, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"not an image")
    done = nfad("predict", model, tmp_path / "bad.png", "--json", code=2)
    assert json.loads(done.stdout)["verdict"] == "unreadable" and "no image could be judged" in done.stderr


def words(table):
    """What a table says, however narrow the terminal."""
    return " ".join(table.replace("│", " ").split())


def test_info_says_what_a_model_is(model):
    facts = json.loads(nfad("info", model, "--json").stdout)
    assert facts["teacher"]["weights"] == "untrained" and facts["held_out"] == 16
    told = words(nfad("info", model).stdout)
    assert "smallest false-alarm rate" in told and "nudged" not in told
    first, second = facts["nuisance_columns"]
    assert "nuisance directions removed" in told
    assert f"{first} and {second}, one number for each of the teacher's blocks" in told


def test_info_says_that_a_model_is_nudged(folder, tmp_path):
    path = tmp_path / "nudged.nfad"
    nfad("fit", folder, "-o", path, "--nudged", *TINY, "--json")
    assert "the reference has seen 2 moved copies of each image too" in words(nfad("info", path).stdout)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fit", "absent", "-o", "x.nfad"), "absent does not exist"),
        (("fit", "EMPTY", "-o", "x.nfad"), "holds no images"),
        (
            ("fit", "GOOD", "-o", "x.nfad", "--preset", "best"),
            "preset must be one of paper, embedded, embedded-both, embedded-all, embedded-fast",
        ),
        (("fit", "GOOD", "-o", "x.nfad", "--set", "sigma"), "--set takes name=value"),
        (("fit", "GOOD", "-o", "x.nfad", "--teacher", "resnet9000"), "nor a timm model"),
        (("predict", "absent.nfad", "GOOD"), "absent.nfad does not exist"),
        (("predict", "MODEL", "EMPTY"), "there are no images in"),
        (("fit", "GOOD", "-o", "EMPTY"), "is a folder"),
        (
            ("fit", "GOOD", "-o", "x.nfad", "--size", "64", "--set", "size=abc"),
            "size must be a whole number; got 'abc'",
        ),
        (("fit", "GOOD", "-o", "x.nfad", "--set", "blocks=5"), "blocks must be a list of whole numbers"),
        (("fit", "GOOD", "-o", "x.nfad", "--set", "rank=7"), "rank must be a number for each family"),
        (("fit", "GOOD", "-o", "x.nfad", "--set", "sigma=-1"), "sigma must not be negative"),
        (("fit", "GOOD", "-o", "x.nfad", "--set", "pairs=0"), "pairs must be at least 1"),
        (("fit", "GOOD", "-o", "x.nfad", *TINY, "--set", 'rank={"photometric": 5000}'), "must lie in 0..192"),
        (("fit", "GOOD", "-o", "x.nfad", "--teacher", "dinov3"), "could not be fetched from the hub"),
        (("predict", "MODEL", "GOOD", "--false-alarm-rate", "2"), "between 0 and 1"),
        (("info", "GOOD/00.png"), "not a whole nfad model"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, sentence, folder, model, tmp_path):
    (tmp_path / "empty").mkdir()
    places = {"EMPTY": tmp_path / "empty", "GOOD": folder, "MODEL": model, "GOOD/00.png": folder / "00.png"}
    given = [places.get(a, tmp_path / a if a.endswith(".nfad") else a) for a in arguments]
    done = nfad(*given, code=2)
    assert sentence in " ".join(done.stderr.split())
    assert not (tmp_path / "x.nfad").exists()


def test_a_fit_that_is_ended_leaves_nothing_behind(tmp_path):
    (photos := tmp_path / "good").mkdir()
    (temporary := tmp_path / "tmp").mkdir()
    for index, image in enumerate(parts(12)):
        Image.fromarray(image).save(photos / f"{index}.png")
    command = [sys.executable, "-m", "nfad", "fit", photos, "-o", tmp_path / "m.nfad", *TINY, "--json"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    elsewhere = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen([*map(str, command), "--set", "acquisitions=96"], env=elsewhere, **quiet) as running:
        while not list(temporary.glob("nfad-*/*/*")):  # tokens are being written
            assert running.poll() is None
            time.sleep(0.05)
        running.terminate()
        assert running.wait(30) == 143
    assert not list(temporary.glob("nfad-*")) and not (tmp_path / "m.nfad").exists()
