import numpy as np
import pytest
import torch
from parts import TINY

pytest.importorskip("anomalib.models", reason="anomalib is not installed")

from nfad.anomalib import Nfad
from nfad.errors import NfadError

SETTINGS = {name: value for name, value in TINY.items() if name not in ("student", "epochs", "bank")}


@pytest.fixture(scope="module")
def trained(engine, folder):
    model, runner = Nfad(settings=SETTINGS, visualizer=False), engine()
    runner.fit(model, datamodule=folder())
    return model.eval(), runner


def test_the_engine_fits_the_detector_on_its_training_images(trained, folder, seen):
    model, runner = trained
    detector = model.model.detector
    data = folder()
    data.setup()
    assert detector.fitted_on == len(detector.normals["score"]) == len(data.train_data)
    with torch.no_grad():
        found = model.model(seen)
    assert torch.allclose(found.pred_score, detector.predict_tensor(seen).score, rtol=1e-4)
    [metrics] = runner.test(model, datamodule=folder(), verbose=False)
    assert metrics["image_AUROC"] == 1


def test_it_predicts_files(trained, root):
    model, runner = trained
    [found] = runner.predict(model, data_path=root / "bad" / "0.png")
    assert found.anomaly_map.shape[-2:] == (64, 64) and 0 <= float(found.pred_score) <= 1


def test_a_checkpoint_holds_the_artifact_and_no_network(trained, engine, folder, seen):
    model, runner = trained
    assert not any("graph" in name for name in model.state_dict())
    [wanted] = runner.test(model, datamodule=folder(), verbose=False)
    fresh = Nfad(settings=SETTINGS, visualizer=False)
    [found] = engine().test(fresh, datamodule=folder(), ckpt_path=runner.best_model_path, verbose=False)
    assert found == wanted
    loaded = Nfad.load_from_checkpoint(runner.best_model_path).eval()
    with torch.no_grad():
        assert torch.equal(loaded(seen).pred_score, model(seen).pred_score)
    assert loaded.model.detector.threshold == model.model.detector.threshold


@pytest.mark.slow
def test_exports_score_as_torch_does(trained, seen):
    model, runner = trained
    with torch.no_grad():
        wanted = model(seen).pred_score.numpy()
    options = {"input_size": (64, 64), "onnx_kwargs": {"opset_version": 18, "verbose": False}}
    session = pytest.importorskip("onnxruntime").InferenceSession(runner.export(model, "onnx", **options))
    [found] = session.run(["pred_score"], {session.get_inputs()[0].name: seen.numpy()})
    assert np.abs(found - wanted).max() <= 1e-4 * wanted.max()
    core, exact = pytest.importorskip("openvino").Core(), {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(runner.export(model, "openvino", **options), "CPU", exact)
    assert np.abs(compiled(seen.numpy())["pred_score"] - wanted).max() <= 1e-4 * wanted.max()


def test_views_are_cut_as_the_preset_says(seen):
    model = Nfad("embedded", SETTINGS | {"resize": 80}, visualizer=False)
    large = torch.rand(1, 3, 160, 200, generator=torch.Generator().manual_seed(0))
    assert model.pre_processor.transform(large).shape == (1, 3, 64, 64)
    assert model.model.config.resize is None  # not cut twice


def test_what_is_wrong_is_said_in_a_sentence(seen):
    with pytest.raises(NfadError, match="preset must be one of"):
        Nfad("best")
    with pytest.raises(NfadError, match="has seen no normal image yet"):
        Nfad(settings=SETTINGS, visualizer=False).eval().model(seen)
