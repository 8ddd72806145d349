import dataclasses
import hashlib
import json
from unittest import mock

import numpy as np
import pytest
from commands import nfad
from deploy.conftest import nfad_export
from parts import part, parts, tiny
from PIL import Image

from nfad import Detector, NfadError
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export, ship
from nfad.deploy.graph import outputs_of
from nfad.deploy.onnx_graph import build, joined, networks_of
from nfad.deploy.parity import LIMITS, Limits
from nfad.deploy.quantise import fitted_anew, quantised
from nfad.system.files import new_folder
from nfad.vision.developing import developed
from nfad.vision.images import load_part, to_view


def test_what_is_not_arithmetic_travels_in_json(shipped):
    metadata = json.loads((shipped.folder / "model.json").read_text(encoding="utf-8"))
    detector = shipped.detector
    assert metadata["threshold"] == detector.threshold and metadata["outputs"] == list(outputs_of(detector))
    assert metadata["held_out"]["filtered"] == list(detector.held_out.filtered)
    assert metadata["held_out"]["images"] == list(detector.held_out.images)
    assert metadata["families"] == list(detector.scorer.operator.family_names)
    assert metadata["words"]["verdicts"] == ["normal", "anomalous", "not judged"]
    assert metadata["config"] == json.loads(json.dumps(detector.config.as_dict()))
    assert metadata["teacher"]["sha256"] == detector.teacher.identity.sha256
    for path, wanted in (
        (shipped.model, metadata["model"]["sha256"]),
        (shipped.folder / "model.onnx", metadata["files"]["model.onnx"]),
    ):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted
    constants = {float(np.frombuffer(t.raw_data, np.float32)[0]) for t in shipped.graph.graph.initializer
                 if t.data_type == 1 and t.raw_data}  # fmt: skip
    assert np.float32(detector.threshold) not in constants  # never inside the graph


def test_the_command_tells_machines_what_came_of_it(shipped):
    said = json.loads(shipped.said)
    assert said["folder"] == str(shipped.folder) and said["parity"]["passed"]
    assert said["parity"]["flips"] == 0 and said["parity"]["images"] == 36  # 12 normals, three ways
    assert said["parity"]["score_drift"] <= LIMITS["fp32"].score


def test_other_precisions_are_smaller_and_near(shipped, other_folders):
    whole = (shipped.folder / "model.onnx").stat().st_size
    for (_, precision), (folder, parity) in other_folders.items():
        assert parity.passed
        size = sum(path.stat().st_size for path in folder.iterdir())
        assert size < (0.7 if precision == "fp16" else 1.3) * whole
    drift = {key: parity.score_drift for key, (_, parity) in other_folders.items()}
    assert drift["openvino", "fp32"] < drift["openvino", "fp16"]


def test_a_graph_of_another_detector_is_not_shipped(shipped, tmp_path):
    """The gate can fail: the same graph held against a detector whose map has another spread."""
    spread = {name: (mean, 1.05 * spread) for name, (mean, spread) in shipped.detector.normal_maps.items()}
    other = dataclasses.replace(shipped.detector, normal_maps=spread)
    with pytest.raises(NfadError, match="does not agree with torch, so nothing was written"):
        ship(shipped.graph, other, shipped.model, tmp_path / "out", Options(dynamic_batch=True), shipped.normals)
    assert not list(tmp_path.iterdir())


def test_without_normals_the_comparison_says_so(shipped, tmp_path):
    options = Options(dynamic_batch=True)
    _, parity = ship(shipped.graph, shipped.detector, shipped.model, tmp_path / "out", options)
    assert parity.passed and "no normals were given" in parity.source


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--to", "tensorrt"], "--to must be one of onnx, openvino"),
        (["--precision", "fp8"], "--precision must be one of"),
        (["--precision", "int8"], "--normals FOLDER"),
        (["--frame", "1080"], "HEIGHTxWIDTH"),
        (["--frame", "8x1920"], "at least 16 pixels a side .* got 8x1920"),
        (["--frame", "99999999x64"], "at most 100 million; got"),
        (["--bits", "12"], "--bits must be 8 or 16"),
        (["--normals", "nowhere"], "does not exist"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(arguments, sentence, shipped, tmp_path):
    with pytest.raises(NfadError, match=sentence):
        nfad_export(shipped.model, "--out", tmp_path / "out", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_to_is_told_of_before_the_model_is_read(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NfadError, match="is a file; name a folder"):
        nfad_export(tmp_path / "absent.nfad", "--out", tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("missing", "options"),
    [("onnxscript", []), ("onnxruntime", []), ("openvino", ["--to", "openvino"]), ("nncf", ["--precision", "int8"])],
)
def test_what_an_export_needs_and_is_not_installed_is_told_first(missing, options, tmp_path):
    with mock.patch.dict("sys.modules", {missing: None}), pytest.raises(NfadError) as told:
        nfad_export(tmp_path / "absent.nfad", *options)
    assert str(told.value) == f"this export needs {missing}; run: pip install 'nfad[export]'"


def test_info_knows_the_folder_and_the_model_it_came_from(shipped):
    metadata = json.loads(nfad("info", shipped.folder, "--json").stdout)
    assert metadata["model"] == str(shipped.folder) and metadata["exported_from"]["name"] == "part.nfad"
    assert metadata["threshold"] == shipped.detector.threshold and metadata["parity"]["passed"]
    assert "onnx, fp32, from part.nfad" in nfad("info", shipped.folder).stdout


def test_an_existing_folder_is_kept(shipped):
    with pytest.raises(NfadError, match="exists"):
        nfad_export(shipped.model, "--out", shipped.folder)
    with pytest.raises(NfadError, match="exists"), new_folder(shipped.folder):
        raise AssertionError


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError), new_folder(tmp_path / "out") as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "whole").write_text("x")
    assert (tmp_path / "deep" / "out" / "whole").read_text() == "x"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # NNCF warns of its own insides
def test_eight_bits_are_the_networks_alone_and_the_rest_is_fitted_to_them(shipped, tmp_path):
    """With read-outs of 32-bit tokens 8 bits make normal parts stand out; fitted anew they have their own threshold."""
    networks = [quantised(networks_of(shipped.detector), shipped.detector, shipped.normals)]
    assert networks[0].ByteSize() < 0.5 * networks_of(shipped.detector).ByteSize()
    anew = fitted_anew(networks, shipped.detector, shipped.normals)
    for detector, name in ((shipped.detector, "as-it-was"), (anew, "anew")):
        graph = joined(networks, detector, False, None, 8)
        nodes = [node.name for node in graph.graph.node if node.op_type == "QuantizeLinear"]
        assert nodes and not any(node.startswith(("read_outs/", "pixels/")) for node in nodes)
        with mock.patch.dict(LIMITS, {"int8": Limits(np.inf, np.inf, np.inf, np.inf, flips=1.0)}):
            options = Options("onnx", "int8")
            ship(graph, detector, shipped.model, tmp_path / name, options, shipped.normals, beside=shipped.detector)
    runtimes = {name: Runtime.load(tmp_path / name) for name in ("as-it-was", "anew")}
    judged = {name: runtime.predict(shipped.normals) for name, runtime in runtimes.items()}
    wanted = [anew.predict(path).score for path in shipped.normals]
    off = np.abs([each.score - score for each, score in zip(judged["anew"], wanted)])
    assert np.median(off) < 1e-3 and off.max() < 0.1  # a pixel's last bit may be rounded to the next of 256 steps
    assert judged["anew"][0].threshold == anew.threshold != shipped.detector.threshold
    flagged = {name: sum(each.is_anomalous for each in found) for name, found in judged.items()}
    assert flagged["anew"] <= flagged["as-it-was"]


@pytest.mark.filterwarnings("ignore")  # NNCF warns of its own insides
def test_ranges_of_eight_bits_are_set_on_what_networks_look_at(tmp_path):
    """Of photos in half the light: what they look at is developed."""
    detector = Detector.fit(parts(12), tiny(acquisitions=24))
    Image.fromarray(part(3) // 2).save(tmp_path / "dark.png")
    view = to_view(load_part(tmp_path / "dark.png"), detector.config.size, detector.config.resize)[0][None]
    turned = view if detector.pose is None else detector.pose.turned(view)[0]
    wanted = developed(detector.development, turned)[0]
    assert float((wanted - turned).abs().mean()) > 0.05
    with mock.patch("nncf.quantize") as quantize:
        quantised(mock.sentinel.networks, detector, [tmp_path / "dark.png"])
    [found] = quantize.call_args.args[1].get_inference_data()
    np.testing.assert_allclose(found["views"], wanted.numpy(), atol=1e-5)


@pytest.mark.slow
def test_a_fixed_frame_and_sixteen_bits(shipped, tmp_path):
    options = Options(frame=(80, 100), bits=16)
    graph = build(shipped.detector, frame=(80, 100), bits=16)
    ship(graph, shipped.detector, shipped.model, tmp_path / "out", options)
    runtime = Runtime.load(tmp_path / "out")
    deep = np.random.default_rng(0).integers(0, 2**16, (80, 100, 3), dtype=np.uint16)
    for image in (deep, (deep >> 8).astype(np.uint8)):
        assert runtime.predict(image).score == pytest.approx(shipped.detector.predict(image).score, abs=1e-3)
    with pytest.raises(NfadError, match="frames of 80×100"):
        runtime.predict(part(1))
    with pytest.raises(NfadError, match="not all 80×100"):
        ship(graph, shipped.detector, shipped.model, tmp_path / "two", options, shipped.normals)


def test_a_model_file_that_is_none_is_told(tmp_path):
    with pytest.raises(NfadError, match="does not exist"):
        export(tmp_path / "no.nfad", tmp_path / "out")
    with mock.patch.dict("sys.modules", {"openvino": None}), pytest.raises(NfadError, match="nfad\\[runtime"):
        from nfad.deploy.backends import open_session

        open_session("openvino", tmp_path / "model.xml")
