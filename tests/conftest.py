"""Shapes are checked in tests only: jaxtyping's hook wraps what states them, as it is imported."""

from importlib.util import find_spec
from pathlib import Path

import torch
from hypothesis import settings
from jaxtyping import install_import_hook


def modules_with_shapes():
    """The others are borders that check strangers' input themselves; their tests send what no annotation allows."""
    [root] = find_spec("nfad").submodule_search_locations
    for path in Path(root).rglob("*.py"):
        if "jaxtyping" in path.read_text(encoding="utf-8"):
            yield ".".join(["nfad", *path.relative_to(root).with_suffix("").parts])


# To Python's typing an int may stand for a float (PEP 484); beartype has to be told.
install_import_hook(list(modules_with_shapes()), "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

torch.set_num_threads(1)
settings.register_profile("quick", deadline=None, max_examples=30)
settings.load_profile("quick")


def pytest_collection_modifyitems(items):
    """The longest first, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_devices.py")
