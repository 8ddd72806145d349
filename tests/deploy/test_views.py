"""However a photo becomes a view, it is the view that `to_view` gives."""

import numpy as np
from deploy.test_graph import session
from hypothesis import given
from hypothesis import strategies as st

from nfad.deploy.views import pixels_to_views
from nfad.vision.images import to_view

sides = st.integers(16, 400)


@given(sides, sides, st.sampled_from([None, 32, 37, 50]), st.sampled_from([8, 16]), st.integers(0, 2**31))
def test_views_are_those_of_to_view(height, width, resize, bits, seed):
    """Any shape, long strips, and 16 bits: the graph finds the same rows and columns, and the same values."""
    dtype = np.uint8 if bits == 8 else np.uint16
    pixels = np.random.default_rng(seed).integers(0, 2**bits, (height, width, 3), dtype=dtype)
    found = session(pixels_to_views(32, resize, False, None, bits)).run(None, {"pixels": pixels[None]})[0]
    np.testing.assert_allclose(found[0], to_view(pixels, 32, resize)[0].numpy(), atol=1e-4)


def test_halves_round_to_the_even_side_in_the_graph_too():
    """1026 × 256/1024 is 256.5, and 1030 × 256/1024 is 257.5: one goes down, one up."""
    for height in (1026, 1030):
        pixels = np.random.default_rng(height).integers(0, 256, (height, 1024, 3), dtype=np.uint8)
        found = session(pixels_to_views(32, 256, False, None, 8)).run(None, {"pixels": pixels[None]})[0]
        np.testing.assert_allclose(found[0], to_view(pixels, 32, 256)[0].numpy(), atol=1e-4)
