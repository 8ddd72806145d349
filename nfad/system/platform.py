"""What the host needs to run well, set by the programs we ship and never by importing the library."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8  # malloc.h


def keep_freed_memory() -> bool:
    """Let glibc keep the memory of a network's activations instead of handing it back after every layer.

    By default every large tensor is mapped, faulted in page by page and unmapped again, which on two cores costs a
    small CNN more than its arithmetic (benchmarks/costs.py). All of it in one arena: by default threads get up to eight
    a core, and what is free at the end of any but the first is never given back (see below), so that over months each
    grows to the most that any thread ever needed. Says whether it was done; other C libraries are left alone. Call it
    before there are threads: an arena they have they keep.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        return False
    settings = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20, M_ARENA_MAX: 1}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def return_freed_memory() -> bool:
    """Hand what is free and kept back to the system, once in a while.

    A C library keeps it in pieces that need not fit what comes next (docs/reliability.md). glibc's gives back the end
    of the first arena alone, of others only what lies between what is in use. Says whether it was done.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (OSError, AttributeError, TypeError):  # other C libraries, and Windows
        return False


def cores() -> int:
    """Those this process may use; in a container often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def uninterrupted() -> bool:
    """Let a thread of this process that wakes up wait for its turn instead of interrupting one that computes.

    Answering requests means thousands of short wake-ups a second; on few cores each of them throws a judging thread
    off its core (benchmarks/service.py). Holds for this thread and those it starts. Says whether it was done.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox may forbid it
        return False
    return True


# Tiny products in 8 bits and in bf16: what faults on a host whose AMX units are advertised but not there.
PROBE = """
import numpy as np, openvino as ov
from openvino import opset13 as ops
rng = np.random.default_rng(0)
x = ops.parameter([1, 64, 256], np.float32)
w = ops.constant(rng.integers(-127, 128, (256, 256)).astype(np.float32))
fixed = [np.float32(v) for v in (0, 255, 0, 255)], [np.float32(v) for v in (-127, 127, -127, 127)]
q, k = ops.fake_quantize(x, *fixed[0], 256), ops.fake_quantize(w, *fixed[1], 255)
quantised = ov.Model([ops.matmul(q, k, False, False)], [x])
y = ops.parameter([1, 64, 256], np.float32)
plain = ov.Model([ops.matmul(y, ops.constant(rng.random((256, 256), np.float32)), False, False)], [y])
for model in (quantised, plain):
    ov.compile_model(model, "CPU")(rng.integers(0, 256, (1, 64, 256)).astype(np.float32))
"""
ISA, WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"


def ready_for_openvino(probe: str = PROBE, cache: Path | None = None) -> bool:
    """Keep OpenVINO off AMX where using it kills the process; says whether it was necessary. Call before its import.

    Some virtual machines advertise AMX and fault on it (SIGILL). That cannot be caught, so a child process tries first,
    once per boot, CPU and OpenVINO. An ISA the user has set is left alone.
    """
    if ISA in os.environ:
        return os.environ[ISA] == WITHOUT_AMX
    if "openvino" in sys.modules:
        return False  # too late: the cap is read on import
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nfad"
    answer = cache / f"openvino-{_host()}"
    try:
        dies = answer.read_text() == "dies"
    except OSError:
        # 132 is SIGILL as a shell reports it; an ordinary failure, e.g. no OpenVINO, is told of by its import.
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode
        dies = done < 0 or done > 128
        with contextlib.suppress(OSError):  # nowhere to keep it: asked again next time
            cache.mkdir(parents=True, exist_ok=True)
            answer.write_text("dies" if dies else "runs")
    if dies:
        os.environ[ISA] = WITHOUT_AMX
    return dies


def _host() -> str:
    """What the answer depends on: this boot, this CPU, this OpenVINO."""
    parts = [platform.node(), platform.machine(), platform.processor()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/cpuinfo"):
        with contextlib.suppress(OSError):
            # The clock rate in cpuinfo changes by the second.
            parts += [line for line in Path(path).read_text().splitlines() if "MHz" not in line][:40]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        parts.append(importlib.metadata.version("openvino"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
