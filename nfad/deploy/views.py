"""How a photo becomes a view, as a graph: nfad/vision/images.py says how, and the tests prove that this is the same.

`framing` says which rows and columns are seen, in whole numbers, and `resize_weights` how they are averaged. ONNX has
an operator for the latter; for OpenVINO, openvino_graph.py writes the weights out.
"""

from __future__ import annotations

import onnx
from onnx import parser

OPSET = 18  # the first with an antialiased Resize
Frame = tuple[int, int]

# framing() in whole numbers, as nfad/vision/pixels.py has it; halves go to the even number.
CENTRE = """
  sides = Shape <start = 1, end = 3> (pixels)
  shorter = ReduceMin (sides)
  four = Constant <value_int = 4> ()
  three = Constant <value_int = 3> ()
  two = Constant <value_int = 2> ()
  one = Constant <value_int = 1> ()
  zero = Constant <value_int = 0> ()
  size = Constant <value_int = {size}> ()
  resize = Constant <value_int = {resize}> ()
  limit = Mul (shorter, four)
  long = Greater (sides, limit)
  middle = Mul (shorter, three)
  ends = Sub (sides, middle)
  end = Div (ends, two)
  spare = Where (long, end, zero)
  stop = Sub (sides, spare)
  rest = Sub (stop, spare)
  scaled = Mul (rest, resize)
  doubled = Mul (scaled, two)
  numerator = Add (doubled, shorter)
  denominator = Mul (shorter, two)
  whole = Div (numerator, denominator)
  back = Mul (whole, denominator)
  tie = Equal (numerator, back)
  parity = Mod (whole, two)
  even = Sub (whole, parity)
  rounded = Where (tie, even, whole)
  target = Max (rounded, size)
  border = Sub (target, size)
  first = Div (border, two)
  last = Add (first, size)
  pixel_axes = Constant <value_ints = [1, 2]> ()
  view_axes = Constant <value_ints = [2, 3]> ()
  inner = Slice (pixels, spare, stop, pixel_axes)
  {resized}
  cropped = Slice (resized, first, last, view_axes)
"""
STRETCHED = """
  target = Constant <value_ints = [{size}, {size}]> ()
  {resized}
"""
# One channel after the other: of a photo of 100 megapixels, floats take 0.4 GB instead of 1.2.
CHANNEL = """
  from{c} = Constant <value_ints = [{c}]> ()
  to{c} = Constant <value_ints = [{d}]> ()
  channel{c} = Slice ({given}, from{c}, to{c}, last_axis)
  plane{c} = Squeeze (channel{c}, last_axis)
  planes{c} = Unsqueeze (plane{c}, channel_axis)
  values{c} = Cast <to = 1> (planes{c})
  small{c} = Resize <{how}> (values{c}, , , target)
"""
# exclude_outside: weights beyond the border are left out and the rest sum to one, as torch and Pillow do it.
HOW = (
    'mode = "linear", antialias = 1, exclude_outside = 1, coordinate_transformation_mode = "half_pixel", axes = [2, 3]'
)


def pixels_to_views(
    size: int, resize: int | None, dynamic_batch: bool, frame: Frame | None, bits: int
) -> onnx.ModelProto:
    """`to_view` as a graph: cut out, resize, crop, scale to [0, 1]."""
    batch, (height, width) = "n" if dynamic_batch else 1, frame or ("h", "w")
    given, wanted = ("pixels", "cropped") if resize is None else ("inner", "resized")
    steps = (STRETCHED if resize is None else CENTRE).format(size=size, resize=resize, resized=_resized(given, wanted))
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}]>
        pixels (uint{bits}[{batch}, {height}, {width}, 3] pixels) => (float[{batch}, 3, {size}, {size}] views) {{
        {steps}
          top = Constant <value_float = {2.0**bits - 1}> ()
          shape = Constant <value_ints = [0, 3, {size}, {size}]> ()
          fractions = Div (cropped, top)
          views = Reshape (fractions, shape)
        }}"""
    )
    for node in model.graph.node:
        node.name = node.output[0]  # a quantiser leaves alone what it is told by name
    return model


def _resized(given: str, wanted: str) -> str:
    """Steps from pixels (n, h, w, 3) to floats (n, 3, target)."""
    axes = "last_axis = Constant <value_ints = [3]> ()\n  channel_axis = Constant <value_ints = [1]> ()\n"
    channels = "".join(CHANNEL.format(c=c, d=c + 1, given=given, how=HOW) for c in range(3))
    return f"{axes}{channels}  {wanted} = Concat <axis = 1> (small0, small1, small2)"
