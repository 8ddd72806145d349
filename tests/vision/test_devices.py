"""Every path on a device that is not there (on_a_device.py), in a process of its own: torch counts devices at the first
backward pass of a process, and knows of none that is registered later."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("on_a_device.py")


@pytest.mark.parametrize("chosen", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_everything_works_on_another_device(chosen):
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", chosen, str(TESTS)]
    done = subprocess.run(command, cwd=TESTS.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
