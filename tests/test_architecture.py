"""The arrows of docs/architecture.md, drawn from the imports themselves."""

import ast
from pathlib import Path

import nfad

ROOT = Path(nfad.__file__).parent
ALLOWED = {
    "operator": {"operator"},
    "vision": {"errors", "records", "vision"},
    "data": {"data", "errors", "records"},
    "reference": {"config", "errors", "operator", "reference", "vision"},
    "records": set(),
    "errors": set(),
    "config": {"errors"},
    "threshold": {"errors"},
    "writing": {"errors"},
    "machine": set(),
    "tokens": {"vision"},
    "scoring": {"operator", "reference", "vision"},
    "nuisance": {"config", "errors", "operator", "scoring", "tokens", "vision"},
    "training": {"config", "errors", "reference", "writing"},
    "fitting": {"config", "errors", "operator", "reference", "scoring", "tokens", "training", "vision"},
    "analysis": {"detector", "errors", "evaluation", "records", "scoring", "tokens", "vision"},
    "evaluation": {
        "config", "detector", "errors", "judge", "page", "page_card", "page_look", "pictures", "records",
        "tokens", "vision", "writing",
    },
    "benchmark": {
        "analysis", "anomalib", "config", "data", "detector", "errors", "evaluation", "fitting", "hosts",
        "nuisance", "pictures", "records", "reference", "threshold", "tokens", "vision", "writing",
    },
    "hosts": {"detector", "errors", "evaluation", "operator", "scoring", "tokens", "vision", "writing"},
    "deploy": {
        "data", "detector", "errors", "machine", "records", "reference", "scoring", "threshold", "tokens", "vision",
    },
    "judge": {"deploy", "detector", "errors", "pictures", "records", "threshold", "vision"},
    "inspection": {"errors", "judge", "page", "pictures", "records", "vision"},
    "service": {"drift", "errors", "evaluation", "judge", "pictures", "records", "threshold", "vision", "writing"},
    "anomalib": {"config", "deploy", "detector", "errors", "hosts", "operator", "tokens", "vision"},
    "stress": {
        "detector", "errors", "evaluation", "fitting", "judge", "page", "page_card", "page_look", "pictures",
        "records", "tokens", "vision", "writing",
    },
    "drift": {"errors", "evaluation", "records", "threshold"},
    "watching": {"errors", "pictures", "records", "vision", "writing"},
    "pictures": {"errors", "records", "writing"},
    "page": {"errors", "page_card", "page_look", "pictures", "records", "writing"},
}  # fmt: skip


def part_of(path: Path) -> str:
    inner = path.relative_to(ROOT)
    return inner.parts[0] if len(inner.parts) > 1 else inner.stem


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("nfad.")}
    return found


def test_no_new_arrow():
    for path in ROOT.rglob("*.py"):
        part = part_of(path)
        if part in ALLOWED:
            extra = imports(path) - ALLOWED[part] - {part}
            assert not extra, f"{path.relative_to(ROOT)} imports {extra}; see docs/architecture.md"


def test_the_map_is_of_this_house():
    parts = {part_of(path) for path in ROOT.rglob("*.py")}
    assert set(ALLOWED) <= parts


def test_no_file_outgrows_a_screenful_of_ideas():
    for path in ROOT.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 350, f"{path.relative_to(ROOT)} has {lines} lines; split it by noun"
