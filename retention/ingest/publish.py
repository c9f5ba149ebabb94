"""Publishing a batch of JSON lines as the broker would accept it: all of it, or none with the first reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.keep_ids import keep_unstored_ids
from retention.config import StreamConfig
from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.position import Position
from retention.core import message_rows
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.slices import slices_of
from retention.core.subjects import matching_mask
from retention.core.wording import counted
from retention.datafile.segment_writer import PARTITION, Staged, stage_rows
from retention.dialects.jetstream import JetStream
from retention.errors import RefusedError, UsageError
from retention.formats.jsonl import LeaveOut, Line, SkippedLine, Unread, parse_messages
from retention.ingest.append import (
    AppendAttempt,
    Appended,
    appending,
    refuse_synced,
    refuse_topic_of,
)
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish_checks import Answers, Batch, answer
from retention.ingest.recorded_commit import Removal, recorded_removal
from retention.ingest.rollup import BatchRollUps, asks_to_roll_up, plan_older
from retention.ingest.schedule_headers import with_schedules_rolled_up
from retention.ingest.stream_state import StreamState
from retention.ingest.subject_transform import publishable_subjects
from retention.ingest.turns import Turns
from retention.ingest.validate import validate_early, validate_features, validate_late
from retention.ingest.validation import MessageRefusal
from retention.layout.ttl_clamp import clamp_ttls
from retention.ports import Snapshot
from retention.schemas.messages import FILE_COLUMNS
from retention.stores.consumer_table import ConsumerTable

Decide: TypeAlias = Callable[[Position, int], pa.Table]
"""A function that gives the messages to publish, from the stream's end and an instant."""


@dataclass(frozen=True)
class Ack:
    """The broker's acknowledgement of one message."""

    stream: str
    seq: int
    duplicate: bool
    """Whether its `Nats-Msg-Id` was known: nothing was stored, and `seq` is the original's."""
    val: str | None = field(default=None, kw_only=True)
    """For a counter message: the counter's total after it."""

    def as_json(self) -> JsonObject:
        """The acknowledgement as a server writes it, with `val` only for counters."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Published(Displayed):
    """The answer to a batch."""

    stream: str
    answers: Answers
    appended: Appended
    """`duplicate`: the writer's batch was already committed, and there are no acknowledgements."""
    unwanted: int = 0
    """Messages that were acknowledged and not stored, because no consumer wants them."""

    def acks(self) -> Iterator[Ack]:
        """An ack for each accepted message, in the order of the lines."""
        seqs, duplicates = self.answers.seqs.tolist(), self.answers.duplicates.tolist()
        totals, refused = self.answers.totals, {refusal.row for refusal in self.answers.refusals}
        for row, (seq, duplicate) in enumerate(zip(seqs, duplicates, strict=True)):
            if row not in refused:
                yield Ack(self.stream, seq, duplicate, val=totals.get(row))

    def display_fields(self) -> JsonObject:
        """The outcome of the batch, without the arrays of answers."""
        return {
            "stream": self.stream,
            "outcome": self.summary(),
            "duplicates": int(self.answers.duplicates.sum()) or None,
            "refused": len(self.answers.refusals) or None,
            "bytes": self.appended.bytes,
            "version": self.appended.version,
        }

    def summary(self) -> str:
        """The outcome of the batch in a few words."""
        seqs = self.answers.seqs[self.answers.new]
        if not len(seqs):
            return "nothing was new; nothing was written"
        parts = [f"{counted(len(seqs), 'message')} {self._became} {seqs[0]:,} to {seqs[-1]:,}"]
        if self.appended.removed:
            parts.append(f"{self.appended.removed:,} older ones rolled up")
        if self.unwanted:
            parts.append(f"{self.unwanted:,} not stored, because no consumer wants them")
        return "; ".join(parts)

    @property
    def _became(self) -> str:
        return "answered as" if self.unwanted else "stored as"


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
    with _rolling_up(opened, now, asks=asks) as run, appending(opened, identity) as append:
        for attempt in append.attempts():
            batch, answers = _answered(opened, batch, attempt.position, now)
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
            batch = _batch(decide(attempt.position, now_ns), opened.config)
            batch, answers = _answered(opened, batch, attempt.position, now_ns)
            if answers.refusals:
                raise _refused(opened.name, batch.given, answers.refusals[0])
            append.commit(*_staged(opened, batch, answers, attempt, run))
    # A batch without an identity is never a repeat, so an attempt was made.
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
    wanted = np.ones(given.num_rows, dtype=bool)
    return Batch(given, stored, early, features, validate_late(given, stored, config), wanted)


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


def _wanted(opened: OpenedStream, batch: Batch, position: Position) -> Batch:
    """The batch with a mask of the messages that consumers want, where consumers decide."""
    if not _asks_consumers(opened):
        return batch
    wanted = _needed_mask(opened, position.snapshot, batch.rows["subject"])
    return replace(batch, wanted=wanted)


def _asks_consumers(opened: OpenedStream) -> bool:
    """Whether a stream's consumers decide which published messages are stored."""
    config = opened.config
    return config.retention == "interest" and config.unmatched == "remove"


def _needed_mask(opened: OpenedStream, snapshot: Snapshot, subjects: pa.ChunkedArray) -> np.ndarray:
    """A mask of the messages that some consumer wants, whether stored or listed in the configuration.

    As for a pass, a stream without any consumer keeps everything.

    Args:
        opened: the stream.
        snapshot: the version that the batch commits on, opened before consumers are read: a later edit makes that
            commit fail.
        subjects: each message's subject, as it would be stored.

    Raises:
        DamagedError: a consumer's record cannot be read.
    """
    records = ConsumerTable(opened.root).live(snapshot.counters)
    filters = {record.consumer: filters_of(record.config) for record in records}
    filters |= {consumer.name: consumer.filters for consumer in opened.config.consumers}
    if not filters or any(_wants_all(opened, patterns) for patterns in filters.values()):
        return np.ones(len(subjects), dtype=bool)
    encoded = subjects.combine_chunks().dictionary_encode()
    wanted = matching_mask(
        encoded.dictionary, {pattern for patterns in filters.values() for pattern in patterns}
    )
    return np.asarray(wanted, dtype=bool)[encoded.indices.to_numpy()]


def _wants_all(opened: OpenedStream, filters: tuple[str, ...]) -> bool:
    """Whether a consumer wants everything, or its interest is unknown."""
    return set(filters) in (set(), set(opened.config.subjects)) or any(
        map(has_wildcard_look_alike, filters)
    )


def _answered(
    opened: OpenedStream, batch: Batch, position: Position, now_ns: int
) -> tuple[Batch, Answers]:
    """The batch with its wanted messages, and the sequence of each message after the stream's end."""
    batch = _wanted(opened, batch, position)
    stored = StreamState.at(opened, position, now_ns)
    answers = answer(batch, opened.config, stored, position.next_seq)
    held = _held(opened, batch, answers, position, ~batch.wanted)
    return replace(batch, wanted=batch.wanted | held), answers


def _held(
    opened: OpenedStream, batch: Batch, answers: Answers, position: Position, left_out: np.ndarray
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
    for holds in holds_in_effect(opened, position.snapshot.counters).vetoes:
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
    position, staging = attempt.position, attempt.staging
    rolled_up = BatchRollUps.of(batch.rows["subject"], answers.rollups)
    new = answers.new
    held = _held(opened, batch, answers, position, rolled_up.superseded)
    kept = batch.wanted & new & ~rolled_up.superseded | held
    ends = JetStream.of(opened.config).ends(position.tail(PARTITION))
    rows = _counted(batch.rows, answers, opened.config)
    staged = stage_rows(staging, _numbered(rows, answers.seqs, kept), ends)
    if new.any():
        # Messages that are not stored use a sequence as well.
        staged = replace(staged, next_seq={PARTITION: int(answers.seqs[new][-1]) + 1})
    if (new & ~kept).any():
        staged = replace(staged, unstored={PARTITION: int(answers.seqs[new & ~kept][-1])})
    unstored = batch.rows.select(["ts_ns", "msg_id"]).append_column("seq", pa.array(answers.seqs))
    unstored = unstored.filter(pc.and_(pa.array(new & ~kept), pc.is_valid(unstored["msg_id"])))
    staged = replace(staged, batches=keep_unstored_ids(opened, unstored, position))
    return staged, None if run is None else plan_older(opened, position, rolled_up.stored, run)


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
