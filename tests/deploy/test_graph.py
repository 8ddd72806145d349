import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part, parts, tiny
from torch.nn import functional as F

from nfad import Detector
from nfad.config import PLACED
from nfad.deploy.graph import ViewGraph, outputs_of
from nfad.deploy.onnx_graph import halve_weights
from nfad.deploy.resizing import MatrixResizing, resized

VARIANTS = [
    {"reference": "linear", "order": "filter-then-fit", "evidence": "filtered"},
    {"reference": "linear", "order": "fit-then-filter", "gate": "magnitude", "localization": "global"},
    {"reference": "nearest", "order": "filter-then-fit", "foreground": True, "evidence": "filtered"},
    {"reference": "student", "order": "fit-then-filter", "common_mode": False},
    {"reference": "linear", "order": "filter-then-fit", "rank": {}, "evidence": "filtered"},
    {"reference": "linear", "evidence": "placed"},
    {"reference": "linear", "evidence": "regional"},
    {"reference": "linear", "acquisitions": 0},
    {"beside": "embedded-fast", "evidence": "regional"},
]


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def as_scores(detector, views):
    wanted = detector.predict_tensor(views)
    families = list(wanted.nuisance_by_family.values())
    own = () if wanted.gate is None else (wanted.maps["detection"], wanted.gate)
    strange = () if wanted.strangeness is None else (wanted.strangeness, wanted.outside)
    return (
        wanted.score, wanted.unfiltered_score, wanted.maps["localization" if own else "detection"],
        wanted.maps["control"], wanted.participation, wanted.nuisance_fraction,
        torch.stack(families, dim=1) if families else torch.zeros(len(views), 0), *own, *strange,
    )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_the_modules_are_the_detector(variant):
    detector = Detector.fit(parts(10), tiny(**variant))
    pixels = torch.from_numpy(np.stack([part(seed, 64, defect=True) for seed in (40, 41)]))
    views = pixels.permute(0, 3, 1, 2).float() / 255
    found = ViewGraph(detector)(views)
    gated, tells = "localization" in variant, variant.get("acquisitions", 1) > 0
    assert len(found) == len(outputs_of(detector)) == 7 + 2 * gated + 2 * tells
    assert (detector.scorer.placed is not None) == (variant.get("evidence") in PLACED)
    for ours, wanted in zip(found, as_scores(detector, views), strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_the_older_exporter_takes_the_modules_too(tmp_path):
    """Of a teacher with patches of 14, whose own antialiased resize that exporter does not know."""
    changes = {"teacher": "vit_small_patch14_dinov2", "blocks": (0, 1), "prior_blocks": (2,)}
    detector = Detector.fit(parts(8), tiny(**changes))
    views = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    graph = ViewGraph(detector)
    torch.onnx.export(
        graph, (views,), tmp_path / "g.onnx", dynamo=False, opset_version=18, input_names=["views"],
        output_names=list(outputs_of(detector)), dynamic_axes={"views": {0: "n"}},
    )  # fmt: skip
    run = onnxruntime.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 2):
        for ours, wanted in zip(run.run(None, {"views": views[:count].numpy()}), graph(views[:count])):
            np.testing.assert_allclose(ours, wanted.numpy(), atol=5e-3, rtol=5e-3)


def test_every_output_is_there_in_order(shipped):
    assert tuple(value.name for value in shipped.graph.graph.output) == outputs_of(shipped.detector)


@given(st.integers(8, 60), st.integers(4, 60), st.integers(4, 60), st.integers(0, 2**31))
def test_resizing_by_matrices_is_antialiased_interpolation(side, height, width, seed):
    images = torch.rand(2, 3, side, side + 5, generator=torch.Generator().manual_seed(seed))
    wanted = F.interpolate(images, (height, width), mode="bilinear", antialias=True, align_corners=False)
    torch.testing.assert_close(resized(images, height, width), wanted, atol=1e-5, rtol=1e-5)
    with MatrixResizing():
        again = F.interpolate(images, (height, width), mode="bilinear", antialias=True, align_corners=False)
        plain = F.interpolate(images, (height, width), mode="bilinear")
    torch.testing.assert_close(again, wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(plain, F.interpolate(images, (height, width), mode="bilinear"))


def test_halved_weights_are_the_networks_alone(shipped):
    before = shipped.graph.SerializeToString()
    halved = halve_weights(shipped.graph)
    assert shipped.graph.SerializeToString() == before
    assert halved.ByteSize() < 0.6 * shipped.graph.ByteSize()
    names = [tensor.name for tensor in halved.graph.initializer if tensor.name.endswith("/half")]
    assert names and all(name.startswith("networks/") for name in names)
