"""The house of docs/architecture.md, drawn from the imports themselves: every module, every import, also lazy ones."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import nfad

ROOT = Path(nfad.__file__).parent
# From the ground up: what stands in a line imports from the lines above it, and from nothing below.
ROOMS = {
    "errors": set(),
    "operator": set(),
    "system": {"errors"},
    "presets": set(),
    "config": {"errors", "presets", "system"},
    "stats": {"errors"},
    "records": set(),
    "vision": {"errors", "records"},
    "verdict": {"errors", "records", "stats"},
    "reference": {"config", "errors", "operator", "system", "vision"},
    "fitting": {"config", "errors", "operator", "reference", "system", "verdict", "vision"},
    "artifact": {"config", "errors", "reference", "system", "verdict", "vision"},
    "detector": {
        "artifact", "config", "errors", "fitting", "presets", "records", "reference", "system", "verdict", "vision",
    },
    "auto": {"config", "detector", "errors", "system", "verdict", "vision"},
    "deploy": {"config", "detector", "errors", "records", "reference", "system", "verdict", "vision"},
    "model": {"config", "deploy", "detector", "errors", "records", "system", "verdict", "vision"},
    "data": {"errors", "records", "vision"},
    "evaluation": {"config", "detector", "errors", "model", "records", "stats", "system", "verdict", "vision"},
    "hosts": {"detector", "errors", "evaluation", "operator", "reference", "stats", "system", "vision"},
    "anomalib": {"config", "deploy", "detector", "errors", "hosts", "operator", "system", "vision"},
    "drift": {"errors", "records", "stats", "verdict"},
    "stress": {"detector", "errors", "model", "records", "stats", "system", "vision"},
    "report": {
        "config", "data", "detector", "errors", "evaluation", "model", "presets", "records", "stats", "stress",
        "system", "vision",
    },
    "paper": {
        "anomalib", "config", "data", "detector", "errors", "evaluation", "fitting", "hosts", "records", "reference",
        "report", "stats", "system", "vision",
    },
    "fleet": {
        "config", "data", "deploy", "detector", "errors", "evaluation", "fitting", "hosts", "model", "paper", "records",
        "reference", "report", "stress", "system", "vision",
    },
    "watch": {"drift", "errors", "model", "records", "report", "system", "vision"},
    "service": {"drift", "errors", "model", "records", "report", "stats", "system", "vision"},
    "cli": {
        "artifact", "auto", "config", "data", "deploy", "detector", "errors", "evaluation", "fleet", "model", "paper",
        "presets", "records", "report", "service", "stress", "system", "verdict", "vision", "watch",
    },
    "__main__": {"cli"},
    "__init__": {"auto", "config", "detector", "errors", "model", "records"},
}  # fmt: skip
# Where an import may wait until it is used, and why. None of them hides a cycle: those are looked for in all imports.
LAZY = {
    "__init__": "torch takes seconds to import, and `nfad --help` needs none of it",
    "cli": "the same",
    "model": "a line PC has no torch",
    "deploy": "a line PC has no torch; NNCF and OpenVINO are extras",
    "paper": "anomalib is an extra",
}


def modules() -> dict[str, Path]:
    """Dotted name below nfad → file, without the package's own __init__ files inside rooms."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts if parts == ("__init__",) or parts[-1] != "__init__" else parts[:-1])] = path
    return found


MODULES = modules()


def imported(path: Path) -> list[tuple[str, bool]]:
    """Every nfad module a file imports, and whether it does so outside of its top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    at_once = {id(node) for node in [*tree.body, *(inner for block in typing for inner in block.body)]}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nfad":
            base = node.module.partition(".")[2]
            inner = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            names = [each if each in MODULES else base for each in inner]
        elif isinstance(node, ast.Import):
            names = [alias.name.partition(".")[2] for alias in node.names if alias.name.split(".")[0] == "nfad"]
        found += [(name, id(node) not in at_once) for name in names if name]
    return found


def room(module: str) -> str:
    return module.split(".")[0]


def test_every_module_has_a_room_and_every_room_is_lived_in():
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_arrows_point_up_only():
    above: set[str] = set()
    for name, arrows in ROOMS.items():
        assert arrows <= above, f"{name} imports {arrows - above}, which stand below it"
        above.add(name)


def test_the_arrows_are_those_drawn():
    found: dict[str, set[str]] = {name: set() for name in ROOMS}
    for module, path in MODULES.items():
        found[room(module)] |= {room(name) for name, _ in imported(path)} - {room(module)}
    for name, arrows in ROOMS.items():
        assert found[name] <= arrows, f"{name} imports {found[name] - arrows}: a new arrow; see docs/architecture.md"
        assert found[name] == arrows, f"{name} no longer imports {arrows - found[name]}: take the arrow away"


def test_no_module_imports_itself_by_way_of_others():
    graph = {module: {name for name, _ in imported(path)} - {module} for module, path in MODULES.items()}
    graph = {module: names for module, names in graph.items() if module != "__init__"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def test_an_import_waits_only_where_there_is_a_reason():
    for module, path in MODULES.items():
        waiting = [name for name, lazy in imported(path) if lazy]
        assert not waiting or room(module) in LAZY, f"{module} imports {waiting} inside a function; do it at the top"


def test_few_files_stand_in_the_hall():
    assert len(list(ROOT.glob("*.py"))) <= 9


def test_no_file_outgrows_a_screenful_of_ideas():
    for path in ROOT.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 320, f"{path.relative_to(ROOT)} has {lines} lines; split it by noun"
