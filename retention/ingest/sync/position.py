"""The position of a synced stream at its server, as its commits keep it, and the reasons not to go on from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.context.log_end import LogEnd
from retention.context.position import locate, next_seq_without_table
from retention.errors import RefusedError
from retention.ingest.idempotency import BatchIdentity, NextBatch
from retention.ingest.sync.likeness import SAMPLES, Likeness, likeness_of

if TYPE_CHECKING:
    from retention.nats.stream import RemoteStream, StreamInfo

WRITER = "nats-sync"
"""The writer name under which commits keep the last sequence of the server that was read."""


@dataclass(frozen=True)
class SyncStart:
    """The point at which a run, or its next batch, begins."""

    kept: int | None
    """The last sequence of the server that was read, by the commits; None: they name none."""
    held: int
    """The last sequence of the stream."""
    first: int
    """The first sequence to read."""
    is_restored: bool = False
    """Whether the server's stream was restored since the last run: it has another `created`, and the same messages."""


def identity_of(info: StreamInfo, until: int, kept: int | None) -> BatchIdentity:
    """The identity of the commit that brings a stream up to `until`; it names the server's stream by its `created`.

    Args:
        info: the server's stream.
        until: the last sequence read.
        kept: that of the commit before.
    """
    return NextBatch(WRITER, until, _of_created(info), after=kept)


def start_of(opened: OpenedStream, remote: RemoteStream, info: StreamInfo) -> SyncStart:
    """The point at which to begin; the newest message of the stream is compared with the server's.

    The server's `created` changes if its stream is deleted and made anew, and also if it is restored. The two are told
    apart by messages that both hold.

    Raises:
        RefusedError: the server's stream is not the one that was copied, or lost messages; or the stream holds messages
            that did not come from it.
    """
    if not opened.table.exists():
        return _without_table(opened, info)
    position = locate(opened)
    batches = position.snapshot.counters.batches
    done, held = batches.get(WRITER), position.next_seq - 1
    if done is None and held < opened.dialect.first_seq:
        return SyncStart(None, held, max(info.first_seq, 1))
    if done is not None and held > done:
        raise RefusedError(
            f"{opened.name}: sequences up to {done:,} were copied from the server, and its next is {held + 1:,}: "
            f"others wrote to it, or purged it beyond its end; {_NOTHING}"
        )
    is_same = done is not None and batches.get(_of_created(info)) == done
    _refuse_shorter(opened, info, held, is_same=is_same)
    files = position.inventory.files
    likeness = likeness_of(opened, files, remote, info, 1 if is_same else SAMPLES)
    _refuse_unlike(opened, info, likeness, is_same=is_same)
    return SyncStart(done, held, held + 1, is_restored=done is not None and not is_same)


def refuse_moved(opened: OpenedStream, end: LogEnd, start: SyncStart) -> None:
    """Refuse to commit where others wrote since a batch began.

    Raises:
        RefusedError: another writer has moved the end of the stream.
    """
    held = end.next_seq - 1
    if held != start.held:
        raise RefusedError(
            f"{opened.name}: others wrote to it while it was synced, and its next sequence is {held + 1:,}; {_NOTHING}"
        )


_NOTHING = "nothing was copied; keep the server's messages in a stream of their own: sync into a new stream"


def _of_created(info: StreamInfo) -> str:
    return f"{WRITER}/{info.name}/{info.created}"


def _without_table(opened: OpenedStream, info: StreamInfo) -> SyncStart:
    held = next_seq_without_table(opened) - 1
    if held >= opened.dialect.first_seq:
        raise RefusedError(
            f"{opened.name}: it was dropped or lost after sequence {held:,}, and sequences are never assigned twice; "
            f"{_NOTHING}"
        )
    return SyncStart(None, held, max(info.first_seq, 1))


def _refuse_shorter(opened: OpenedStream, info: StreamInfo, held: int, *, is_same: bool) -> None:
    if info.last_seq >= held:
        return
    why = (
        "its newest messages are lost there (a crash of its machine, or a replica that lags)"
        if is_same
        else "it was deleted and made anew, or restored from an older backup"
    )
    raise RefusedError(
        f"{opened.name}: it holds sequences up to {held:,}, and the last of {info.name} on the server is "
        f"{info.last_seq:,}: {why}; {_NOTHING}, and keep this one as it is"
    )


def _refuse_unlike(
    opened: OpenedStream, info: StreamInfo, likeness: Likeness, *, is_same: bool
) -> None:
    if likeness.differing is not None:
        why = (
            "the server lost its newest messages and assigned their sequences again"
            if is_same
            else "the stream there was deleted and made anew, or this one holds messages of another origin"
        )
        raise RefusedError(
            f"{opened.name}: message {likeness.differing:,} differs from that of {info.name} on the server (created "
            f"{info.created}): {why}; {_NOTHING}, and keep this one as it is"
        )
    if not is_same and not likeness.equal:
        raise RefusedError(
            f"{opened.name}: {info.name} on the server (created {info.created}) is not the stream that was copied, "
            "unless it was restored, and no message that both hold can show that; "
            f"{_NOTHING}, and keep this one as it is"
        )
