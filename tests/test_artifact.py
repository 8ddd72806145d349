import json
import struct

import pytest
import torch
from parts import part, parts, tiny
from safetensors.torch import load_file, save_file

from nfad import Detector, NfadError
from nfad.artifact import FORMAT, read_header


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


@pytest.mark.parametrize(("step", "words"), [(1, "newer than this nfad reads"), (-1, "fit it again")])
def test_another_format_is_refused_with_what_to_do(model, tmp_path, monkeypatch, step, words):
    detector = Detector.load(model)
    monkeypatch.setattr("nfad.artifact.FORMAT", FORMAT + step)
    other = detector.save(tmp_path / "other.nfad")
    monkeypatch.undo()
    with pytest.raises(NfadError, match=words):
        Detector.load(other)


def test_other_safetensors_and_missing_files_are_refused(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(NfadError, match="not a model written by"):
        Detector.load(tmp_path / "other.safetensors")
    with pytest.raises(NfadError, match="does not exist"):
        Detector.load(tmp_path / "absent.nfad")


def test_other_teacher_weights_are_refused(model, monkeypatch):
    detector = Detector.load(model)
    assert detector.predict(part(1)).score  # the right ones load
    monkeypatch.setattr("nfad.vision.weights.state_digest", lambda state: "0" * 64)
    with pytest.raises(NfadError, match="pass the original file"):
        Detector.load(model)


def test_nothing_is_left_when_saving_fails(model, tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(NfadError, match="cannot write"):
        Detector.load(model).save(target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("evidence", ["filtered", "placed"])
def test_a_loaded_model_says_what_the_saved_one_does_to_the_last_bit(evidence, tmp_path):
    views = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    fitted = Detector.fit(parts(10), tiny(evidence=evidence))
    wanted, found = (each.predict_tensor(views) for each in (fitted, Detector.load(fitted.save(tmp_path / "m.nfad"))))
    for name, each in (wanted.maps | wanted.numbers()).items():
        assert torch.equal(each, (found.maps | found.numbers())[name]), name
    assert torch.equal(wanted.strangeness, found.strangeness) and torch.equal(wanted.outside, found.outside)
