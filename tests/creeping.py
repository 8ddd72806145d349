"""What an act leaves in memory, in Python's own objects: what creeps over months shows in a hundred of them."""

import ctypes
import gc
import sys

LEAST_OF_A_RECORD = 12  # blocks of memory: its numbers alone are more


def growth(act, times, warm):
    """Blocks of memory that Python allocates and does not free, an act; `act` gets its number."""
    for number in range(warm):
        act(number)
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(warm, warm + times):
        act(number)
    gc.collect()
    return (sys.getallocatedblocks() - before) / times


class Heap(ctypes.Structure):
    """What glibc's mallinfo2 gives."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    ]


def heap_in_use():
    """Bytes that Python and all of C hold, without what was freed; None where the C library does not tell."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = Heap
    gc.collect()
    found = library.mallinfo2()
    return found.uordblks + found.hblkhd
