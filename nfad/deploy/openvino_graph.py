"""The same graph as an OpenVINO model."""

from __future__ import annotations

import io

import numpy as np
import onnx

from nfad.system.platform import ready_for_openvino

ready_for_openvino()

import openvino as ov  # noqa: E402 (the cap must be set before)
from openvino import opset13 as ops  # noqa: E402

STRIP = 64  # rows of a photo that are floats at once


def convert(model: onnx.ModelProto) -> ov.Model:
    """From the ONNX model, whose antialiased resizes OpenVINO's reader would leave aliased."""
    converted = ov.convert_model(io.BytesIO(model.SerializeToString()))
    for node in converted.get_ops():
        channels = [each.get_node() for each in node.input_values()]
        if node.get_type_name() == "Concat" and all(map(_is_antialiased, channels)):
            pixels, sizes = _whole(channels[0].input_value(0)), channels[0].input_value(1)
            node.output(0).replace(resized(pixels, sizes).output(0))
    converted.validate_nodes_and_infer_types()
    return converted


def _is_antialiased(node: ov.Node) -> bool:
    return node.get_type_name() == "Interpolate" and bool(node.get_attributes()["antialias"])


def _whole(channel: ov.Output) -> ov.Output:
    """The pixels that a channel was taken from."""
    while channel.get_node().get_type_name() not in ("Slice", "StridedSlice", "Split", "VariadicSplit"):
        channel = channel.get_node().input_value(0)
    return channel.get_node().input_value(0)


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


def resized(pixels: ov.Output, sizes: ov.Output) -> ov.Node:
    """Pixels (n, height, width, 3) as floats (n, 3, …) of another height and width; where they have it already, as they
    are."""
    photo, wanted = (ops.parameter([-1, -1, -1, 3], pixels.get_element_type()), ops.parameter([2], np.int64))
    same = ops.parameter([-1, -1, -1, 3], pixels.get_element_type())
    now = ops.gather(ops.shape_of(pixels), ops.constant([1, 2]), ops.constant(0))
    choice = ops.if_op(ops.reduce_logical_and(ops.equal(now, sizes), ops.constant([0])).output(0))
    # OpenVINO's stubs bind Model.__init__ to another class than the one it exports.
    kept = ov.Model([ops.result(_planes(same))], [same])  # pyright: ignore[reportGeneralTypeIssues]
    shrunk = _by_strips(photo, wanted)
    changed = ov.Model([ops.result(shrunk)], [photo, wanted])  # pyright: ignore[reportGeneralTypeIssues]
    choice.set_then_body(kept)
    choice.set_else_body(changed)
    choice.set_input(pixels, same, photo)
    choice.set_input(sizes, None, wanted)  # pyright: ignore[reportArgumentType]  (None: unused there, as documented)
    choice.set_output(kept.results[0], changed.results[0])
    # Said once more, because a choice forgets that both have the same shape.
    return ops.reshape(choice, ops.concat([ops.constant([0, 3], ov.Type.i64), sizes], 0), special_zero=True)


def _by_strips(photo: ov.Node, sizes: ov.Node) -> ov.Output:
    """The sum over strips of rows of what each adds to the resized photo, so that a few rows are floats at once and not
    a hundred megapixels."""
    rows, columns = (_weights(_at(ops.shape_of(photo), axis), _at(sizes, axis - 1)) for axis in (1, 2))
    number, whole = ops.parameter([], np.int64), ops.parameter([-1, -1, -1, 3], photo.get_element_type())
    up, across = ops.parameter([-1, -1], np.float32), ops.parameter([-1, -1], np.float32)
    before = ops.parameter([-1, 3, -1, -1], np.float32)
    axis, strip = (ops.constant([value], ov.Type.i64) for value in (1, STRIP))
    first = ops.multiply(ops.unsqueeze(number, ops.constant(0)), strip)
    some, share = (ops.slice(each, first, ops.add(first, strip), axis, axis) for each in (whole, up))
    narrow = ops.matmul(_planes(some), across, False, True)
    total = ops.add(before, ops.matmul(share, narrow, False, False))
    going_on = ops.constant(True, ov.Type.boolean)
    results = [ops.result(going_on), ops.result(total)]
    given = [number, whole, up, across, before]
    # Rounded up; a slice beyond the last row is a shorter one.
    rounded = ops.add(_at(ops.shape_of(photo), 1), ops.constant(STRIP - 1, ov.Type.i64))
    loop = ops.loop(ops.divide(rounded, ops.constant(STRIP, ov.Type.i64)), going_on)
    loop.set_function(ov.Model(results, given))  # pyright: ignore[reportGeneralTypeIssues]
    loop.set_special_body_ports([0, 0])
    for inside, outside in zip(given[1:4], (photo, rows, columns), strict=True):
        loop.set_invariant_input(inside, outside.output(0))
    # Of one photo: with their number, which is not known beforehand, OpenVINO's compiler dies.
    shape = ops.concat([ops.constant([1, 3], ov.Type.i64), sizes], 0)
    loop.set_merged_input(before, ops.broadcast(ops.constant(0, ov.Type.f32), shape).output(0), results[1].output(0))
    return loop.get_iter_value(results[1].output(0), -1)


def _planes(pixels: ov.Node) -> ov.Node:
    """(n, height, width, channel) → (n, channel, height, width), as floats."""
    return ops.convert(ops.transpose(pixels, ops.constant([0, 3, 1, 2])), "f32")


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
