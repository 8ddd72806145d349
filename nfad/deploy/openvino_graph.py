"""The same graph as an OpenVINO model."""

from __future__ import annotations

import io

import numpy as np
import onnx

from nfad.system.platform import ready_for_openvino

ready_for_openvino()

import openvino as ov  # noqa: E402 (the cap must be set before)
from openvino import opset13 as ops  # noqa: E402


def convert(model: onnx.ModelProto) -> ov.Model:
    """From the ONNX model, whose antialiased resizes OpenVINO's reader would leave aliased."""
    converted = ov.convert_model(io.BytesIO(model.SerializeToString()))
    for node in converted.get_ops():
        if node.get_type_name() == "Interpolate" and node.get_attributes()["antialias"]:
            node.output(0).replace(resized(node.input_value(0), node.input_value(1)).output(0))
    _take_apart(converted)
    converted.validate_nodes_and_infer_types()
    return converted


def _take_apart(model: ov.Model) -> None:
    """A photo's channels by one transposition, in place: to pick every third byte is slow in OpenVINO, three times as
    slow as this. In onnxruntime it is not, and a channel at a time takes less memory."""
    nodes = {node.get_friendly_name().split("/")[-1]: node for node in model.get_ops()}
    if "channel0" not in nodes:  # part of a graph, which takes no photo
        return
    apart = None
    for channel in range(3):
        picked, plane = nodes[f"channel{channel}"], nodes[f"planes{channel}"]
        apart = apart or ops.transpose(picked.input_value(0), ops.constant([0, 3, 1, 2]))
        one, first = ops.constant([1]), ops.constant([channel])
        plane.output(0).replace(ops.slice(apart, first, ops.constant([channel + 1]), one, one).output(0))


def halve_weights(model: ov.Model, smallest: int = 1024) -> ov.Model:
    """The networks' weights stored in 16 bits and widened when the model is compiled, in place; the read-outs keep
    theirs, as in ONNX. OpenVINO's own compression would halve them all."""
    for node in model.get_ops():
        if node.get_type_name() in ("TensorIterator", "Loop"):  # over tiles
            halve_weights(node.get_function(), smallest)  # pyright: ignore[reportAttributeAccessIssue]  (a loop's)
        if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f32:
            continue
        values = node.data  # pyright: ignore[reportAttributeAccessIssue]  (a Constant's)
        users = [each.get_node().get_friendly_name() for each in node.output(0).get_target_inputs()]
        inside = all(name.startswith("networks/") for name in users)  # its own name may be lost
        if inside and values.size >= smallest and np.abs(values).max() <= np.finfo(np.float16).max:
            node.output(0).replace(ops.convert(ops.constant(values.astype(np.float16)), "f32").output(0))
    return model


def resized(images: ov.Output, sizes: ov.Output) -> ov.Node:
    """Images (n, channels, height, width) at another height and width; as they are where they have it already."""
    channels = images.get_partial_shape()[1].get_length()
    photo, wanted = ops.parameter([-1, channels, -1, -1], np.float32), ops.parameter([2], np.int64)
    rows, columns = (_weights(_at(ops.shape_of(photo), axis), _at(wanted, axis - 2)) for axis in (2, 3))
    shrunk = ops.matmul(ops.matmul(rows, photo, False, False), columns, False, True)
    same = ops.parameter([-1, channels, -1, -1], np.float32)
    now = ops.gather(ops.shape_of(images), ops.constant([2, 3]), ops.constant(0))
    choice = ops.if_op(ops.reduce_logical_and(ops.equal(now, sizes), ops.constant([0])).output(0))
    # OpenVINO's stubs bind Model.__init__ to another class than the one it exports.
    kept = ov.Model([ops.result(same)], [same])  # pyright: ignore[reportGeneralTypeIssues]
    changed = ov.Model([ops.result(shrunk)], [photo, wanted])  # pyright: ignore[reportGeneralTypeIssues]
    choice.set_then_body(kept)
    choice.set_else_body(changed)
    choice.set_input(images, same, photo)
    choice.set_input(sizes, None, wanted)  # pyright: ignore[reportArgumentType]  (None: unused there, as documented)
    choice.set_output(kept.results[0], changed.results[0])
    # Said once more, because a choice forgets that both have the same shape.
    return ops.reshape(choice, ops.concat([ops.constant([0, 0], ov.Type.i64), sizes], 0), special_zero=True)


def _weights(before: ov.Node, after: ov.Node) -> ov.Node:
    """`resize_weights` of nfad/vision/pixels.py, step by step.

    OpenVINO has such a filter, but prepares it for every new size of photo for seconds.
    """
    one, two = (ops.constant(number, ov.Type.i64) for number in (1, 2))

    def centres(count: ov.Node, scale: ov.Node) -> ov.Node:
        places = ops.range(ops.constant(0, ov.Type.i64), count, one, "i64")
        return ops.multiply(ops.add(ops.multiply(places, two), one), scale)

    apart = ops.subtract(
        ops.unsqueeze(centres(after, before), ops.constant(1)), ops.unsqueeze(centres(before, after), ops.constant(0))
    )
    width = ops.multiply(ops.maximum(before, after), two)
    shares = ops.divide(*(ops.convert(each, "f32") for each in (ops.abs(apart), width)))
    weights = ops.relu(ops.subtract(ops.constant(1, ov.Type.f32), shares))
    return ops.divide(weights, ops.reduce_sum(weights, ops.constant([1]), keep_dims=True))


def _at(sizes: ov.Output | ov.Node, place: int) -> ov.Node:
    return ops.convert(ops.gather(sizes, ops.constant(place), ops.constant(0)), "i64")
