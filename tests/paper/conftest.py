import numpy as np
import pytest
from parts import part
from PIL import Image

from nfad.records import Dataset, Sample


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Dataset:
    """A few real images in two acquisitions, half of them with a marked defect."""
    root = tmp_path_factory.mktemp("set")
    truth = np.zeros((64, 64), np.uint8)
    truth[32:42, 32:42] = 255
    Image.fromarray(truth).save(root / "mask.png")

    def photo(name: str, seed: int, defect: bool = False, dark: bool = False):
        path = root / f"{name}.png"
        Image.fromarray((part(seed, 64, defect) * (0.5 if dark else 1)).astype(np.uint8)).save(path)
        return path

    train = tuple(Sample(photo(f"train{i}", i), False) for i in range(12))
    test = []
    for domain in ("same", "illumination"):
        for i in range(6):
            bad = i % 2 == 1
            path = photo(f"{domain}{i}", 100 + i, bad, domain != "same")
            test.append(Sample(path, bad, "square" if bad else "good", domain, root / "mask.png" if bad else None))
    return Dataset("demo", "blob", train, tuple(test))
