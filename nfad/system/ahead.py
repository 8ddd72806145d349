"""Work done ahead of those who need it, by threads, and handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

MOST = 4  # at once: a photo of 100 megapixels takes a gigabyte while it is opened
Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(work: Callable[[Item], Made], items: Iterable[Item], threads: int) -> Iterator[Future[Made]]:
    """Each item's result, or its error, in the order of the items; never more than a few are begun."""
    count = max(1, min(MOST, threads))
    with ThreadPoolExecutor(count, thread_name_prefix="ahead") as pool:
        begun: deque[Future[Made]] = deque()
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) > count:
                    yield begun.popleft()
            while begun:
                yield begun.popleft()
        finally:  # whoever ends early does not wait for what nobody wants
            for each in begun:
                each.cancel()
