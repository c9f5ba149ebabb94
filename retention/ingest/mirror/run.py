"""Carrying the new messages of origins to a mirror or a stream with sources, in parts, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.context.context import OpenedStream
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import RefusedError
from retention.ingest.mirror.origin import MirrorOrigin
from retention.ingest.mirror.pull import Pull, PullResult
from retention.ingest.mirror.resume import next_seq_of

PART_BYTES = 1 << 30
"""Approximate bytes per commit, by the broker's accounting; an interrupted run resumes after the last commit."""


@dataclass(frozen=True, repr=False)
class Mirrored(Displayed):
    """The messages that a run carried over to one stream."""

    stream: str
    first_seq: int
    """The first sequence of the new messages; without any, the next sequence."""
    last_seq: int
    origins: Sequence[PullResult]

    @property
    def messages(self) -> int:
        """The number of new messages."""
        return sum(origin.messages for origin in self.origins)

    @property
    def bytes(self) -> int:
        """The size of the new messages, by the broker's accounting."""
        return sum(origin.bytes for origin in self.origins)

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        summed = {
            name: sum(getattr(origin, name) for origin in self.origins)
            for name in ("messages", "bytes", "skipped", "missing", "rolled_up")
        }
        bounds = {"first_seq": self.first_seq, "last_seq": self.last_seq}
        origins = [vars(origin) for origin in self.origins]
        return {"stream": self.stream} | summed | bounds | {"origins": origins}


def run_mirror(
    target: OpenedStream,
    origins: Sequence[MirrorOrigin],
    as_of_ns: int,
    part_bytes: int = PART_BYTES,
) -> Mirrored:
    """Bring a stream up to date with its origins, one after the other; each part is a commit with its position.

    Args:
        target: the stream; it is created if it does not exist and there are messages for it.
        origins: the origins of its messages.
        as_of_ns: the time at which a source's messages are stored; a mirror's keep their own.
        part_bytes: the approximate size of one commit.

    Raises:
        RefusedError: an origin is not the one that was read before, or the stream refuses a message; earlier parts are
            committed.
        BusyError: the append lease is held, or other writers kept committing first.
    """
    if target.config.sealed:
        raise RefusedError(
            f"{target.name}: the stream is sealed (server error 10109); nothing was written; remove its "
            "mirror or sources"
        )
    taken = [Pull(target, origin, as_of_ns, part_bytes).run() for origin in origins]
    next_seq = next_seq_of(target)
    first = min((result.first_seq for result in taken if result.first_seq), default=next_seq)
    last = max((result.last_seq for result in taken if result.last_seq), default=next_seq - 1)
    mirrored = Mirrored(target.name, first, last, taken)
    stalled = [result for result in taken if result.stalled]
    if stalled:
        raise RefusedError(
            f"{target.name}: {stalled[0].stalled}; {counted(mirrored.messages, 'message')} copied; raise the "
            f"stream's limits, or remove messages ({command('purge', target.name, options='--keep N')}), and run again"
        )
    return mirrored
