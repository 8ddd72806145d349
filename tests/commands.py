"""The command line as tests call it."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest import mock

import pytest

from nfad.cli.main import main

TINY = [
    "--teacher", "vit_tiny_patch16_224", "--weights", "untrained", "--size", "64", "--set", "blocks=[1,3]",
    "--set", "prior_blocks=[4,5]", "--set", "pairs=2",
    "--set", "acquisitions=14",
]  # fmt: skip
PAPERS = [each for each in TINY if each != "acquisitions=14"][:-1]  # the paper's tables know no acquisitions


def nfad(*arguments, code=0):
    """The command's own entry point, in this process: importing torch again for each would take minutes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["nfad", *map(str, arguments)]),
        mock.patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1"}),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert (stop.value.code or 0) == code, err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
