"""What the host needs to run well, set by the programs we ship and never by importing the library."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Let glibc keep the memory of a network's activations instead of handing it back after every layer.

    By default every large tensor is mapped, faulted in page by page and unmapped again, which on two cores costs a
    small CNN more than its arithmetic (benchmarks/costs.py). Says whether it was done; other C libraries are left
    alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        return False
    settings = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
