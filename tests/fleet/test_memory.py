import json
import subprocess
import sys
from pathlib import Path

import parts
import pytest
from PIL import Image

from nfad.config import Config
from nfad.fleet.memory import PIXELS, cell_memory, fit_memory, host_memory, judge_memory, pixels_of

FIT = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from nfad import Config, Detector
preset, changes, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
Detector.fit(sorted(folder.iterdir()), Config.preset(preset, **changes), device="cpu")
# Not ru_maxrss, which a process begins with its parent's.
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024)
"""


def fitted(folder, preset, changes, photos):
    """The most that a process of its own held at once."""
    for index in range(photos):
        Image.fromarray(parts.part(index)).save(folder / f"{index:03}.png")
    command = [sys.executable, "-c", FIT, preset, json.dumps(changes), str(folder)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's own peak")
@pytest.mark.parametrize(
    ("preset", "changes", "photos"),
    [
        ("embedded-fast", {"size": 128, "acquisitions": 16}, 10),
        pytest.param("embedded-fast", {}, 20, marks=pytest.mark.slow),
        pytest.param("embedded-fast", {"size": 448}, 40, marks=pytest.mark.slow),
        pytest.param("embedded-fast", {"size": 1024, "tile": 256, "acquisitions": 16}, 10, marks=pytest.mark.slow),
        pytest.param("embedded", {"acquisitions": 40}, 20, marks=pytest.mark.slow),
        pytest.param("embedded", {"acquisitions": 0, "reference": "nearest"}, 40, marks=pytest.mark.slow),
    ],
)
def test_a_fit_stays_below_what_is_stated_and_not_far_below(tmp_path, preset, changes, photos):
    peak = fitted(tmp_path, preset, changes, photos)
    stated = fit_memory(Config.preset(preset, **changes), photos, 64 * 64)
    assert peak <= stated <= 3 * peak


def test_more_to_hold_is_stated_as_more():
    config = Config.preset("embedded-fast")
    least = fit_memory(config, 20)
    assert least < fit_memory(config, 2000) < cell_memory(config, 2000, 100)
    assert least < fit_memory(config.changed(size=512), 20)
    assert least < fit_memory(config, 20, pixels=50_000_000) < fit_memory(config, 20, 50_000_000, threads=4)
    assert fit_memory(config.changed(acquisitions=0), 20) < least
    assert judge_memory(config, 64) < judge_memory(config, 640)
    assert host_memory(config, 20) < host_memory(config, 200)


def test_a_photos_size_is_read_from_its_header(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"none")
    assert pixels_of([tmp_path / "b.png", tmp_path / "a.png"]) == 600
    assert pixels_of([tmp_path / "b.png"]) == PIXELS == pixels_of([])
