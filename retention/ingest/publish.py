"""Publishing a batch of JSON lines as the broker would accept it: all of it, or none with the first reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.keep_ids import keep_unstored_ids
from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.log_end import LogEnd
from retention.context.position import Position
from retention.core import message_rows
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.slices import slices_of
from retention.datafile.segment_writer import PARTITION, Staged, stage_rows
from retention.dialects.jetstream import JetStream
from retention.errors import RefusedError, UsageError
from retention.formats.jsonl import LeaveOut, Line, SkippedLine, Unread, parse_messages
from retention.ingest.append import (
    Append,
    AppendAttempt,
    appending,
    refuse_synced,
    refuse_topic_of,
)
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish_checks import (
    Answers,
    Batch,
    answer_each,
    answer_together,
    asking_mask,
    depends_on_stored,
)
from retention.ingest.published import Published
from retention.ingest.recorded_commit import Removal, recorded_removal
from retention.ingest.rollup import BatchRollUps, asks_to_roll_up, plan_older
from retention.ingest.schedule_headers import with_schedules_rolled_up
from retention.ingest.stream_state import StreamState
from retention.ingest.subject_transform import publishable_subjects
from retention.ingest.turns import Turns
from retention.ingest.validate import validate_early, validate_features, validate_late
from retention.ingest.validation import MessageRefusal
from retention.ingest.wanted import asks_consumers, wanted_mask
from retention.layout.ttl_clamp import clamp_ttls
from retention.schemas.messages import FILE_COLUMNS

Decide: TypeAlias = Callable[[Position, int], pa.Table]
"""A function that gives the messages to publish, from the stream's end and an instant."""
Make: TypeAlias = Callable[[int], pa.Table]
"""A function that gives the messages to publish at an instant."""


def publish(
    opened: OpenedStream,
    lines: Iterable[Line],
    identity: BatchIdentity | None = None,
    leave_out: LeaveOut | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> Published:
    """Publish JSON lines as one commit, refusing what the server's publish refuses.

    With `retention: interest` and `unmatched: remove` a message that no consumer wants is acknowledged as a server
    does: it uses a sequence, performs its roll-up, and is not stored.

    Only a `Nats-Rollup` removes messages, in the same commit, recorded as a run.

    Message ids are remembered for `duplicate_window` by the times of the messages, including ids of messages removed
    since or never stored, as on a server that is not restarted. Under `discard: new` everything stored counts, except
    messages beyond the limit per subject, which the next `apply` removes.

    Args:
        opened: the stream; it is created if it does not exist.
        lines: see `formats.jsonl`; read to their end before the stream is touched.
        identity: makes the batch exactly once.
        leave_out: receives the refused messages before the others are committed; without it the first one refuses the
            batch.
        times: the instants that a line may give.

    Raises:
        UsageError: a line is not a message, or its subject cannot be published to; the error gives its number.
        RefusedError: the broker's rules refuse a message; the error gives its number and the server's error code.
        BusyError: the append lease is held, or other writers kept committing first; for a roll-up, another run is in
            progress.
    """
    refuse_topic_of(opened.config)
    refuse_synced(opened.config)
    now = opened.clock()
    unread = Unread() if leave_out else None
    batch = _batch(parse_messages(lines, now, unread, times), opened.config)
    answers = Answers.plain(0, 0)
    asks = asks_to_roll_up(batch.given["headers"])
    depends = depends_on_stored(opened.config, batch.asking)
    with _rolling_up(opened, now, asks=asks) as run, appending(opened, identity) as append:
        for attempt in append.attempts() if depends else append.attempts_at_end():
            batch, answers = _answered(opened, batch, attempt, now)
            if leave_out and unread is not None:
                leave_out([*unread.lines, *_left_out(batch.given, answers)])
            elif answers.refusals:
                raise _error(opened.name, batch.given, answers.refusals[0])
            append.commit(*_staged(opened, batch, answers, attempt, run))
    unwanted = 0 if append.done.duplicate else int((~batch.wanted & answers.new).sum())
    return Published(opened.name, answers, append.done, unwanted)


def publish_decided(
    opened: OpenedStream, decide: Decide, turns: Turns, *, rolls_up: bool = False
) -> Published:
    """Publish messages that depend on the stream's state: they are computed again for every attempt to commit them.

    Args:
        opened: the stream; it is created if it does not exist.
        decide: gives the messages, shape `PUBLISHED`, for a position of the stream and an instant, nanoseconds since
            the epoch; an exception from it ends the publish, and nothing is written.
        turns: how writers of the same log take turns.
        rolls_up: whether one of them may have a `Nats-Rollup`.

    Raises:
        UsageError, RefusedError: the broker's rules refuse a message.
        BusyError: other writers kept committing first; for a roll-up, another run is in progress.
    """
    refuse_topic_of(opened.config)
    refuse_synced(opened.config)
    rolling_up = _rolling_up(opened, opened.clock(), asks=rolls_up)
    with rolling_up as run, appending(opened, turns=turns) as append:
        for attempt in append.attempts():
            now_ns = opened.clock()
            answers = _tried(opened, decide(attempt.position, now_ns), append, attempt, now_ns, run)
    # A batch without an identity is never a repeat, so an attempt was made.
    return Published(opened.name, answers, append.done)


def publish_made(opened: OpenedStream, make: Make, turns: Turns) -> Published:
    """Publish messages that depend on the instant alone: they are made again for every attempt to commit them.

    Args:
        opened: the stream; it is created if it does not exist.
        make: gives the messages, shape `PUBLISHED`, for an instant, nanoseconds since the epoch; no header of theirs
            asks about stored messages.
        turns: how writers of the same log take turns.

    Raises:
        UsageError, RefusedError: the broker's rules refuse a message.
        BusyError: other writers kept committing first.
    """
    refuse_topic_of(opened.config)
    refuse_synced(opened.config)
    with appending(opened, turns=turns) as append:
        depends = depends_on_stored(opened.config)
        for attempt in append.attempts() if depends else append.attempts_at_end():
            now_ns = opened.clock()
            answers = _tried(opened, make(now_ns), append, attempt, now_ns, None)
    return Published(opened.name, answers, append.done)


def refuse_at_once(opened: OpenedStream, given: pa.Table) -> None:
    """Refuse messages, shape `PUBLISHED`, by the checks that a server makes before it reads the stream's state.

    Raises:
        UsageError, RefusedError: the broker's rules refuse one of them.
    """
    refusal = validate_early(given, opened.config).earliest()
    if refusal is not None:
        raise _refused(opened.name, given, refusal)


def _batch(given: pa.Table, config: StreamConfig) -> Batch:
    """Messages as given and as they would be stored, with the refusals that do not depend on the stream's state."""
    early = validate_early(given, config)
    subjects = publishable_subjects(early, given["subject"], config)
    features = validate_features(given, subjects, config)
    blocks = with_schedules_rolled_up(given["headers"], config)
    given = _with_columns(given, headers=blocks)
    stored_as = _with_columns(given, subject=subjects, headers=clamp_ttls(blocks, config))
    stored = message_rows.complete_rows(stored_as, config.storage)
    late, wanted = validate_late(given, stored, config), np.ones(given.num_rows, dtype=bool)
    return Batch(given, stored, early, features, late, asking_mask(blocks), wanted)


def _with_columns(table: pa.Table, **columns: pa.ChunkedArray) -> pa.Table:
    """A table with other values in some columns."""
    return pa.table({name: columns.get(name, table[name]) for name in table.schema.names})


def _counted(rows: pa.Table, answers: Answers, config: StreamConfig) -> pa.Table:
    """Rows of a counter stream, with the totals to store."""
    if not answers.counted:
        return rows
    stored = rows.select(["headers", "payload"]).to_pylist()
    for place, (block, payload) in answers.counted.items():
        stored[place] = {"headers": block, "payload": payload}
    raw = _with_columns(
        rows.select(["subject", "headers", "payload", "ts_ns"]),
        headers=pa.chunked_array([pa.array([row["headers"] for row in stored], pa.binary())]),
        payload=pa.chunked_array([pa.array([row["payload"] for row in stored], pa.binary())]),
    )
    return message_rows.complete_rows(raw, config.storage)


@contextmanager
def _rolling_up(
    opened: OpenedStream, now_ns: int, *, asks: bool
) -> Iterator[tuple[str, int] | None]:
    """Exclude other runs from the stream if messages request a roll-up; the name and the instant of that run."""
    if not (opened.config.allow_rollup_hdrs and asks):
        yield None
        return
    with recorded_removal(opened) as run:
        yield run, now_ns


def _tried(
    opened: OpenedStream,
    given: pa.Table,
    append: Append,
    attempt: AppendAttempt,
    now_ns: int,
    run: tuple[str, int] | None,
) -> Answers:
    """The answers to messages, shape `PUBLISHED`, after an attempt to commit them; a refusal is raised."""
    batch = _batch(given, opened.config)
    batch, answers = _answered(opened, batch, attempt, now_ns)
    if answers.refusals:
        raise _refused(opened.name, batch.given, answers.refusals[0])
    append.commit(*_staged(opened, batch, answers, attempt, run))
    return answers


def _answered(
    opened: OpenedStream, batch: Batch, attempt: AppendAttempt, now_ns: int
) -> tuple[Batch, Answers]:
    """The batch with its wanted messages, and the sequence of each message after the stream's end."""
    end, config = attempt.end, opened.config
    if asks_consumers(opened):
        wanted = wanted_mask(opened, end.counters, batch.rows["subject"])
        batch = replace(batch, wanted=wanted)
    if depends_on_stored(config, batch.asking):
        stored = StreamState.at(opened, attempt.position, now_ns)
        answers = answer_each(batch, config, stored, end.next_seq)
    else:
        answers = answer_together(batch, end.next_seq)
    held = _held(opened, batch, answers, end, ~batch.wanted)
    return replace(batch, wanted=batch.wanted | held), answers


def _held(
    opened: OpenedStream, batch: Batch, answers: Answers, end: LogEnd, left_out: np.ndarray
) -> np.ndarray:
    """A mask of the new messages under a legal hold, among those that would be left out: each is stored after all.

    Raises:
        DamagedError: as `holds_in_effect`.
    """
    held = answers.new & left_out
    if not held.any():
        return held
    numbered = batch.rows.select(["subject", "ts_ns"]).append_column("seq", pa.array(answers.seqs))
    covered = np.zeros(len(held), dtype=bool)
    for holds in holds_in_effect(opened, end.counters).vetoes:
        covered |= holds.covers(numbered).any(axis=0)
    return held & covered


def _left_out(given: pa.Table, answers: Answers) -> Iterator[SkippedLine]:
    for refusal in answers.refusals:
        yield SkippedLine(given["line"][refusal.row].as_py(), refusal.reason, refusal.code)


def _staged(
    opened: OpenedStream,
    batch: Batch,
    answers: Answers,
    attempt: AppendAttempt,
    run: tuple[str, int] | None,
) -> tuple[Staged, Removal | None]:
    """Write the stored messages of a batch, and the ids of the others; plan the removal of replaced messages."""
    end, staging = attempt.end, attempt.staging
    rolled_up = BatchRollUps.of(batch.rows["subject"], answers.rollups)
    new = answers.new
    held = _held(opened, batch, answers, end, rolled_up.superseded)
    kept = batch.wanted & new & ~rolled_up.superseded | held
    ends = JetStream.of(opened.config).ends(end.tail(PARTITION))
    rows = _counted(batch.rows, answers, opened.config)
    staged = stage_rows(staging, _numbered(rows, answers.seqs, kept), ends)
    if new.any():
        # Messages that are not stored use a sequence as well.
        staged = replace(staged, next_seq={PARTITION: int(answers.seqs[new][-1]) + 1})
    unstored = new & ~kept
    if unstored.any():
        staged = replace(
            staged,
            unstored={PARTITION: int(answers.seqs[unstored][-1])},
            batches=_unstored_ids(opened, batch, answers, unstored, attempt),
        )
    if run is None:
        return staged, None
    return staged, plan_older(opened, attempt.position, rolled_up.stored, run)


def _unstored_ids(
    opened: OpenedStream,
    batch: Batch,
    answers: Answers,
    unstored: np.ndarray,
    attempt: AppendAttempt,
) -> dict[str, int]:
    """Keep the ids of messages that are not stored; the counters that their commit sets."""
    rows = batch.rows.select(["ts_ns", "msg_id"]).append_column("seq", pa.array(answers.seqs))
    with_id = rows.filter(pc.and_(pa.array(unstored), pc.is_valid(rows["msg_id"])))
    return keep_unstored_ids(opened, with_id, attempt.position) if with_id.num_rows else {}


def _numbered(rows: pa.Table, seqs: np.ndarray, kept: np.ndarray) -> Iterator[pa.Table]:
    """The kept rows with their sequences, shape `FILE_COLUMNS`, in batches: each batch is copied."""
    numbered = rows.add_column(0, "seq", pa.array(seqs)).select(FILE_COLUMNS.names)
    start = 0
    for part in slices_of(numbered):
        chosen = kept[start : start + part.num_rows]
        start += part.num_rows
        if chosen.any():
            yield (part if chosen.all() else part.filter(pa.array(chosen))).cast(FILE_COLUMNS)


def _error(stream: str, given: pa.Table, refusal: MessageRefusal) -> UsageError | RefusedError:
    """The error for a batch of lines with a refused one."""
    line = given["line"][refusal.row].as_py()
    kind = UsageError if refusal.malformed else RefusedError
    return kind(
        f"line {line}: {_refuses(stream, given, refusal)}; nothing of the batch was written; correct or remove that "
        "line, or change the stream's configuration, and publish again"
    )


def _refused(stream: str, given: pa.Table, refusal: MessageRefusal) -> UsageError | RefusedError:
    """The error for messages without lines, with a refused one."""
    kind = UsageError if refusal.malformed else RefusedError
    return kind(
        f"{_refuses(stream, given, refusal)}; nothing was written; change the message, or the stream's configuration"
    )


def _refuses(stream: str, given: pa.Table, refusal: MessageRefusal) -> str:
    subject = given["subject"][refusal.row].as_py()
    code = f" (server error {refusal.code})" if refusal.code else ""
    return f"stream {stream} refuses the message on {subject!r}{code}: {refusal.reason}"
