import subprocess
import sys

SCRIPT = """
import resource
from nfad.machine import keep_freed_memory
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
