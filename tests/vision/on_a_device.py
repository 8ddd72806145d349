import dataclasses

import numpy as np
import parts
import pretended
import pytest
import torch

from nfad.artifact.file import read_header
from nfad.config import Config
from nfad.data.catalog import load
from nfad.data.demo import write_demo
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.session import evaluate_dataset
from nfad.hosts import score_images
from nfad.paper.plugins import fit_host, worn
from nfad.reference.nearest import Nearest
from nfad.system.files import strict_json
from nfad.vision import devices
from nfad.vision.devices import device_of


@pytest.fixture(scope="module", autouse=True)
def device():
    pretended.set_up()
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a parameter of another class cannot be swapped
    with pretended.OnPretendedDevice():
        yield pretended.NAME
    torch.__future__.set_overwrite_module_params_on_conversion(before)


def test_it_fails_where_a_gpu_would(device):
    there, here = torch.ones(2, 3, device=device), torch.ones(2, 3)
    assert there.device.type == device and (there @ there.T).device.type == device
    assert torch.equal((there * 2).cpu(), here * 2)
    with pytest.raises(RuntimeError, match="others on the CPU"):
        there + here
    with pytest.raises(RuntimeError, match="numpy"):
        there.numpy()


def same_files(one, other):
    (header, tensors), (their_header, their_tensors) = read_header(one), read_header(other)
    same = all(torch.equal(tensor, their_tensors[name]) for name, tensor in tensors.items())
    return same and header == their_header and tensors.keys() == their_tensors.keys()


QUICK = (
    {},
    {"reference": "nearest", "order": "fit-then-filter", "foreground": True},
    {"reference": "student", "order": "fit-then-filter", "localization": "global"},
)
OTHERS = (
    {"reference": "nearest", "nudges": 1},
    {"acquisitions": 0, "reference": "student", "order": "fit-then-filter", "basis_size": 48, "displacements": 50},
    {"teacher": "embedded-cnn", "weights": None, "blocks": (2, 3), "prior_blocks": (), "rank": {"photometric": 4}},
)


@pytest.mark.parametrize(
    "changes",
    [*QUICK, *(pytest.param(changes, marks=pytest.mark.slow) for changes in OTHERS)],
    ids=lambda changes: "-".join(map(str, changes.values())) or "linear",
)
def test_a_fit_on_a_device_is_the_fit_on_the_cpu(changes, device, tmp_path):
    config, images = parts.tiny(**changes), parts.parts(12)
    ours = Detector.fit(images, config, device="cpu").save(tmp_path / "cpu.nfad")
    there = Detector.fit(images, config, device=device)
    assert there.teacher.device.type == device
    file = there.save(tmp_path / "device.nfad")
    if config.reference == "student":  # trained by attention of another kind, which differs in its last digits
        (header, tensors), (their_header, their_tensors) = read_header(file), read_header(ours)
        assert header["config"] == their_header["config"] and header.keys() == their_header.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, their_tensors[name], rtol=0, atol=1e-4)
    else:
        assert same_files(file, ours)  # which so say nothing of a device
    judged = [Detector.load(ours, device=each).predict(parts.part(99, defect=True)) for each in ("cpu", device)]
    digits = 1e-4 if config.reference == "student" else 0
    np.testing.assert_allclose(judged[0].map, judged[1].map, rtol=0, atol=digits)
    assert abs(judged[0].score - judged[1].score) <= digits


def test_a_student_resumes_on_a_device(device, tmp_path):
    config, images = parts.tiny(reference="student", order="fit-then-filter", epochs=4), parts.parts(12)
    whole = Detector.fit(images, config, device=device).save(tmp_path / "whole.nfad")

    class Killed(Exception):
        pass

    def killed(task, done, total):
        if "student" in task and done == 3:
            raise Killed

    (workdir := tmp_path / "work").mkdir()
    monkey = pytest.MonkeyPatch()
    monkey.setattr("nfad.reference.training.time.monotonic", iter(range(0, 10**6, 100)).__next__)  # a write an epoch
    with monkey.context(), pytest.raises(Killed):
        Detector.fit(images, config, device=device, workdir=workdir, progress=killed)
    monkey.undo()
    epochs = []
    again = Detector.fit(
        images, config, device=device, workdir=workdir, progress=lambda task, done, _: epochs.append((task, done))
    )
    assert [done for task, done in epochs if "student" in task] == [4]
    assert same_files(again.save(tmp_path / "again.nfad"), whole)


LATER = ("rd4ad", "recontrast", "uniad", "anomalydino", "subspacead", "rad", "dinomaly", "mmr")


@pytest.mark.parametrize("name", ["patchcore", "nfad", *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)])
def test_hosts_work_where_their_images_are(name, device):
    config = Config.preset("embedded-fast", size=128, batch=4, pairs=2, acquisitions=0)
    normals = torch.stack(
        [torch.from_numpy(each).permute(2, 0, 1) / 255 for each in (parts.part(i, 128) for i in range(12))]
    )
    found = {}
    for place in ("cpu", device):
        torch.manual_seed(0)
        host = worn(fit_host(name, normals.to(place), config, steps=2), 64, normals.to(place), config)
        found[place] = score_images(host, normals[:3].to(place))
        assert found[place].maps.device.type == place
    ours, theirs = found["cpu"].maps, found[device].maps.cpu()
    torch.testing.assert_close(theirs, ours, rtol=0.02, atol=0.02 * float(ours.abs().max()))


def test_an_evaluation_runs_on_a_device(device, tmp_path):
    write_demo(tmp_path / "demo", train=10, good=1, bad=1)
    [dataset] = load("demo", tmp_path / "demo", None)
    rows = []
    for place in ("cpu", device):
        [finding] = evaluate_dataset(dataset, parts.tiny(), device=place)
        rows.append(finding.evaluation.rows)
    assert strict_json([row.as_dict() for row in rows[0]]) == strict_json([row.as_dict() for row in rows[1]])


def test_a_bank_is_searched_in_chunks_and_by_tokens_from_anywhere(device, monkeypatch):
    torch.manual_seed(0)
    bank = Nearest(torch.nn.functional.normalize(torch.randn(50, 8), dim=1), torch.arange(50) % 5)
    tokens, exclude = torch.randn(5, 7, 8), torch.arange(5)
    expected = bank(tokens, exclude)
    monkeypatch.setattr("nfad.reference.nearest.ROOM", 4 * 7 * 50 * 2)  # two images at once
    for each in (bank, bank.to(torch.device(device))):
        assert torch.equal(each(tokens, exclude), expected) and each(tokens).device.type == "cpu"
    assert bank.to(torch.device(device))(tokens.to(device), exclude).device.type == device


def test_fp16_stays_within_the_stated_tolerance_and_a_network_that_does_not_keeps_full_precision(monkeypatch):
    monkeypatch.setitem(devices.FROZEN, "cpu", torch.float16)  # a CPU has autocast, too
    monkeypatch.setitem(devices.TRAINED, "cpu", torch.bfloat16)
    config, images = parts.tiny(reference="student", order="fit-then-filter"), parts.parts(12)
    lower = Detector.fit(images, config, device="cpu")
    assert lower.teacher.precision is torch.float16
    tolerance = devices.TOLERANCE
    monkeypatch.setattr(devices, "TOLERANCE", 0.0)
    full = Detector.fit(images, config, device="cpu")
    assert full.teacher.precision is None
    views = torch.rand(2, 3, 64, 64)
    gaps = [1 - (a * b).sum(dim=-1) for a, b in zip(lower.teacher.tokens(views), full.teacher.tokens(views))]
    assert 0 < max(float(gap.max()) for gap in gaps) <= tolerance
    scores = [each.predict(images[0]).score for each in (lower, full)]
    assert scores[0] != scores[1] and abs(scores[0] - scores[1]) < 0.1  # of a normal's standard deviation


def test_auto_takes_what_is_there_and_names_are_checked(device):
    assert device_of("cpu") == torch.device("cpu") and device_of("cpu:3") == torch.device("cpu")
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_of(f"{device}:0") == torch.device(device, 0)
    for name, told in {
        "gpu": "device must be auto, cpu, cuda, cuda:1, mps or xpu; got 'gpu'",
        f"{device}:1": f"there is no device {device}:1 on this machine: torch finds 1 {device} device, from {device}:0",
        "hpu": "there is no device hpu on this machine: torch finds none; use device auto or cpu",
        "xpu": "torch finds none",
        "mps": "torch finds none",
    }.items():
        with pytest.raises(NfadError, match=told):
            device_of(name)
    with pytest.raises(NfadError, match="no device mps"):
        Detector.fit([], Config(), device="mps")  # before any image is read


def test_a_model_knows_of_no_device():
    assert "device" not in {field.name for field in dataclasses.fields(Config)}
