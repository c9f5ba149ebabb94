"""Turns of concurrent appenders to one log: one at a time under a lease, or all at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from retention.context.context import OpenedStream
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.lease import lease

ATTEMPTS = 20
LEASE_WAIT_S = 60.0
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5


class Turns(Protocol):
    """The way in which concurrent writers take turns; the commit alone decides which came first."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Exclude other writers during a block, if this policy does."""

    def attempts(self) -> Iterator[int]:
        """The numbers of attempts, from 0 on, while another one makes sense."""


@dataclass(frozen=True)
class OneByOne:
    """An appender holds the append lease; for batches, where a lost race wastes much work."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Hold the append lease.

        Raises:
            BusyError: another process holds it.
        """
        return lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S)

    def attempts(self) -> Iterator[int]:
        """Enough attempts to outlast writers without a lease, such as streaming sinks elsewhere."""
        yield from range(ATTEMPTS)


@dataclass(frozen=True)
class AllAtOnce:
    """No lease is held, so no writer waits for a dead process; for single messages, which are quickly rewritten."""

    wait_s: float
    """The time after which a writer that keeps losing gives up, in seconds."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Hold nothing.

        Raises:
            RefusedError: the storage does not make commits exclude each other.
        """
        refuse_without_exclusion(opened.root)
        return nullcontext()

    def attempts(self) -> Iterator[int]:
        """Attempts with growing random pauses between them, until the time is over."""
        until, longest_s = time.monotonic() + self.wait_s, _FIRST_PAUSE_S
        for number in count():
            if number:
                if time.monotonic() >= until:
                    return
                time.sleep(random.uniform(0, longest_s))  # noqa: S311
                longest_s = min(2 * longest_s, _LONGEST_PAUSE_S)
            yield number


ONE_BY_ONE = OneByOne()
