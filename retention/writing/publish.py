"""Publishing a batch of JSON lines as the broker would take it: all of it, or none with the first reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention import rows
from retention.errors import RefusedError, UsageError
from retention.formats.jsonl import parse_messages
from retention.opened import OpenedStream
from retention.passes.position import Position
from retention.staging import Staged, Staging
from retention.writing.append import Appended, BatchIdentity, append
from retention.writing.clamp import clamped
from retention.writing.door import Answers, Batch, RefusedAtTheDoor, answer
from retention.writing.known import Stored
from retention.writing.screen import Refusal, screen_early, screen_late
from retention.writing.transform import renamed


@dataclass(frozen=True)
class Ack:
    """The broker's answer to one message."""

    stream: str
    seq: int
    duplicate: bool
    """Its `Nats-Msg-Id` was there already: nothing was stored, and `seq` is the original's."""


@dataclass(frozen=True)
class Published:
    """The answer to a batch."""

    stream: str
    answers: Answers
    appended: Appended
    """`duplicate`: the writer's batch was there already, and there are no answers."""

    def acks(self) -> Iterator[Ack]:
        """An ack for each message, in the order of the lines."""
        for seq, duplicate in zip(
            self.answers.seqs.tolist(), self.answers.duplicates.tolist(), strict=True
        ):
            yield Ack(self.stream, seq, duplicate)


def publish(
    opened: OpenedStream,
    lines: Iterable[bytes | str],
    identity: BatchIdentity | None = None,
) -> Published:
    """Publish JSON lines as one commit, refusing what the server's publish refuses; nothing is removed.

    Message ids are remembered for `duplicate_window` by the times of the messages, as far as the messages that
    carry them are still stored (after a restart the server knows no more). Under `discard: new` everything that is
    stored counts, but for what the limit of messages per subject would remove: the server removes that when it
    stores a message, here the next `apply` does.

    Args:
        opened: the stream; it is created if it does not exist.
        lines: see `formats.jsonl`; read to their end before the stream is touched.
        identity: makes the batch exactly once.

    Raises:
        UsageError: a line is no message, or its subject cannot be published to; it is named by its number.
        RefusedError: the broker's rules refuse a message; it is named by its number and the server's error code.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    given = parse_messages(lines, opened.clock())
    batch = _batch(given, opened)
    answers = Answers(np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))

    def stage(position: Position, staging: Staging) -> Staged:
        nonlocal answers
        stored = Stored(opened.store, position.inventory.files)
        answers = answer(batch, opened.config, stored, position.next_seq)
        return position.stage(staging, [batch.rows.filter(pa.array(~answers.duplicates))])

    try:
        appended = append(opened, stage, identity)
    except RefusedAtTheDoor as refused:
        raise _error(opened.name, given, refused.refusal) from None
    return Published(opened.name, answers, appended)


def _batch(given: pa.Table, opened: OpenedStream) -> Batch:
    config = opened.config
    early = screen_early(given, config)
    stored_as = {
        **{name: given[name] for name in given.column_names},
        "subject": renamed(given["subject"], config),
        "headers": clamped(given["headers"], config),
    }
    stored = rows.complete(pa.table(stored_as), config.storage)
    return Batch(given, stored, early, screen_late(stored, config))


def _error(stream: str, given: pa.Table, refusal: Refusal) -> UsageError | RefusedError:
    line = given["line"][refusal.row].as_py()
    subject = given["subject"][refusal.row].as_py()
    code = f" (server error {refusal.code})" if refusal.code else ""
    kind = UsageError if refusal.malformed else RefusedError
    return kind(
        f"line {line}: stream {stream} refuses the message on {subject!r}{code}: {refusal.reason}; nothing of the "
        "batch was written; correct or remove that line, or change the stream's configuration, and publish again"
    )
