from dataclasses import replace

import pytest
from evaluation.conftest import refusing
from exporting import exported_part
from parts import part, parts, tiny
from PIL import Image

from nfad import Detector
from nfad.stress.axes import AXES
from nfad.stress.measure import read_parts
from nfad.stress.session import stress

__all__ = ["refusing"]

NASTY = "<img src=x onerror='alert(1)'>&.png"


@pytest.fixture(scope="session")
def detector():
    return Detector.fit(parts(20), tiny(false_alarm_rate=0.1, acquisitions=100))


@pytest.fixture(scope="session")
def model(detector, tmp_path_factory):
    return detector.save(tmp_path_factory.mktemp("model") / "part.nfad")


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    return exported_part(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def normals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("normals")
    for index in range(14):
        Image.fromarray(part(100 + index)).save(folder / f"{index:02}.png")
    return folder


@pytest.fixture(scope="session")
def chosen(detector, normals):
    return read_parts(detector, sorted(normals.iterdir()), 6)


@pytest.fixture(scope="session")
def few_axes():
    return {
        "exposure": replace(AXES["exposure"], strengths=(-2, 1)),
        "noise": replace(AXES["noise"], strengths=(10,)),
    }


@pytest.fixture(scope="session")
def odd(normals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "normals"
    folder.mkdir()
    for index in range(6):
        Image.fromarray(part(200 + index)).save(folder / (NASTY if index == 0 else f"{NASTY[:-4]}{index}.png"))
    return folder


@pytest.fixture(scope="session")
def found(detector, odd):
    return stress(detector, odd, ["exposure", "blur", "background"], images=6)
