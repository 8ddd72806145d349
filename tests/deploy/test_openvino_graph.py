import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from nfad.deploy.openvino_graph import convert, ops, ov, resized
from nfad.deploy.views import pixels_to_views
from nfad.vision.images import to_view

sides = st.integers(16, 400)  # a photo has 16 at the least; torch itself errs on images one pixel wide


@pytest.fixture(scope="module")
def resize():
    pixels, sizes = ops.parameter([-1, -1, -1, 3], np.uint16), ops.parameter([2], np.int64)
    model = ov.Model([resized(pixels.output(0), sizes.output(0))], [pixels, sizes])
    compiled = ov.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda *inputs: compiled(inputs)[0]


@given(sides, sides, sides, sides, st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_it_is_torchs_antialiased_resize_at_any_size(resize, height, width, after_y, after_x, seed):
    pixels = np.random.default_rng(seed).integers(0, 65536, (1 + seed % 2, height, width, 3), np.uint16)
    found = resize(pixels, np.array([after_y, after_x]))
    planes = torch.from_numpy(pixels.astype(np.float64)).permute(0, 3, 1, 2)
    wanted = F.interpolate(planes, (after_y, after_x), mode="bilinear", antialias=True)
    np.testing.assert_allclose(found / 65535, wanted.numpy() / 65535, atol=16 * np.finfo(np.float32).eps)


def test_a_photo_of_that_size_is_left_as_it_is(resize):
    pixels = np.random.default_rng(0).integers(0, 65536, (1, 64, 48, 3), np.uint16)
    assert np.array_equal(resize(pixels, np.array([64, 48])), pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("frame", [None, (30, 50)])
@pytest.mark.parametrize("resize", [None, 40])
@pytest.mark.parametrize(("bits", "dynamic_batch"), [(8, False), (8, True)])
def test_views_are_torchs_in_every_kind_of_graph(frame, resize, bits, dynamic_batch):
    converted = convert(pixels_to_views(32, resize, dynamic_batch, frame, bits))
    compiled = ov.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for height, width in [frame] if frame else [(300, 20), (70, 200), (32, 32)]:
        rng, count = np.random.default_rng(height), 2 if dynamic_batch else 1
        photos = rng.integers(0, 2**bits, (count, height, width, 3), f"uint{bits}")
        wanted = np.stack([to_view(photo, 32, resize)[0].numpy() for photo in photos])
        np.testing.assert_allclose(compiled({"pixels": photos})[0], wanted, atol=64 * np.finfo(np.float32).eps)


def test_no_exported_graph_has_a_filter_to_prepare_for_every_size(other_folders):
    folder, _ = other_folders["openvino", "fp32"]
    model = ov.Core().read_model(folder / "model.xml")
    kinds = [node.get_attributes() for node in model.get_ops() if node.get_type_name() == "Interpolate"]
    assert not any("pillow" in each["mode"] or each["antialias"] for each in kinds)


def test_sixteen_bits_are_the_networks_alone(other_folders):
    model = ov.Core().read_model(other_folders["openvino", "fp16"][0] / "model.xml")
    users = {"f16": set(), "f32": set()}
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.data.size >= 1024:
            [user] = node.output(0).get_target_inputs()
            if user.get_node().get_type_name() == "Convert":
                [user] = user.get_node().output(0).get_target_inputs()
            users[node.get_element_type().to_string()].add(user.get_node().get_friendly_name().split("/")[0])
    assert users == {"f16": {"networks"}, "f32": {"read_outs"}}
