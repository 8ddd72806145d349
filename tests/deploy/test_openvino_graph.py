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
    images, sizes = ops.parameter([1, 3, -1, -1], np.float32), ops.parameter([2], np.int64)
    model = ov.Model([resized(images.output(0), sizes.output(0))], [images, sizes])
    compiled = ov.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda *inputs: compiled(inputs)[0]


@given(sides, sides, sides, sides, st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_it_is_torchs_antialiased_resize_at_any_size(resize, height, width, after_y, after_x, seed):
    image = np.random.default_rng(seed).random((1, 3, height, width), np.float32)
    found = resize(image, np.array([after_y, after_x]))
    wanted = F.interpolate(torch.from_numpy(image).double(), (after_y, after_x), mode="bilinear", antialias=True)
    np.testing.assert_allclose(found, wanted.numpy(), atol=16 * np.finfo(np.float32).eps)


def test_a_photo_of_that_size_is_left_as_it_is(resize):
    image = np.random.default_rng(0).random((1, 3, 64, 48), np.float32)
    assert np.array_equal(resize(image, np.array([64, 48])), image)


@pytest.mark.parametrize(("bits", "kind"), [(8, np.uint8), (16, np.uint16)])
def test_a_photo_is_taken_apart_once_and_shows_what_it_did(bits, kind):
    model = convert(pixels_to_views(48, None, False, None, bits))
    taken = model.input("pixels").get_target_inputs()
    apart = [each.get_node().get_type_name() for each in taken]
    assert apart.count("Transpose") == 1 and set(apart) <= {"Transpose", "ShapeOf"}
    photo = np.random.default_rng(bits).integers(0, 2**bits, (60, 75, 3), dtype=kind)
    found = ov.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(photo[None])[0]
    np.testing.assert_allclose(found[0], to_view(photo, 48, None)[0].numpy(), atol=1e-5)


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
