"""Small trees in the layouts of the real sets. Readers open no pixels, so an empty file does for an image."""

import pytest


@pytest.fixture
def plant(tmp_path):
    """Lay files, given by their names, into a fresh root."""

    def lay(*names: str):
        for name in names:
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path / "root"

    return lay
