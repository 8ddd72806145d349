"""One small fitted detector and one graph of it for all tests here: torch's exporter takes its time."""

from types import SimpleNamespace

import onnx
import pytest
import typer
from parts import parts, tiny
from PIL import Image
from typer.testing import CliRunner

from nfad import Detector
from nfad.cli.export import export
from nfad.deploy import Runtime
from nfad.deploy.export import Options, ship


def nfad_export(*arguments):
    """The command as a user types it."""
    app = typer.Typer()
    app.command()(export)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """Normals on disk, a model fitted on them, the folder that exporting it leaves, and what the command said."""
    root = tmp_path_factory.mktemp("shipped")
    (root / "good").mkdir()
    normals = []
    for index, image in enumerate(parts(12)):
        normals.append(root / "good" / f"{index:02}.png")
        Image.fromarray(image).save(normals[-1])
    # Every output earns its place: a gate that moves, a crop, a prior that is used.
    config = tiny(size=64, resize=72, localization="global", foreground=True)
    detector = Detector.fit(normals, config)
    model = detector.save(root / "part.nfad")
    said = nfad_export(model, "--normals", root / "good", "--out", root / "onnx", "--dynamic-batch", "--json").stdout
    return SimpleNamespace(
        root=root, normals=normals, detector=detector, model=model, graph=onnx.load(root / "onnx" / "model.onnx"),
        said=said, folder=root / "onnx", runtime=Runtime.load(root / "onnx"),
    )  # fmt: skip


@pytest.fixture(scope="session")
def other_folders(shipped):
    """The same graph at the other precisions and for the other program, with their comparisons."""
    made = {}
    for backend, precision in (("openvino", "fp32"), ("onnx", "fp16"), ("openvino", "fp16")):
        folder = shipped.root / f"{backend}-{precision}"
        options = Options(backend, precision, dynamic_batch=True)
        _, parity = ship(shipped.graph, shipped.detector, shipped.model, folder, options, shipped.normals)
        made[backend, precision] = (folder, parity)
    return made
