"""Where results go: `-o` and `--out` are the same in every command that writes some."""

import pytest
from commands import nfad

from nfad.cli.benchmark import command_told


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "stress", "export", "benchmark", "corrupt", "demo"])
def test_both_names_are_known(command):
    said = nfad(command, "--help").stdout
    assert "-o" in said.split() and "--out" in said


@pytest.mark.parametrize("out", [["-o", "there"], ["--out", "there"], ["--out=there"], ["--out", "-o"]])
def test_a_repeatable_command_does_not_name_it(out):
    told = command_told(["benchmark", "verdict", "/mine/data", *out, "--seeds", "1,2", "--json"], ["/mine/data"])
    assert told == "nfad benchmark verdict data --seeds 1,2"
