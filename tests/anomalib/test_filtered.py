import sys

import numpy as np
import pytest
import torch

pytest.importorskip("anomalib.models", reason="anomalib is not installed")

from anomalib.models import Padim
from lightning.pytorch import seed_everything

from nfad.anomalib import AnomalibHost, Filtered
from nfad.anomalib.filtered import FilteredPatchcore
from nfad.errors import NfadError
from nfad.hosts.filter import as_compared

HOSTS = ["Patchcore", "ReverseDistillation", "Stfpm", "Glass"]


@pytest.fixture(scope="module")
def trained(build, engine, folder):
    """Models by name and rank, None for a bare one, each trained once from the same seed."""
    found = {}

    def get(name, rank):
        if (name, rank) not in found:
            torch.manual_seed(0)
            model = build(name) if rank is None else Filtered(build(name), rank)
            runner = engine(checkpoint=name == "Patchcore")
            seed_everything(1, verbose=False)  # numpy's too: the coreset's projection draws from it
            runner.fit(model, datamodule=folder())
            found[name, rank] = model.eval(), runner
        return found[name, rank]

    return get


@torch.no_grad()
def raw(model, images):
    """Before anomalib's post-processor."""
    out = model.eval().model(model.pre_processor.transform(images))
    return out.pred_score.flatten(), out.anomaly_map


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("name", HOSTS)
def test_rank_0_and_unwrapping_are_the_bare_model_to_the_bit(name, trained, seen):
    bare, none, worn = (trained(name, rank)[0] for rank in (None, 0, 4))
    wanted = raw(bare, seen)
    assert same(raw(none, seen), wanted)
    assert not same(raw(worn, seen), wanted)
    assert set(bare.state_dict()) < set(worn.state_dict())  # weights keep their names
    filtered = raw(worn, seen)
    nuisance, hyperparameters = worn.nuisance, dict(worn.hparams)
    stripped = worn.unwrap()
    assert stripped is worn and type(stripped) is type(bare) and dict(stripped.hparams) == dict(bare.hparams)
    assert same(raw(stripped, seen), wanted)
    assert set(stripped.state_dict()) == set(bare.state_dict())
    assert stripped.post_processor.image_threshold.isnan()  # it was of filtered scores
    # Worn again over the trained model: what was learned is in the filter alone, so it comes out the same.
    images = torch.stack([item.image for item in trained(name, 4)[1].trainer.datamodule.train_data])
    again = Filtered(stripped, **{key: hyperparameters[key] for key in ("rank", "interventions", "pairs", "seed")})
    again.learn(images[torch.randperm(len(images), generator=torch.Generator().manual_seed(54))])
    for found, wanted in zip(again.nuisance.bases, nuisance.bases):
        assert torch.allclose(found @ found.T, wanted @ wanted.T, atol=1e-4)
    assert torch.allclose(raw(again, seen)[0], filtered[0], rtol=1e-3)


@pytest.mark.parametrize("name", HOSTS)
def test_the_light_was_in_what_is_compared_and_is_gone(name, trained, seen):
    worn = trained(name, 4)[0]
    bare = AnomalibHost.of_torch(trained(name, None)[0].eval().model, worn.pre_processor.transform, seen)
    plain, dark = (as_compared(bare, bare.features(images)) for images in (seen, seen * 0.7))
    moved = [after - before for after, before in zip(dark, plain)]
    kept = worn.nuisance.project(moved)
    for before, after in zip(moved, kept):
        assert before.norm() > 0.01
        assert after.norm() < 0.7 * before.norm()
    content = [maps - maps.mean(dim=(0, 2, 3), keepdim=True) for maps in plain]
    for before, after, light, left in zip(content, worn.nuisance.project(content), moved, kept):
        assert after.norm() / before.norm() > left.norm() / light.norm()


def test_a_darker_copy_raises_a_filtered_score_less(trained, seen):
    normal = seen[:2]

    def rise(model):
        return float((raw(model, normal * 0.6)[0] / raw(model, normal)[0]).mean())

    bare, worn = rise(trained("Patchcore", None)[0]), rise(trained("Patchcore", 8)[0])
    assert bare > 1.5
    assert worn - 1 < 0.5 * (bare - 1)


def test_the_engine_tests_predicts_and_thresholds_filtered_scores(trained, folder):
    model, runner = trained("Patchcore", 8)
    [metrics] = runner.test(model, datamodule=folder(), verbose=False)
    assert metrics["image_AUROC"] == 1
    data = folder()
    data.setup()
    images = torch.stack([item.image for item in data.val_data])
    scores, processor = raw(model, images)[0], model.post_processor
    low, high = float(processor.image_min), float(processor.image_max)
    assert (low, high) == pytest.approx((float(scores.min()), float(scores.max())), rel=1e-4)
    paths = [item.image_path for item in data.val_data]
    for path, score in zip(paths, scores):
        [found] = runner.predict(model, data_path=path)
        wanted = (score - processor.image_threshold) / (high - low) + 0.5
        assert float(found.pred_score) == pytest.approx(float(wanted.clamp(0, 1)), abs=1e-4)


@pytest.mark.skipif(
    sys.version_info < (3, 11, 4), reason="older Pythons pickle the enum in anomalib's hyperparameters by getattr"
)
def test_a_checkpoint_comes_back_into_a_freshly_built_model(trained, build, engine, folder, seen):
    model, runner = trained("Patchcore", 8)
    [wanted] = runner.test(model, datamodule=folder(), verbose=False)
    fresh = Filtered(build("Patchcore"), rank=3)  # the rank is the checkpoint's
    [found] = engine().test(fresh, datamodule=folder(), ckpt_path=runner.best_model_path, verbose=False)
    assert found == wanted
    assert same(raw(fresh, seen), raw(model, seen))
    loaded = FilteredPatchcore.load_from_checkpoint(runner.best_model_path)
    assert loaded.hparams["rank"] == 8 and same(raw(loaded, seen), raw(model, seen))
    assert loaded.nuisance.families == model.nuisance.families == (("photometric",) * 8,) * 2
    assert same(raw(loaded.unwrap(), seen), raw(trained("Patchcore", None)[0], seen))


def by_onnxruntime(path, images):
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {session.get_inputs()[0].name: images.numpy()})))


def by_openvino(path, images):
    # Some processors' bfloat16 is a default that would differ, or not run at all.
    core, exact = pytest.importorskip("openvino").Core(), {"INFERENCE_PRECISION_HINT": "f32"}
    return {key.any_name: value for key, value in core.compile_model(path, "CPU", exact)(images.numpy()).items()}


def check_equal(found, wanted):
    assert {"pred_score", "anomaly_map", "pred_label", "pred_mask"} <= set(found)
    for name, value in found.items():
        expected = getattr(wanted, name).numpy()
        assert np.abs(value.astype(float) - expected).max() <= 1e-4 * np.abs(expected).max(), name


EXPORTS = {"input_size": (64, 64), "onnx_kwargs": {"opset_version": 18, "verbose": False}}


def test_an_export_scores_as_torch_does(trained, seen):
    model, runner = trained("Patchcore", 8)
    with torch.no_grad():
        wanted = model.eval()(seen)
    assert len(wanted.pred_score.unique()) > 1
    path = runner.export(model, "onnx", **EXPORTS)
    check_equal(by_onnxruntime(path, seen), wanted)
    check_equal(by_openvino(path, seen), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTS)
def test_every_host_exports_both_ways(name, build, engine, folder, seen):
    model, runner = Filtered(build(name), 4), engine()
    runner.fit(model, datamodule=folder())
    batch = seen[1:]  # anomalib's Glass exports for the batch of two it was traced with
    with torch.no_grad():
        wanted = model.eval()(batch)
    check_equal(by_onnxruntime(runner.export(model, "onnx", **EXPORTS), batch), wanted)
    check_equal(by_openvino(runner.export(model, "openvino", **EXPORTS), batch), wanted)


def test_the_torch_export_is_the_model(trained, seen):
    model, runner = trained("Patchcore", 8)
    loaded = torch.load(runner.export(model, "torch"), weights_only=False)["model"]
    assert type(loaded) is FilteredPatchcore and same(raw(loaded, seen), raw(model, seen))


def test_what_is_wrong_is_said_in_a_sentence(build, seen):
    with pytest.raises(
        NfadError, match=r"Padim cannot .* Patchcore, ReverseDistillation, Stfpm, Glass; .*HookedFilter"
    ):
        Filtered(Padim(layers=["layer1", "layer2"], visualizer=False))
    model = build("Patchcore")
    with pytest.raises(NfadError, match="interventions must be one of paper, wide"):
        Filtered(model, interventions="none")
    with pytest.raises(NfadError, match="cannot tell the part from its background"):
        Filtered(model, rank={"background": 2})
    assert type(model).__name__ == "Patchcore"  # a refused model is left as it was
    worn = Filtered(model)
    with pytest.raises(NfadError, match="wears a filter already"):
        Filtered(worn)
    with pytest.raises(NfadError, match="has learned nothing yet"):
        raw(worn, seen)
    with pytest.raises(NfadError, match="must lie in"):
        worn.learn(seen * 2)
    glass = build("Glass")
    glass.pre_trained = False
    with pytest.raises(NfadError, match="trains its backbone"):
        Filtered(glass)
