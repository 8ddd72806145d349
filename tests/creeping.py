"""What an act leaves in memory, in Python's own objects: what creeps over months shows in a hundred of them."""

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
