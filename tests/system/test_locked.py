import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

from nfad.errors import NfadError
from nfad.system.files import locked

HOLDER = """
import sys; from pathlib import Path; from nfad.system.files import locked
with locked(Path(sys.argv[1]), "taken"): print("mine", flush=True); sys.stdin.read()
"""


def test_one_process_at_a_time_and_none_after_a_kill(tmp_path):
    file = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, file], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "mine\n"
        with pytest.raises(NfadError, match="^the folder is in use$"), locked(file, "the folder is in use"):
            raise AssertionError("two hold the same lock")
        other.kill()
        other.wait()
    with locked(file, "in use"), pytest.raises(NfadError, match="in use"), locked(file, "in use"):
        raise AssertionError("two hold the same lock")


def test_an_error_of_the_one_who_holds_it_stays_what_it_is(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", "in use"):
        raise ZeroDivisionError
    with locked(tmp_path / "lock", "in use"):  # it was let go of
        pass


def test_another_thread_may_let_go_of_it(tmp_path):
    held = ExitStack()
    held.enter_context(locked(tmp_path / "lock", "in use"))
    other = threading.Thread(target=held.close)
    other.start()
    other.join()
    with locked(tmp_path / "lock", "in use"):
        pass


def test_a_place_that_cannot_be_locked_is_a_sentence(tmp_path):
    with pytest.raises(NfadError, match="cannot lock .* it needs a local folder"), locked(tmp_path / "no/lock", ""):
        raise AssertionError("there is no such folder")
