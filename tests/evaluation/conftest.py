"""A labelled set on disk, taken in two lights."""

import numpy as np
import pytest
from exporting import exported_part
from parts import part
from PIL import Image

from nfad.records import Sample


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    return exported_part(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def in_two_lights(tmp_path_factory):
    """So many images of 80² pixels, the second half at a share of the light, every other one with a marked defect."""

    def made(count, light):
        root, samples = tmp_path_factory.mktemp("set"), []
        truth = np.zeros((80, 80), np.uint8)
        truth[40:53, 40:53] = 255
        Image.fromarray(truth).save(root / "mask.png")
        for index in range(count):
            defect, dark = index % 2 == 1, index >= count // 2
            path = root / f"{index}.png"
            Image.fromarray((part(100 + index, 80, defect) * (light if dark else 1)).astype(np.uint8)).save(path)
            kind, mask = ("square", root / "mask.png") if defect else ("good", None)
            samples.append(Sample(path, defect, kind, "dark" if dark else "same", mask))
        return samples

    return made
