"""Where the foreground is a matter of the last bit, graphs must still say what torch says."""

import dataclasses

import numpy as np
import onnxruntime
import pytest
import torch
from parts import part, parts, tiny

from nfad import Detector
from nfad.deploy.graph import Networks, Preparing, ReadOuts, outputs_of, read_out_shapes
from nfad.deploy.onnx_graph import exported
from nfad.deploy.openvino_graph import convert, ov
from nfad.deploy.parity import LIMITS

ROUNDING = 1e-6  # what another order of sums does to a prior in 0..1


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(parts(10), tiny(foreground=True, size=128, evidence="filtered", developed=False))


@pytest.fixture(scope="module")
def inputs(detector):
    """A defective part's tokens, and a prior whose middle diagonal is as much part as background."""
    view = torch.from_numpy(part(40, 128, defect=True)).permute(2, 0, 1)[None].float() / 255
    seen, *photo = Preparing(detector)(view)
    *tokens, prior = Networks(detector)(seen)
    along = torch.arange(detector.teacher.grid).float()
    undecided = ((along + along[:, None]) / (2 * len(along) - 2)).reshape(prior.shape)
    return [*tokens, undecided, *photo]


def nudged(inputs, by):
    *tokens, prior, photo = inputs
    return [*tokens, prior + by * (prior == 0.5), photo]


def drift(detector, wanted, found):
    """As the gate of an export has it, of the largest map."""
    pairs = [pair for name, *pair in zip(outputs_of(detector), wanted, found, strict=True) if name.endswith("map")]
    return max(float(np.abs(a - b).max() / max(1, np.abs(a).max())) for a, b in pairs)


def in_torch(detector, inputs):
    return [each.numpy() for each in ReadOuts(detector)(*inputs)]


def in_onnx(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(zip((each.name for each in session.get_inputs()), inputs)))


def in_openvino(model):
    compiled = ov.compile_model(convert(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: [*compiled(inputs).values()]


def split_hard(detector):
    """As models before format 13 were."""
    return dataclasses.replace(detector, scorer=dataclasses.replace(detector.scorer, split="hard"))


def test_rounding_moves_no_map_beyond_the_gate_and_did_where_the_split_was_hard(detector, inputs):
    below, above = (nudged(inputs, by) for by in (-ROUNDING, ROUNDING))
    assert drift(detector, in_torch(detector, below), in_torch(detector, above)) < 0.1 * LIMITS["fp32"].map
    hard = split_hard(detector)
    assert drift(hard, in_torch(hard, below), in_torch(hard, above)) > LIMITS["fp32"].map


@pytest.mark.parametrize("split", ["soft", pytest.param("hard", marks=pytest.mark.slow)])
def test_graphs_split_as_torch_does(detector, inputs, split):
    model = detector if split == "soft" else split_hard(detector)
    inputs = inputs if split == "soft" else nudged(inputs, 0.01)  # hard: only where it is decided
    graph = exported(ReadOuts(model).eval(), tuple(inputs), read_out_shapes(model), outputs_of(model), False)
    wanted, given = in_torch(model, inputs), [each.numpy() for each in inputs]
    off = [each.numpy() for each in nudged(inputs, ROUNDING)]
    for run in (in_onnx(graph), in_openvino(graph)):
        assert drift(model, wanted, run(given)) < 0.1 * LIMITS["fp32"].map
        assert drift(model, wanted, run(off)) < 0.1 * LIMITS["fp32"].map
