"""The one module that knows Ray: a function over many items, on this machine or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from nfad.errors import NfadError
from nfad.system.files import replacing, sha256_of
from nfad.system.platform import cores
from nfad.system.progress import Progress

try:
    import ray
    from ray.exceptions import RayError
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError:
    raise NfadError("this needs Ray, which is not installed; run: pip install 'nfad[ray]'") from None

MEMORY = 2 * 2**30  # bytes of a task that nobody has reckoned
ATTEMPTS = 3  # beyond the first, of a task whose worker or node is lost
EVERY = 0.5  # seconds between two words of a task
LOCAL = "local"

Told = Callable[[int, str, int, int], None]  # which item, its stage, how much of it is done, how much there is


@dataclass
class Cluster:
    """Workers on this machine (`address` "local"), or those of the Ray cluster at an address; a context manager.

    Every task has `cpus` threads, whatever machine it runs on, so that its numbers do not depend on where.
    """

    address: str = LOCAL
    workers: int | None = None  # tasks at once; None: as many as there is room for
    cpus: int = 1
    gpus: float = 0
    memory: int | None = None  # bytes a task, whatever it was reckoned to take
    _ours: bool = field(default=False, init=False)

    def __enter__(self) -> Cluster:
        if self.cpus < 1 or (self.workers is not None and self.workers < 1):
            raise NfadError(f"workers and CPUs a task must be at least 1; got {self.workers} and {self.cpus}")
        quiet: dict[str, Any] = {"include_dashboard": False} if self.address == LOCAL else {}
        if self.address == LOCAL:
            self.workers = self.workers or max(1, cores() // self.cpus)
            os.environ.setdefault("RAY_worker_niceness", "0")  # of 15, by which all else on the machine would go first
            quiet |= {"num_cpus": self.workers * self.cpus, "num_gpus": torch.cuda.device_count()}
        if not ray.is_initialized():
            try:
                ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                told = f"no Ray cluster answers at {self.address} ({error}); start one with `ray start --head`"
                raise NfadError(told) from None
            self._ours = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            ray.shutdown()

    def place(self, file: Path | None) -> Any | None:
        """A file's bytes, kept once on every node that needs them; give it to `placed` there."""
        return None if file is None else ray.put((file.name, sha256_of(file), file.read_bytes()))

    def run(
        self,
        function: Callable[..., Any],
        items: Sequence[tuple],
        told: Told | None = None,
        memory: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """`function(*item, progress)` of every item, in the order they end; an exception in place of a result if it
        raised one, or if its worker was lost once too often. `memory` is the bytes that each will take."""
        board = _board() if told else None
        task = ray.remote(_task)
        largest = _largest_memory()
        waiting, running = list(enumerate(items))[::-1], {}
        # Ray would queue them all by itself; but then the objects of all would be held at once.
        most = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1) / self.cpus))
        while waiting or running:
            while waiting and len(running) < most:
                index, item = waiting.pop()
                needed = self.memory or (MEMORY if memory is None else memory[index])
                options = task.options(
                    num_cpus=self.cpus,
                    num_gpus=self.gpus,
                    memory=min(needed, largest),  # more than any node has would wait for ever
                    max_retries=ATTEMPTS,
                    retry_exceptions=False,
                )
                running[options.remote(function, index, self.cpus, board, *item)] = index
            ready, _ = ray.wait(list(running), num_returns=1, timeout=EVERY)
            for words in _read(board):
                if told:
                    told(*words)
            for each in ready:
                index = running.pop(each)
                try:
                    yield index, ray.get(each)
                except RayError as error:
                    yield index, _plain(error)


def placed(file: tuple[str, str, bytes] | None) -> Path | None:
    """A file of `place` as one on this node's disk, written by the first who asks."""
    return None if file is None else _written(*file)


@lru_cache(maxsize=4)
def _written(name: str, digest: str, contents: bytes) -> Path:
    path = Path(tempfile.gettempdir()) / f"nfad-{os.getuid() if hasattr(os, 'getuid') else ''}-{digest[:24]}" / name
    if not (path.is_file() and sha256_of(path) == digest):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with replacing(path) as file:
            file.write(contents)
    return path


def _task(function: Callable[..., Any], index: int, threads: int, board: Queue | None, *item: Any) -> Any:
    torch.set_num_threads(threads)
    return function(*item, None if board is None else _telling(board, index))


def _telling(board: Queue, index: int) -> Progress:
    last = 0.0

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            with contextlib.suppress(Exception):  # whoever listened is gone; the work goes on
                board.put_nowait((index, stage, done, total))

    return tell


def _largest_memory() -> int:
    """Bytes that Ray may give out on the node that has most: a task that needs more has that node to itself."""
    return int(max(node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]))


def _board() -> Queue:
    """Where tasks say how far they are; it stays with the driver, so that no other node takes it away."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def _read(board: Queue | None) -> list[tuple[int, str, int, int]]:
    if board is None:
        return []
    waiting = board.qsize()
    return board.get_nowait_batch(waiting) if waiting else []


def _plain(error: RayError) -> Exception:
    """The task's own exception where it raised one; else what became of its worker, in a sentence."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    said = " ".join(str(error).split())
    return NfadError(f"its worker was lost {ATTEMPTS + 1} times ({type(error).__name__}: {said[:200]})")
