import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from commands import nfad
from parts import part, parts, tiny
from safetensors.torch import load_file, save_file

from nfad import Detector, NfadError
from nfad.artifact.file import read_header
from nfad.artifact.formats import FORMAT, OLDEST, READ

# Models of a few parts and what they said of three more, by the versions that wrote these formats.
OLD = Path(__file__).parent / "old"
PREDICTIONS = json.loads((OLD / "predictions.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Detector.fit(parts(12), tiny()).save(tmp_path_factory.mktemp("model") / "m.nfad")


def test_no_pickle_inside(model):
    header, tensors = read_header(model)
    assert header["format"] == FORMAT
    assert header["teacher"]["sha256"] and header["config"]["seed"] == 54
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.999])
def test_a_truncated_file_is_refused(model, tmp_path, keep):
    content = model.read_bytes()
    cut = tmp_path / "cut.nfad"
    cut.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(NfadError, match="not a whole nfad model"):
        Detector.load(cut)


def test_an_edited_tensor_is_refused(model, tmp_path):
    content = bytearray(model.read_bytes())
    content[-5] ^= 1
    edited = tmp_path / "edited.nfad"
    edited.write_bytes(content)
    with pytest.raises(NfadError, match="changed after it was written"):
        Detector.load(edited)


def rewrite(model, path, change):
    """The same file with another JSON header and no checksum to match."""
    content = model.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    change(metadata)
    save_file(load_file(model), path, metadata=metadata)
    return path


def test_an_edited_threshold_is_refused(model, tmp_path):
    def lower(metadata):
        header = json.loads(metadata["nfad"])
        header["held_out"]["detection"] = [99.0] * 4
        metadata["nfad"] = json.dumps(header, sort_keys=True)

    with pytest.raises(NfadError, match="changed after it was written"):
        Detector.load(rewrite(model, tmp_path / "e.nfad", lower))


@pytest.mark.parametrize(("step", "words"), [(1, "newer than this nfad reads"), (OLDEST - 1 - FORMAT, "fit it again")])
def test_another_format_is_refused_with_what_to_do(model, tmp_path, monkeypatch, step, words):
    detector = Detector.load(model)
    monkeypatch.setattr("nfad.artifact.file.FORMAT", FORMAT + step)
    other = detector.save(tmp_path / "other.nfad")
    monkeypatch.undo()
    with pytest.raises(NfadError, match=words):
        Detector.load(other)


def test_a_model_that_developed_photos_as_none_does_now_is_refused_and_one_that_did_not_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("nfad.artifact.file.FORMAT", 14)
    saved = [
        Detector.fit(parts(10), tiny(developed=developed)).save(tmp_path / f"{developed}.nfad")
        for developed in (True, False)
    ]
    monkeypatch.undo()
    with pytest.raises(NfadError, match="develops photos as no version since does .format 14.; fit it again"):
        Detector.load(saved[0])
    assert Detector.load(saved[1]).development is None


def test_other_safetensors_and_missing_files_are_refused(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(NfadError, match="not a model written by"):
        Detector.load(tmp_path / "other.safetensors")
    with pytest.raises(NfadError, match="does not exist"):
        Detector.load(tmp_path / "absent.nfad")


def test_other_teacher_weights_are_refused(model, monkeypatch):
    detector = Detector.load(model)
    assert detector.predict(part(1)).score  # the right ones load
    monkeypatch.setattr("nfad.vision.weights.drawn_digest", lambda state: "0" * 64)
    with pytest.raises(NfadError, match="pass the original file"):
        Detector.load(model)


def test_nothing_is_left_when_saving_fails(model, tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(NfadError, match="cannot write"):
        Detector.load(model).save(target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("evidence", ["filtered", "placed", "regional"])
def test_a_loaded_model_says_what_the_saved_one_does_to_the_last_bit(evidence, tmp_path):
    views = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    fitted = Detector.fit(parts(10), tiny(evidence=evidence))
    wanted, found = (each.predict_tensor(views) for each in (fitted, Detector.load(fitted.save(tmp_path / "m.nfad"))))
    for name, each in (wanted.maps | wanted.numbers()).items():
        assert torch.equal(each, (found.maps | found.numbers())[name]), name
    assert torch.equal(wanted.strangeness, found.strangeness) and torch.equal(wanted.outside, found.outside)


def judges_all(name):
    return int(name.split("-")[1]) < READ


def agrees(path, name):
    """Within what another version of torch may do to the last bits."""
    model = Detector.load(path)
    for wanted in PREDICTIONS[name]:
        found = model.predict(part(wanted["seed"], defect=wanted["seed"] == 52))
        for field in ("score", "threshold", "unfiltered_score", "unfiltered_threshold", "participation"):
            assert getattr(found, field) == pytest.approx(wanted[field], rel=1e-4), field
        assert found.is_anomalous == wanted["is_anomalous"] and found.is_judged
    return model


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_model_of_an_older_format_judges_as_it_did(name):
    model = agrees(OLD / f"{name}.nfad", name)
    assert (model.judgeable is None) == judges_all(name) and (model.config.gate is None) == (not name.endswith("gated"))
    assert {"score", "unfiltered_score", "nuisance:sensor"} < set(model.normals)  # so that drift can be told


@pytest.mark.parametrize("name", PREDICTIONS)
def test_an_upgraded_file_judges_as_before_and_the_old_one_is_kept(name, tmp_path):
    path = Path(shutil.copy(OLD / f"{name}.nfad", tmp_path / "m.nfad"))
    said = nfad("upgrade", path).stdout
    before = name.split("-")[1]
    assert f"format {before} → {FORMAT}" in said and ("judges every photo" in said) == judges_all(name)
    assert agrees(path, name).config == Detector.load(OLD / f"{name}.nfad").config
    assert json.loads(nfad("info", path, "--json").stdout)["format"] == FORMAT
    assert (tmp_path / f"m.nfad.format-{before}").read_bytes() == (OLD / f"{name}.nfad").read_bytes()
    assert "already" in nfad("upgrade", path).stdout


def test_an_upgrade_changes_no_file_if_one_is_no_model(tmp_path):
    path = Path(shutil.copy(OLD / "format-3-linear.nfad", tmp_path / "m.nfad"))
    (tmp_path / "n.nfad").write_bytes(b"none")
    assert "not a whole nfad model" in nfad("upgrade", path, tmp_path / "n.nfad", code=2).stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.nfad", "n.nfad"]
    assert "export it again" in nfad("upgrade", tmp_path, code=2).stderr
