"""The choices of a sync: the bounds of its batches, what may be missed, and what comes along."""

from __future__ import annotations

from dataclasses import dataclass

from retention.errors import UsageError


@dataclass(frozen=True)
class SyncBounds:
    """The bounds of a batch, and of what may be missed."""

    batch_messages: int = 50_000
    batch_bytes: int = 64 << 20
    """Bytes of subjects, headers and payloads; one message may exceed it."""
    max_missed: int = 0
    """The most sequences of a run that the server may have removed before they were copied."""
    linger_s: float = 1.0
    """In `follow_sync`: the longest time between a message's arrival and its commit's beginning, seconds."""


BOUNDS = SyncBounds()


@dataclass(frozen=True)
class CopyOptions:
    """The choices of a call that streams and topics share, beside `sync` in the configuration."""

    server: str | None = None
    """The server's URL (of topics also `HOST:PORT`), instead of the configured one."""
    batch_messages: int = BOUNDS.batch_messages
    batch_bytes: int = BOUNDS.batch_bytes
    max_missed: int | None = None
    """The most sequences or offsets that may be missed in the run; None: the configuration's `max_missed`."""
    with_config: bool = False
    """Whether the server's configuration is written beside the copy, and the differences are said."""
    with_consumers: bool = False
    """Whether the server's consumers, or offsets of groups, come along with what they have settled."""

    def bounds(self, max_missed: int) -> SyncBounds:
        """The bounds of a run.

        Args:
            max_missed: the configuration's.

        Raises:
            UsageError: a bound is below its least value.
        """
        missed = max_missed if self.max_missed is None else self.max_missed
        if self.batch_messages < 1 or self.batch_bytes < 1 or missed < 0:
            raise UsageError(
                "a batch has at least 1 message and 1 byte, and max_missed is at least 0; nothing was copied; give "
                "higher numbers"
            )
        return SyncBounds(self.batch_messages, self.batch_bytes, missed)
