import socket

import pytest
import typer
from service.serving import Process, serving
from typer.testing import CliRunner

from nfad.cli.serve import _listener, serve
from nfad.errors import NfadError

app = typer.Typer()
app.command()(serve)


def refused(*arguments):
    """The sentence with which it will not start."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, NfadError), result.output
    return str(result.exception)


def test_what_cannot_be_served_is_a_sentence_before_anything_is_loaded(model, tmp_path):
    data = ("--data", tmp_path / "data")
    assert "token is needed" in refused(model, *data, "--host", "0.0.0.0")
    assert "16 ASCII" in refused(model, *data, "--token", "short")
    assert "--keep takes" in refused(model, *data, "--keep", "for ever")
    assert not (tmp_path / "data").exists()


def test_an_address_that_is_taken(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sentence = refused(model, "--data", tmp_path, "--port", taken.getsockname()[1])
    assert "cannot listen" in sentence and "choose another --port" in sentence


@pytest.mark.parametrize("name", ["absent.nfad", "a b.nfad"])
def test_models_that_cannot_be_served_let_go_of_the_folder(model, tmp_path, port, name):
    if " " in name:
        (tmp_path / name).write_bytes(model.read_bytes())
    for _ in range(2):  # the second time the folder is free again
        sentence = refused(tmp_path / name, "--data", tmp_path / "data", "--port", port)
        assert "does not exist" in sentence or "cannot be a model's name" in sentence
    assert "does not exist" in refused(f"line={tmp_path / 'absent.nfad'}", "--data", tmp_path / "data", "--port", port)
    assert "two models" in refused(model, model, "--data", tmp_path / "data", "--port", port)
    assert not (tmp_path / "data").exists()


def test_answers_do_not_wait_to_be_acknowledged(port):
    with _listener("127.0.0.1", port) as listener, socket.create_connection(("127.0.0.1", port)):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_name_and_what_became_of_its_rate_are_told_at_the_start(model, tmp_path, port):
    with serving([f"line-3={model}"], tmp_path / "data") as client:
        client.put("/v1/models/line-3/rate", json={"rate": 0.5}).raise_for_status()
    process = Process(f"line-3={model}", tmp_path / "data", port, log=tmp_path / "log").wait()
    assert process.end() == 0
    told = (tmp_path / "log").read_text().splitlines()
    assert told[0] == "Note: line-3 judges at the false-alarm rate of 0.5 it was set to, not at its file's 0.2"
    assert told[1].startswith(f"Serving line-3 at http://127.0.0.1:{port};")


def test_the_token_comes_from_the_environment_too(model, tmp_path, monkeypatch):
    monkeypatch.setenv("NFAD_TOKEN", "short")
    assert "16 ASCII" in refused(model, "--data", tmp_path)
