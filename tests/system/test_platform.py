import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
from nfad.system.platform import keep_freed_memory
import numpy as np

kept = keep_freed_memory()
np.ones(8 << 20)  # warm: 64 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(8 << 20)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, faults)
"""


def test_freed_memory_is_faulted_in_once():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    if kept == "True":  # without it each of the 20 arrays costs 16384 faults (or 32 of huge pages)
        assert int(faults) < 20
    else:
        assert not sys.platform.startswith("linux") or "musl" in sys.version


THREADS = """
import ctypes, threading
from nfad.system.platform import keep_freed_memory, return_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

keep_freed_memory()
library = ctypes.CDLL(None)
library.strdup.restype, library.strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
library.free.argtypes = [ctypes.c_void_p]
text, turn = b"a" * (8 << 20), threading.Barrier(9)

def work():
    library.free(library.strdup(b"a"))
    turn.wait()
    turn.wait()
    copy = library.strdup(text)
    turn.wait()
    turn.wait()
    library.free(copy)
    turn.wait()
    turn.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
turn.wait()
before = resident()
turn.wait()
turn.wait()
most = resident()
turn.wait()
turn.wait()
print(return_freed_memory(), (most - before) / len(text), (resident() - before) / len(text))
turn.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells what a process has in memory")
def test_what_threads_have_freed_is_given_back():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    given_back, most, left = done.stdout.split()
    if given_back == "True":
        assert float(most) > 6
        assert float(left) < 1


FAULTS = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
ASK = """
import os, sys
from pathlib import Path
from nfad.system.platform import PROBE, ready_for_openvino
probe = PROBE if sys.argv[2] == "real" else sys.argv[2]
print(ready_for_openvino(probe, Path(sys.argv[1])), os.environ.get("ONEDNN_MAX_CPU_ISA"))
"""


def asked(cache, probe, **environment):
    plain = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    command = [sys.executable, "-c", ASK, str(cache), probe]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=plain | environment).stdout.split()


def test_a_host_that_faults_is_capped_and_remembered(tmp_path):
    assert asked(tmp_path, FAULTS) == ["True", "AVX512_CORE_VNNI"]
    assert asked(tmp_path, "pass") == ["True", "AVX512_CORE_VNNI"]  # not asked again


def test_a_host_that_does_not_is_left_alone(tmp_path):
    assert asked(tmp_path, "pass") == ["False", "None"]
    assert asked(tmp_path / "other", "raise SystemExit(1)") == ["False", "None"]  # e.g. without OpenVINO
    assert asked(tmp_path / "users", FAULTS, ONEDNN_MAX_CPU_ISA="AVX2") == ["False", "AVX2"]


def test_the_probe_answers_and_what_follows_survives(tmp_path):
    capped, isa = asked(tmp_path, "real")
    environment = os.environ | ({"ONEDNN_MAX_CPU_ISA": isa} if capped == "True" else {})
    from nfad.system.platform import PROBE

    assert subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True).returncode == 0


def test_threads_started_after_it_wait_for_their_turn():
    program = """
import os, threading
from nfad.system.platform import uninterrupted
done, seen = uninterrupted(), []
thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
thread.start(); thread.join()
assert not done or seen == [os.SCHED_BATCH], seen
print(done)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(sys.platform.startswith("linux"))
