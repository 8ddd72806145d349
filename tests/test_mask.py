"""A fit with a mask: what lies under it moves no number, in torch, from a file and exported."""

import numpy as np
import pytest
import torch
from parts import part, parts, tiny

from nfad import Detector
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.errors import NfadError
from nfad.fitting.views import VISIBLE, DamagedViews, ViewCache
from nfad.vision.region import Region

SIDE = 64


def mask():
    """Looks at all but the right quarter."""
    drawn = np.full((SIDE, SIDE, 3), 255, np.uint8)
    drawn[:, SIDE * 3 // 4 :] = 0
    return drawn


def defaced(image, value):
    changed = image.copy()
    changed[:, SIDE * 3 // 4 :] = value
    return changed


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(parts(12), tiny(), mask=mask())


def numbers(prediction):
    return [prediction.score, prediction.unfiltered_score, prediction.nuisance_fraction, prediction.map.max()]


def test_what_lies_under_the_mask_moves_nothing(detector):
    image = part(40, SIDE)
    wanted = detector.predict(image)
    for value in (0, 90, 255):
        found = detector.predict(defaced(image, value))
        assert found.verdict == wanted.verdict
        np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=1e-4)


def test_a_model_without_a_mask_is_moved(detector):
    plain = Detector.fit(parts(12), tiny())
    image = part(40, SIDE)
    assert abs(plain.predict(defaced(image, 255)).score - plain.predict(image).score) > 0.1


def test_a_file_keeps_the_mask(detector, tmp_path):
    loaded = Detector.load(detector.save(tmp_path / "m.nfad"))
    assert (loaded.teacher.region.seen == detector.teacher.region.seen).all()
    image = part(41, SIDE, defect=True)
    assert numbers(loaded.predict(image)) == numbers(detector.predict(image))


@pytest.mark.parametrize("backend", ["onnx", pytest.param("openvino", marks=pytest.mark.slow)])
def test_an_export_keeps_the_mask(detector, tmp_path, backend):
    model = detector.save(tmp_path / "m.nfad")
    export(model, tmp_path / "out", Options(backend))
    runtime, image = Runtime.load(tmp_path / "out"), part(42, SIDE, defect=True)
    wanted = numbers(detector.predict(image))
    for shown in (image, defaced(image, 255)):
        np.testing.assert_allclose(numbers(runtime.predict(shown)), wanted, rtol=1e-3, atol=1e-3)


def test_defects_are_tried_where_the_model_looks(tmp_path):
    """Half of the view hidden must not halve what a fit says it finds."""
    drawn = np.zeros((SIDE, SIDE, 3), np.uint8)
    drawn[:, SIDE // 2 :] = 255
    region = Region.read(drawn, part(0, SIDE), SIDE, None)
    views = ViewCache.read(parts(8), SIDE, None, tmp_path)
    damaged = DamagedViews(views, torch.arange(8).repeat(4), 0, region)
    clean, changed = views(damaged.images), damaged(torch.arange(32))
    where = (changed - clean).abs().amax(dim=1)[damaged.as_taken] > 0
    local = torch.tensor([kind not in ("missing", "moved", "doubled") for kind in damaged.kinds])[damaged.as_taken]
    seen = (where & region.seen).sum(dim=(1, 2)) / where.sum(dim=(1, 2)).clamp(min=1)
    assert (seen[local & where.any(dim=(1, 2))] >= VISIBLE * 0.8).all()


def test_a_student_takes_no_mask():
    with pytest.raises(NfadError, match="a student looks at whole photos"):
        Detector.fit(parts(12), tiny(reference="student", order="fit-then-filter"), mask=mask())
