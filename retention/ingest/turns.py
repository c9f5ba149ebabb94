"""Turns of writers that want to append to the same log: one after another under a lease, or all at once."""

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
    """The way in which a writer comes to its turn; the commit alone decides who was first."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Hold off rivals during a block, as far as this way does."""

    def attempts(self) -> Iterator[int]:
        """The numbers of attempts, from 0 on, as long as another one makes sense."""


@dataclass(frozen=True)
class OneByOne:
    """An appender holds the append lease: for batches, of which a lost race wastes much."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Hold the append lease.

        Raises:
            BusyError: somebody else holds it.
        """
        return lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S)

    def attempts(self) -> Iterator[int]:
        """So many attempts as rivals without a lease, such as streaming sinks elsewhere, may well cost."""
        yield from range(ATTEMPTS)


@dataclass(frozen=True)
class AllAtOnce:
    """Nobody holds anything, so that nobody waits for the dead: for single messages, which are soon written again."""

    wait_s: float
    """The time after which a writer that is never first gives up, in seconds."""

    def held(self, opened: OpenedStream) -> AbstractContextManager[None]:
        """Hold nothing.

        Raises:
            RefusedError: commits do not exclude each other at that place.
        """
        refuse_without_exclusion(opened.root)
        return nullcontext()

    def attempts(self) -> Iterator[int]:
        """Attempts with random pauses between them that grow, until the time is over."""
        until, longest_s = time.monotonic() + self.wait_s, _FIRST_PAUSE_S
        for number in count():
            if number:
                if time.monotonic() >= until:
                    return
                time.sleep(random.uniform(0, longest_s))  # noqa: S311
                longest_s = min(2 * longest_s, _LONGEST_PAUSE_S)
            yield number


ONE_BY_ONE = OneByOne()
