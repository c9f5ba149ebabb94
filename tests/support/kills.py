"""A kill of this process at a durable step, by an exception that no code of the engine catches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from retention.storage.crash_points import Step, watched_by


class KilledError(BaseException):
    """The kill of a process."""


@contextmanager
def killed_at(step: Step, nth: int = 1) -> Iterator[None]:
    """Kill the block where it reaches a step for the nth time; it must get there."""
    times = 0

    def kill(reached: Step) -> None:
        nonlocal times
        times += reached == step
        if reached == step and times == nth:
            raise KilledError

    with watched_by(kill), pytest.raises(KilledError):
        yield
