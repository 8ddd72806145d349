import subprocess
import sys

import pytest

from nfad.errors import NfadError
from nfad.watch.lock import locked


def test_a_second_holder_is_refused_in_this_process_and_in_another_until_the_first_is_gone(tmp_path):
    script = (
        "import sys; from pathlib import Path; from nfad.watch.lock import locked\n"
        "with locked(Path(sys.argv[1]), 'taken'): print('mine', flush=True); sys.stdin.read()"
    )
    file = tmp_path / ".lock"
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(NfadError, match="taken"), locked(file, "taken"):
            pass
        other.kill()
    with locked(file, "taken"):
        with pytest.raises(NfadError, match="taken"), locked(file, "taken"):
            pass
        assert subprocess.run(command, input=b"", capture_output=True).returncode == 1


def test_a_lock_that_cannot_be_made_is_told(tmp_path):
    with pytest.raises(NfadError, match="cannot lock"), locked(tmp_path / "nowhere" / ".lock", "taken"):
        pass
