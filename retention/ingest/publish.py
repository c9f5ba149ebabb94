"""Publishing a batch of JSON lines as the broker would take it: all of it, or none with the first reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.keep_ids import keep_unstored_ids
from retention.context.context import OpenedStream
from retention.context.stream_tail import Position
from retention.core import message_rows
from retention.datafile.segment_writer import Staged, Staging, stage_rows
from retention.errors import RefusedError, UsageError
from retention.formats.jsonl import parse_messages
from retention.ingest.append import Appended, append, refuse_topic_of
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.interest_filter import asks_consumers, wanted_by_somebody
from retention.ingest.publish_checks import Answers, Batch, RefusedAtTheDoor, answer
from retention.ingest.recorded_commit import removing
from retention.ingest.rollup import RolledUp, asks_to_roll_up, remove_older
from retention.ingest.stream_state import Stored
from retention.ingest.subject_transform import renamed
from retention.ingest.ttl_clamp import clamped
from retention.ingest.validate import Refusal, screen_early, screen_late
from schemas.messages import FILE_COLUMNS


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
    unwanted: int = 0
    """Messages that were answered and not stored, because no consumer wants them."""

    def acks(self) -> Iterator[Ack]:
        """An ack for each message, in the order of the lines."""
        for seq, duplicate in zip(
            self.answers.seqs.tolist(), self.answers.duplicates.tolist(), strict=True
        ):
            yield Ack(self.stream, seq, duplicate)

    def summary(self) -> str:
        """What became of the batch, in a few words."""
        seqs = self.answers.seqs[~self.answers.duplicates]
        if not len(seqs):
            return "nothing was new; nothing was written"
        said = [f"{len(seqs):,} messages {self._became} {seqs[0]:,} to {seqs[-1]:,}"]
        if self.appended.removed:
            said.append(f"{self.appended.removed:,} older ones rolled up")
        if self.unwanted:
            said.append(f"{self.unwanted:,} not stored, because no consumer wants them")
        return "; ".join(said)

    @property
    def _became(self) -> str:
        return "answered as" if self.unwanted else "stored as"


def publish(
    opened: OpenedStream,
    lines: Iterable[bytes | str],
    identity: BatchIdentity | None = None,
) -> Published:
    """Publish JSON lines as one commit, refusing what the server's publish refuses.

    With `retention: interest` and `unmatched: remove` a message that no consumer wants is answered as a server answers
    it: it uses a sequence, rolls up what it says, and is not stored.

    Nothing is removed but what a `Nats-Rollup` takes, in the same commit; that is on record as a run.

    Message ids are remembered for `duplicate_window` by the times of the messages, also those of messages that were
    removed since or never stored, as by a server that is not restarted. Under `discard: new` everything that is stored
    counts, but for what the limit of messages per subject would remove: here the next `apply` removes that.

    Args:
        opened: the stream; it is created if it does not exist.
        lines: see `formats.jsonl`; read to their end before the stream is touched.
        identity: makes the batch exactly once.

    Raises:
        UsageError: a line is no message, or its subject cannot be published to; it is named by its number.
        RefusedError: the broker's rules refuse a message; it is named by its number and the server's error code.
        BusyError: the append lease is held, or rivals kept committing first; for a roll-up, another run is at work.
    """
    refuse_topic_of(opened.config)
    now = opened.clock()
    given = parse_messages(lines, now)
    batch = _batch(given, opened)
    answers = Answers.plain(0, 0)
    run: tuple[str, int] | None = None

    def stage(position: Position, staging: Staging) -> Staged:
        nonlocal answers, batch
        if asks_consumers(opened):
            wanted = wanted_by_somebody(opened, position.snapshot, batch.rows["subject"])
            batch = replace(batch, wanted=wanted)
        answers = answer(batch, opened.config, Stored.at(opened, position), position.next_seq)
        rolled_up = RolledUp.of(batch.rows["subject"], answers.rollups)
        kept = _kept(batch, answers, rolled_up)
        rows = _numbered(batch.rows, answers.seqs, kept)
        staged = stage_rows(staging, rows, position.active, position.rule, position.next_seq)
        ids = keep_unstored_ids(opened, _unstored(batch, answers, kept), position)
        staged = replace(staged, next_seq=_next_seq(answers, position.next_seq), batches=ids)
        if run is None:
            return staged
        removal = remove_older(opened.store, position.inventory.files, rolled_up, staging, run)
        return replace(staged, removal=removal)

    with ExitStack() as held:
        if opened.config.allow_rollup_hdrs and asks_to_roll_up(given["headers"]):
            run = (held.enter_context(removing(opened)), now)
        try:
            appended = append(opened, stage, identity)
        except RefusedAtTheDoor as refused:
            raise _error(opened.name, given, refused.refusal) from None
    unwanted = 0 if appended.duplicate else int((~batch.wanted & ~answers.duplicates).sum())
    return Published(opened.name, answers, appended, unwanted)


def _kept(batch: Batch, answers: Answers, rolled_up: RolledUp) -> np.ndarray:
    """Which messages of a batch are there when it is over; a mask."""
    kept: np.ndarray = batch.wanted & ~answers.duplicates & ~rolled_up.own
    return kept


def _unstored(batch: Batch, answers: Answers, kept: np.ndarray) -> pa.Table:
    """The messages with an id that were answered anew and are not stored: `seq`, `ts_ns` and `msg_id`."""
    rows = batch.rows.select(["ts_ns", "msg_id"]).append_column("seq", pa.array(answers.seqs))
    chosen = pa.array(~kept & ~answers.duplicates)
    return rows.filter(pc.and_(chosen, pc.is_valid(rows["msg_id"])))


def _next_seq(answers: Answers, next_seq: int) -> int:
    """The next sequence after a batch; messages that are not stored use one, too."""
    used = answers.seqs[~answers.duplicates]
    return int(used[-1]) + 1 if len(used) else next_seq


def _numbered(rows: pa.Table, seqs: np.ndarray, kept: np.ndarray) -> list[pa.Table]:
    """The rows that are kept with their sequences, shape `FILE_COLUMNS`; no table if there are none."""
    if not kept.any():
        return []
    whole = rows.add_column(0, "seq", pa.array(seqs)).filter(pa.array(kept))
    return [whole.select(FILE_COLUMNS.names).cast(FILE_COLUMNS)]


def _batch(given: pa.Table, opened: OpenedStream) -> Batch:
    config = opened.config
    early = screen_early(given, config)
    stored_as = {
        **{name: given[name] for name in given.column_names},
        "subject": renamed(given["subject"], config),
        "headers": clamped(given["headers"], config),
    }
    stored = message_rows.complete(pa.table(stored_as), config.storage)
    wanted = np.ones(given.num_rows, dtype=bool)
    return Batch(given, stored, early, screen_late(stored, config), wanted)


def _error(stream: str, given: pa.Table, refusal: Refusal) -> UsageError | RefusedError:
    line = given["line"][refusal.row].as_py()
    subject = given["subject"][refusal.row].as_py()
    code = f" (server error {refusal.code})" if refusal.code else ""
    kind = UsageError if refusal.malformed else RefusedError
    return kind(
        f"line {line}: stream {stream} refuses the message on {subject!r}{code}: {refusal.reason}; nothing of the "
        "batch was written; correct or remove that line, or change the stream's configuration, and publish again"
    )
