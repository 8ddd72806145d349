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


LONGEST = (  # files, in seconds of a core from 70 down to 15
    "vision/test_devices.py", "cli/test_measuring.py", "fleet/test_fit.py", "test_auto.py", "deploy/test_export.py",
    "fleet/test_measuring.py", "test_turned.py", "stress/test_session.py", "test_steadied.py", "cli/test_main.py",
    "deploy/test_graph.py", "service/test_access.py", "test_detector.py", "vision/test_images.py",
    "drift/test_unjudged.py", "deploy/test_openvino_graph.py", "fitting/test_views.py", "test_beside.py",
    "report/test_inspection_folder.py", "service/test_durability.py", "paper/test_verdict.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """The longest files first, so that no worker waits for one at the end (with --no-loadscope-reorder)."""
    rank = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
