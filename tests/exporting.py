"""One exported model for all tests that put one to the test: torch's exporter takes its time."""

from functools import cache
from types import SimpleNamespace

from parts import parts, tiny

from nfad import Detector
from nfad.deploy.export import export


@cache
def exported_part(folder):
    """A fitted detector, its file, and the folder that exporting it leaves."""
    root = folder / "exported"
    root.mkdir()
    # Every output earns its place: a gate that moves, a crop that must be undone, a prior that is used.
    detector = Detector.fit(parts(12), tiny(resize=72, localization="global", foreground=True, false_alarm_rate=0.3))
    model = detector.save(root / "part.nfad")
    export(model, root / "part-onnx")
    return SimpleNamespace(detector=detector, model=model, folder=root / "part-onnx")
