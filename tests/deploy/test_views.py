"""However a photo becomes a view, it is the view that `to_view` gives."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
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


# Bytes a pixel that a graph may take beside the photo itself, for a view of it: what docs/service.md states.
BUDGET = {"onnx": 8, "openvino": 9}
PEAK = """
import sys
from pathlib import Path
import numpy as np
from nfad.deploy.backends import open_session

def told(name):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

session = open_session(sys.argv[1], Path(sys.argv[2]), 1)
session(np.zeros((1, 64, 64, 3), np.uint8))()
photo = np.full((1, 4000, 4000, 3), 7, np.uint8)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, see proc(5)
before = told("VmRSS")
session(photo)()
print((told("VmHWM") - before) / photo[..., 0].size)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's peak of memory")
@pytest.mark.parametrize("backend", BUDGET)
def test_a_large_photo_stays_within_its_budget_of_memory(backend, tmp_path):
    graph = pixels_to_views(224, None, False, None, 8)
    file = tmp_path / ("model.onnx" if backend == "onnx" else "model.xml")
    if backend == "onnx":
        file.write_bytes(graph.SerializeToString())
    else:
        openvino = pytest.importorskip("nfad.deploy.openvino_graph")
        openvino.ov.save_model(openvino.convert(graph), file, compress_to_fp16=False)
    done = subprocess.run([sys.executable, "-c", PEAK, backend, str(file)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < BUDGET[backend]
