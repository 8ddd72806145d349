"""How long work tells of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # the stage, how much of it is done, how much there is
Skip = Callable[[object, str], None]  # an image that cannot be used and is left out, and why


def named(progress: Progress | None, name: str) -> Progress | None:
    """The same for one of several works: every task begins with its name."""
    return progress and (lambda task, done, total: progress(f"{name}: {task}", done, total))
