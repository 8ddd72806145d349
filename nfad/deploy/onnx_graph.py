"""The detector as one ONNX model: pixels → views, written by hand; networks and read-outs, exported by torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import torch
from onnx import TensorProto, compose, helper, inliner, numpy_helper
from torch import Tensor, nn

from nfad.deploy.graph import (
    BESIDE,
    Balancing,
    Cut,
    Networks,
    OneTile,
    Preparing,
    Prior,
    Quieting,
    ReadOuts,
    outputs_of,
    read_out_shapes,
    token_shapes,
)
from nfad.deploy.views import OPSET, Frame, pixels_to_views
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.vision.developing import Development
from nfad.vision.tiles import Tiled


def build(
    detector: Detector, dynamic_batch: bool = False, frame: Frame | None = None, bits: int = 8
) -> onnx.ModelProto:
    """One model from RGB pixels (n, h, w, 3) to `outputs_of`."""
    networks = [networks_of(look, dynamic_batch) for look in detector.looks]
    return joined(networks, detector, dynamic_batch, frame, bits)


def networks_of(detector: Detector, dynamic_batch: bool = False) -> onnx.ModelProto:
    """Views → tokens of one look."""
    if isinstance(detector.teacher, Tiled):
        return _tiled(detector.teacher, detector, dynamic_batch)
    views = _example((3, detector.config.size, detector.config.size), dynamic_batch)
    return exported(Networks(detector).eval(), (views,), ["views"], token_shapes(detector), dynamic_batch)


def _tiled(teacher: Tiled, detector: Detector, dynamic_batch: bool) -> onnx.ModelProto:
    """The same of views seen in tiles: the network is in the graph once, and looks at one tile after the other (Scan),
    so that memory is that of one."""
    size, outputs = detector.config.size, [f"tokens_{block}" for block in range(len(teacher.channels))]
    views, tile = (_example((3, side, side), dynamic_batch) for side in (size, teacher.tile))
    whole = exported(Cut(teacher).eval(), (views,), ["views"], ["tiles"], dynamic_batch)
    inner = [f"{name}_of_tile" for name in outputs]
    network = inliner.inline_local_functions(exported(OneTile(teacher).eval(), (tile,), ["tile"], inner, dynamic_batch))
    network = compose.add_prefix(network, "tile/", rename_inputs=False, rename_outputs=False).graph
    graph = whole.graph
    graph.node.append(
        helper.make_node(
            "Scan", ["tiles"], [f"{name}/tiles" for name in outputs], "tiles/scan", body=network, num_scan_inputs=1
        )
    )
    graph.initializer.append(numpy_helper.from_array(teacher.kept.numpy(), "kept"))
    del graph.output[:]
    for name, channels in zip(outputs, teacher.channels, strict=True):
        graph.initializer.append(numpy_helper.from_array(np.array([0, -1, channels]), f"{name}/shape"))
        graph.node.extend(
            [
                helper.make_node(
                    "Transpose", [f"{name}/tiles"], [f"{name}/beside"], f"{name}/beside", perm=[1, 0, 2, 3]
                ),
                helper.make_node("Reshape", [f"{name}/beside", f"{name}/shape"], [f"{name}/all"], f"{name}/all"),
                helper.make_node("Gather", [f"{name}/all", "kept"], [name], name, axis=1),
            ]
        )
        shape = ["n" if dynamic_batch else 1, teacher.grid**2, channels]
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    if detector.config.foreground:
        prior = exported(Prior(teacher, size).eval(), (views,), ["views"], ["prior"], dynamic_batch)
        whole = _beside(whole, prior, "prior/")
    return whole


def joined(
    every: Sequence[onnx.ModelProto], detector: Detector, dynamic_batch: bool, frame: Frame | None, bits: int
) -> onnx.ModelProto:
    """Pixels and views before the networks of every look, read-outs after; a node's name begins with its part:
    networks/, read_outs/."""
    networks, *others = every
    for place, other in enumerate(others, 1):
        networks = _beside(networks, compose.add_prefix(other, BESIDE * place, rename_inputs=False))
    views = _example((3, detector.config.size, detector.config.size), dynamic_batch)
    shapes, size, outputs = read_out_shapes(detector), detector.config.size, outputs_of(detector)
    tokens = tuple(_example(shape, dynamic_batch) for shape in shapes.values())
    after = exported(ReadOuts(detector).eval(), tokens, shapes, outputs, dynamic_batch)
    before = Preparing(detector).eval()
    named = {
        "pixels": pixels_to_views(size, detector.config.resize, dynamic_batch, frame, bits),
        "preparing": exported(before, (views,), ["views"], before.outputs, dynamic_batch),
        **({} if detector.development is None else {"developing": _developing(detector.development, views)}),
        "networks": networks,
        "read_outs": after,
    }
    parts = [
        compose.add_prefix(model, f"{name}/", rename_inputs=False, rename_outputs=False)
        for name, model in named.items()
    ]
    whole = parts[0]
    for part in parts[1:]:
        part.ir_version = whole.ir_version
        given = {value.name for value in whole.graph.output}
        seen = {"views": "seen"} if "seen" in given else {}
        shared = [(seen.get(value.name, value.name), value.name) for value in part.graph.input]
        whole = compose.merge_models(whole, part, shared, outputs=[*outputs] if part is parts[-1] else None)
    whole.graph.name, whole.producer_name = "nfad", "nfad"
    onnx.checker.check_model(whole)
    return whole


def _developing(development: Development, views: Tensor) -> onnx.ModelProto:
    """Views and their noise → what networks look at, and what was undone; where there is no noise none is sought."""
    dynamic = len(views) > 1
    both = views, views.clone()  # an exporter takes one tensor, given twice, for one input
    whole = exported(Balancing(development).eval(), both, ["still", "quiet"], ["seen", "undone"], dynamic)
    noise = torch.full((len(views),), 0.01)
    quieting = exported(Quieting(development).eval(), (views, noise), ["still", "noise"], ["quietened"], dynamic)
    quieting = compose.add_prefix(inliner.inline_local_functions(quieting), "quieting/", rename_inputs=False).graph
    graph = whole.graph
    del quieting.input[:]  # they are the names of what is there without
    as_it_is = helper.make_node("Identity", ["still"], ["as_it_is"], "as_it_is")
    shape = ["n" if dynamic else 1, *views.shape[1:]]
    given = helper.make_tensor_value_info("as_it_is", TensorProto.FLOAT, shape)
    still = helper.make_graph([as_it_is], "still", [], [given])
    chosen = [
        helper.make_node("ReduceMax", ["noise"], ["noisiest"], "noisiest", keepdims=0),
        helper.make_node("Greater", ["noisiest", "none"], ["noisy"], "noisy"),
        helper.make_node("If", ["noisy"], ["quiet"], "quiet", then_branch=quieting, else_branch=still),
    ]
    nodes = [*chosen, *graph.node]
    del graph.node[:], graph.input[1:]
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "none"))
    graph.input.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, shape[:1]))
    return whole


def _beside(model: onnx.ModelProto, other: onnx.ModelProto, prefix: str = "") -> onnx.ModelProto:
    """Two models of the same input as one."""
    both = onnx.ModelProto()
    both.CopyFrom(model)
    if prefix:
        other = compose.add_prefix(other, prefix, rename_inputs=False, rename_outputs=False)
    for name in ("node", "initializer", "value_info", "output"):
        getattr(both.graph, name).extend(getattr(other.graph, name))
    both.functions.extend(other.functions)
    return both


def _example(shape: tuple[int, ...], dynamic_batch: bool) -> Tensor:
    """What an export is traced with."""
    return torch.rand(2 if dynamic_batch else 1, *shape, generator=torch.Generator().manual_seed(0))


def exported(
    module: nn.Module, inputs: tuple[Tensor, ...], names: Iterable[str], outputs: Iterable[str], dynamic_batch: bool
) -> onnx.ModelProto:
    """A torch module as ONNX, the batch as "n" or as it comes."""
    batch = {0: torch.export.Dim("n")} if dynamic_batch else None
    shapes = tuple(batch for _ in inputs)
    if isinstance(module, ReadOuts):
        shapes = (shapes,)  # its inputs are one starred argument
    # The exporter warns and reports of its own insides.
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.requires_grad_(False), inputs, input_names=[*names], output_names=[*outputs], dynamo=True,
                opset_version=OPSET, dynamic_shapes=shapes if dynamic_batch else None, verbose=False,
            )  # fmt: skip
    finally:
        logging.disable(disabled)
    if program is None:
        raise NfadError("torch's exporter gave no graph; it needs onnxscript, so run: pip install 'nfad[export]'")
    return _outputs_from_nodes(program.model_proto)


def _outputs_from_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """An output that is always the same (families of no columns) becomes a weight, which a merge would lose."""
    outputs = {value.name for value in model.graph.output}
    for tensor in model.graph.initializer:
        if tensor.name in outputs:
            name = tensor.name
            tensor.name = f"{name}/constant"
            model.graph.node.append(helper.make_node("Identity", [tensor.name], [name], f"{name}/identity"))
    inner = [value for value in model.graph.value_info if value.name not in outputs]
    del model.graph.value_info[:]
    model.graph.value_info.extend(inner)
    return model


def halve_weights(model: onnx.ModelProto, smallest: int = 1024) -> onnx.ModelProto:
    """The networks' weights stored in 16 bits and widened when the model is loaded; arithmetic stays in 32.

    The read-outs keep theirs: they are small, and a basis rounded to three digits is no longer orthonormal.
    """
    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    _halve(halved.graph, smallest)
    return halved


def _halve(graph: onnx.GraphProto, smallest: int) -> None:
    casts = []
    for inner in (each.g for node in graph.node for each in node.attribute if each.type == onnx.AttributeProto.GRAPH):
        _halve(inner, smallest)
    for tensor in graph.initializer:
        large = tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims) >= smallest
        if large and tensor.name.startswith("networks/"):
            values = numpy_helper.to_array(tensor)
            if np.abs(values).max() > np.finfo(np.float16).max:
                continue
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}/half"))
            casts.append(helper.make_node("Cast", [f"{name}/half"], [name], f"{name}/widen", to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
