import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest import mock

import pytest
import typer
from watch.running import Strange

from nfad.cli.watch import watch
from nfad.errors import NfadError

ENVIRONMENT = {"COLUMNS": "200", "NO_COLOR": "1"}


def nfad_watch(*arguments):
    """The command itself, in this process."""
    out, err = io.StringIO(), io.StringIO()
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(watch)
    with mock.patch.dict(os.environ, ENVIRONMENT), redirect_stdout(out), redirect_stderr(err):
        code = typer.main.get_command(app).main([str(each) for each in arguments], standalone_mode=False)
    return SimpleNamespace(code=code or 0, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture(scope="module")
def model(detector, tmp_path_factory):
    return detector.save(tmp_path_factory.mktemp("model") / "part.nfad")


def test_once_judges_what_is_there_into_a_folder_beside_it(model, folder, png, tmp_path, detector):
    for i in range(2):
        (folder / f"{i}[b].png").write_bytes(png(i, defect=i == 1))
    done = nfad_watch(model, folder, "--once")
    assert done.code == 0
    verdicts = ["anomalous" if detector.predict(folder / f"{i}[b].png").is_anomalous else "normal" for i in range(2)]
    shown = [line.split() for line in done.stdout.splitlines()[:2]]
    assert [words[0] for words in shown] == verdicts and [words[4] for words in shown] == ["0[b].png", "1[b].png"]
    normal, anomalous = (verdicts.count(verdict) for verdict in ("normal", "anomalous"))
    assert f"{normal} normal, {anomalous} anomalous, 0 not judged, 0 unreadable; all are in" in done.stdout
    assert len((tmp_path / "camera-results/results.jsonl").read_text().splitlines()) == 2
    assert nfad_watch(model, folder, "--once").stdout.startswith("Nothing new; what was judged before is in ")


@pytest.mark.parametrize(("torn", "code"), [(False, 3), (True, 1)])
def test_what_is_not_judged_has_its_own_count_and_exit_code(
    model, folder, png, tmp_path, detector, monkeypatch, torn, code
):
    monkeypatch.setattr("nfad.model.load_model", lambda *_, **__: Strange(detector, {"a.png": float("nan")}))
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png(len(name)) + name.encode())
    if torn:
        (folder / "c.png").write_bytes(b"not an image")
    done = nfad_watch(model, folder, "--once", "--patience", "0.1")
    assert done.code == code
    assert done.stdout.count("not judged  ") == 2 and "no finite score" in done.stdout and "fitted part" in done.stdout
    assert f"0 normal, 0 anomalous, 2 not judged, {int(torn)} unreadable; all are in" in done.stdout


def test_json_lines_are_those_of_the_results_and_the_model_is_named_with_its_hash(model, folder, png, tmp_path):
    (folder / "a.png").write_bytes(png(1))
    (folder / "b.png").write_bytes(b"not an image")
    done = nfad_watch(
        model, folder, "--once", "--json", "--to", tmp_path / "r", "--patience", "0.1", "--false-alarm-rate", "0.5"
    )
    assert done.code == 1  # one could not be read
    assert done.stdout == (tmp_path / "r/results.jsonl").read_text()
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["model"] == "part" and first["model_sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert second["verdict"] == "unreadable" and "not an image" in second["explanation"]


def test_another_rate_is_another_threshold(model, folder, png, tmp_path, detector):
    (folder / "a.png").write_bytes(png(1))
    done = nfad_watch(model, folder, "--once", "--json", "--false-alarm-rate", "0.5")
    assert json.loads(done.stdout)["threshold"] == detector.at_rate(0.5).threshold != detector.threshold
    assert "support" not in done.stderr
    done = nfad_watch(model, folder, "--once", "--false-alarm-rate", "0.0001")
    assert f"held-out normals support {detector.held_out.smallest_rate:.2%} at the least" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("MODEL", "absent"), "absent is not a folder; name the one the camera writes into"),
        (("absent.nfad", "FOLDER"), "absent.nfad does not exist"),
        (("absent.nfad", "FOLDER", "--sink", "fax:123"), "'fax:123' is no receiver"),  # told before the model is loaded
        (("absent.nfad", "FOLDER", "--poll", "-1"), "poll is a number of seconds"),
        (("MODEL", "FOLDER", "--to", "FOLDER"), "cannot go into it"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, model, folder):
    places = {"MODEL": model, "FOLDER": folder}
    with pytest.raises(NfadError, match=sentence):
        nfad_watch(*(places.get(each, each) for each in arguments), "--once")


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="forks a loaded model")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_process_with_0_and_the_next_start_goes_on(number, model, folder, png, tmp_path):
    lines = tmp_path / "r/results.jsonl"
    arguments = [model, folder, "--poll", "0.05", "--to", tmp_path / "r", "--sink", f"move:{tmp_path / 's'}"]
    for turn in range(2):
        (folder / f"{turn}.png").write_bytes(png(turn))
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = nfad_watch(*arguments).code
            finally:
                os._exit(code)
        end = time.monotonic() + 60
        while not (lines.exists() and lines.read_bytes().count(b"\n") > turn) and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(child, number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    said = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(line["id"][-2:], line["image"]) for line in said] == [("-1", "0.png"), ("-2", "1.png")]
    assert list(folder.iterdir()) == []
    moved = [path.name for path in (tmp_path / "s").rglob("*.png") if "overlay" not in path.name]
    assert sorted(moved) == ["0-000001.png", "1-000002.png"]


def test_an_exported_folder_takes_no_weights(folder, tmp_path):
    (tmp_path / "exported").mkdir()
    with pytest.raises(NfadError, match="leave out --weights"):
        nfad_watch(tmp_path / "exported", folder, "--once", "--weights", "x")
    with pytest.raises(NfadError, match="nfad export"):
        nfad_watch(tmp_path / "exported", folder, "--once")


def test_the_signals_are_given_back(model, folder):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    nfad_watch(model, folder, "--once")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_watching_itself_needs_no_torch():
    script = "import sys, nfad.cli.watch, nfad.watch.sinks, nfad.watch.watch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
