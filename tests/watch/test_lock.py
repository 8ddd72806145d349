import subprocess
import sys

import pytest

from nfad.errors import NfadError
from nfad.watch.lock import only_one


def test_a_second_holder_is_refused_in_this_process_and_in_another_until_the_first_is_gone(tmp_path):
    script = (
        "import sys; from pathlib import Path; from nfad.watch.lock import only_one\n"
        "with only_one(Path(sys.argv[1]), Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    )
    file = tmp_path / ".lock"
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(NfadError, match=r"another `nfad watch` writes to"), only_one(file, tmp_path):
            pass
        other.kill()
    with only_one(file, tmp_path):
        with pytest.raises(NfadError, match="another"), only_one(file, tmp_path):
            pass
        assert subprocess.run(command, input=b"", capture_output=True).returncode == 1


def test_a_lock_that_cannot_be_made_is_told(tmp_path):
    with pytest.raises(NfadError, match="cannot lock"), only_one(tmp_path / "nowhere" / ".lock", tmp_path):
        pass
