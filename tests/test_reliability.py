"""docs/reliability.md promises that every way a part can end has a test: they exist, and every row names one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    line
    for line in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
][1:]


def test_every_row_names_tests_that_there_are():
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(ROWS) > 15
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row)
        if not row.startswith("| ---"):
            assert named and set(named) <= there, row
