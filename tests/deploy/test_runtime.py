import json
import os
import shutil
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from parts import part
from PIL import Image

import nfad
from nfad import NfadError
from nfad.deploy import Runtime
from nfad.deploy.parity import MAPS
from nfad.deploy.seal import sealed
from nfad.stats.conformal import Ranks, smallest_rate

SHAPES = [(64, 64), (80, 64), (64, 131), (200, 150), (40, 20), (16, 90), (300, 16)]


def agree(found, wanted):
    """Rounding only: sums in another order, on z-scores of a few units."""
    for name in ("score", "unfiltered_score", "gate", "participation", "nuisance_fraction", "p_value"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-3, abs=1e-3), name
    for name in MAPS:
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=5e-3, rtol=5e-3)
    assert list(found.nuisance_by_family) == list(wanted.nuisance_by_family)
    for family, share in wanted.nuisance_by_family.items():
        assert found.nuisance_by_family[family] == pytest.approx(share, abs=1e-3)
    same = ("threshold", "unfiltered_threshold", "geometry", "source")
    assert [getattr(found, name) for name in same] == [getattr(wanted, name) for name in same]


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_images_of_any_shape_are_judged_as_torch_does(backend, shipped, other_folders):
    runtime = shipped.runtime if backend == "onnx" else Runtime.load(other_folders["openvino", "fp32"][0])
    random = np.random.default_rng(0)
    for height, width in SHAPES:
        photo = np.asarray(Image.fromarray(part(7, 64, defect=True)).resize((width, height)))
        noise = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        for image in (photo, noise):
            agree(runtime.predict(image), shipped.detector.predict(image))


def test_paths_arrays_lists_and_streams_are_the_detectors(shipped):
    paths = shipped.normals[:3]
    found = shipped.runtime.predict(paths)
    assert [p.source for p in found] == [str(path) for path in paths]
    for ours, wanted in zip(found, shipped.detector.predict(paths)):
        agree(ours, wanted)
    grey = part(3)[..., 0]
    agree(shipped.runtime.predict(grey), shipped.detector.predict(grey))
    assert shipped.runtime.predict(part(5, defect=True)).explain()


def test_unreadable_images_are_told_of_or_raised(shipped, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    told = []
    found = list(shipped.runtime.predict_stream([broken, shipped.normals[0]], skip=lambda *what: told.append(what)))
    assert len(found) == 1 and told[0][0] == broken and "broken.png" in told[0][1]
    with pytest.raises(NfadError, match=r"broken\.png"):
        shipped.runtime.predict(broken)
    with pytest.raises(NfadError, match="at least 16 pixels"):
        shipped.runtime.predict(np.zeros((4, 4, 3), np.uint8))


@pytest.mark.parametrize("kind", ["detector", "runtime"])
def test_a_live_source_gets_each_verdict_at_once_and_a_list_the_same_ones(shipped, kind, tmp_path):
    model, taken, told = getattr(shipped, kind), [], []
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    images = [*shipped.normals[:3], broken, part(7, defect=True), *shipped.normals[3:5]]

    def camera():
        for index, image in enumerate(images):
            taken.append(index)
            yield image

    live = []
    for prediction in model.predict_stream(camera(), skip=lambda *what: told.append(what), prefetch=False):
        live.append((prediction, taken[-1]))
    assert [index for _, index in live] == [0, 1, 2, 4, 5, 6] and len(told) == 1
    fetched = model.predict_stream(iter(images), skip=lambda *_: None, prefetch=True)
    for (one, _), other in zip(live, fetched, strict=True):
        agree(one, other)
        assert one.source == other.source
    before_it = []
    with pytest.raises(NfadError, match=r"broken\.png"):
        before_it.extend(model.predict_stream(images, prefetch=True))
    if kind == "runtime":
        assert len(before_it) == 3  # what was under way is not lost


def test_threads_share_an_openvino_session(other_folders, shipped):
    runtime = Runtime.load(other_folders["openvino", "fp32"][0], threads=1)
    wanted = {path: runtime.predict(path).score for path in shipped.normals[:4]}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for path, found in zip(20 * list(wanted), pool.map(runtime.predict, 20 * list(wanted))):
                assert found.score == pytest.approx(wanted[path], abs=1e-5)
    finally:
        sys.setswitchinterval(interval)


def test_the_rate_changes_as_the_detectors_does(shipped):
    for rate in (0.01, 0.3, 0.5):
        ours, wanted = shipped.runtime.at_rate(rate), shipped.detector.at_rate(rate)
        assert ours.threshold == wanted.threshold and ours.false_alarm_rate == wanted.false_alarm_rate
        assert ours.predict(part(3)).threshold == wanted.threshold
    with pytest.raises(NfadError, match="between 0 and 1"):
        shipped.runtime.at_rate(1.5)


def test_several_images_at_once_are_each_on_their_own(shipped):
    batch = np.stack([part(seed) for seed in range(3)])
    together = shipped.runtime.session(batch)()
    for index, image in enumerate(batch):
        alone = shipped.runtime.session(image[None])()
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][index], value[0], atol=5e-3, rtol=5e-3)


def test_sixteen_bits_are_refused_by_a_graph_for_eight(shipped):
    with pytest.raises(NfadError, match="--bits 16"):
        shipped.runtime.predict(part(3).astype(np.uint16) * 257)


@pytest.mark.parametrize("file", ["model.onnx", "model.json"])
def test_a_changed_or_missing_file_is_refused(file, shipped, tmp_path):
    copy = shutil.copytree(shipped.folder, tmp_path / "copy")
    (copy / file).write_bytes((copy / file).read_bytes()[:-20])
    with pytest.raises(NfadError, match=r"changed after the export|incomplete"):
        Runtime.load(copy)
    (copy / file).unlink()
    with pytest.raises(NfadError, match=r"missing|does not exist"):
        Runtime.load(copy)


def test_a_newer_format_is_told(shipped, tmp_path):
    copy = shutil.copytree(shipped.folder, tmp_path / "copy")
    metadata = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps(metadata | {"format": 99}))
    with pytest.raises(NfadError, match="format 99"):
        Runtime.load(copy)


def test_a_folder_of_the_format_before_is_judged_with_as_it_was(shipped, tmp_path):
    """Its normals' views were counted all at once; the threshold beside them says so."""
    copy = shutil.copytree(shipped.folder, tmp_path / "copy")
    metadata = json.loads((copy / "model.json").read_text())
    held_out = {name: values for name, values in metadata["held_out"].items() if name != "lines"}
    old = Ranks.pooled(held_out["filtered"], held_out["images"])
    rates = [rate for rate in np.linspace(0.05, 0.5, 10) if rate >= smallest_rate(old.count)]
    both = {float(rate): (old.threshold(rate), shipped.runtime.at_rate(float(rate)).threshold) for rate in rates}
    rate, (threshold, now) = max(both.items(), key=lambda item: abs(item[1][0] - item[1][1]))
    assert threshold != pytest.approx(now, rel=1e-3)
    config = metadata["config"] | {"false_alarm_rate": rate}
    before = metadata | {"format": 5, "held_out": held_out, "threshold": threshold, "config": config}
    (copy / "model.json").write_text(json.dumps(sealed(before)))
    assert Runtime.load(copy).threshold == threshold


def test_metadata_that_are_not_whole_are_told(shipped, tmp_path):
    copy = shutil.copytree(shipped.folder, tmp_path / "copy")
    metadata = json.loads((copy / "model.json").read_text())
    without = {name: value for name, value in metadata.items() if name != "held_out"}
    for damaged in ({"format": 6}, metadata | {"backend": "tensorrt"}, without, metadata | {"files": {}}):
        (copy / "model.json").write_text(json.dumps(sealed(damaged)))
        with pytest.raises(NfadError, match="is incomplete; copy the folder again"):
            Runtime.load(copy)


def test_a_threshold_that_its_normals_do_not_give_is_not_passed_over(shipped, tmp_path):
    copy = shutil.copytree(shipped.folder, tmp_path / "copy")
    metadata = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps(sealed(metadata | {"threshold": 0.5})))
    with pytest.raises(NfadError, match=f"is not {metadata['threshold']}, which its held-out normals give"):
        Runtime.load(copy)


SCRIPT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision", "timm", "jaxtyping", "scipy", "onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
if sys.argv[1] == "hidden":
    sys.meta_path.insert(0, Absent())
from nfad.deploy import Runtime
runtime = Runtime.load(sys.argv[2])
for prediction in runtime.predict_stream(sys.argv[3:]):
    print(prediction.score, prediction.explain())
"""


def judged(python, how, folder, image):
    environment = os.environ | {"PYTHONPATH": str(Path(nfad.__file__).parents[1])}
    command = [str(python), "-c", SCRIPT, how, str(folder), str(image)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[0])


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_it_runs_where_torch_and_timm_cannot_be_imported(backend, shipped, other_folders):
    folder = shipped.folder if backend == "onnx" else other_folders["openvino", "fp32"][0]
    score = judged(sys.executable, "hidden", folder, shipped.normals[0])
    assert score == pytest.approx(shipped.detector.predict(shipped.normals[0]).score, abs=1e-3)


@pytest.mark.slow
def test_it_runs_in_an_environment_that_has_only_what_it_needs(shipped, other_folders, tmp_path):
    venv.create(tmp_path / "line", with_pip=True)
    python = tmp_path / "line" / "bin" / "python"
    needed = ["numpy", "Pillow", "onnxruntime", "openvino"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *needed], check=True)
    missing = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True)
    assert "No module named 'torch'" in missing.stderr
    wanted = shipped.detector.predict(shipped.normals[0]).score
    for folder in (shipped.folder, other_folders["openvino", "fp32"][0]):
        assert judged(python, "bare", folder, shipped.normals[0]) == pytest.approx(wanted, abs=1e-3)
