"""The same graph as an OpenVINO model."""

from __future__ import annotations

import io

import onnx

from nfad.machine import ready_for_openvino

ready_for_openvino()

import openvino as ov  # noqa: E402 (the cap must be set before)
from openvino import opset13 as ops  # noqa: E402


def convert(model: onnx.ModelProto) -> ov.Model:
    """From the ONNX model, whose antialiased resizes OpenVINO's reader would leave aliased."""
    converted = ov.convert_model(io.BytesIO(model.SerializeToString()))
    for node in converted.get_ops():
        if node.get_type_name() == "Interpolate" and node.get_attributes()["antialias"]:
            # Pillow's filter is torch's: triangles as wide as the reduction, cut at the border and summing to one.
            inputs = [node.input_value(index) for index in range(node.get_input_size())]
            pillow = ops.interpolate(inputs[0], inputs[1], "bilinear_pillow", "sizes", axes=inputs[2])
            node.output(0).replace(pillow.output(0))
    converted.validate_nodes_and_infer_types()
    return converted
