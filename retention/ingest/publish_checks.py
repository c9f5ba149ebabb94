"""The broker's checks of a publish: messages in order, each checked against the state after the previous one."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers
from retention.core.headers import (
    EXPECTED_LAST_SEQ,
    EXPECTED_MSG_ID,
    EXPECTED_SUBJECT,
    EXPECTED_SUBJECT_SEQ,
)
from retention.core.subjects import matches
from retention.ingest import counters
from retention.ingest import rollup as rollups
from retention.ingest.counters import Counter, UncountableError
from retention.ingest.stream_state import UNCAPPED, Room, StreamState
from retention.ingest.validation import MessageRefusal, Validation

_ROLLUPS = {b"sub": rollups.SUBJECT, b"all": rollups.EVERYTHING}
_ASKING = (
    rf"\r\n(?:{headers.MSG_ID}|{headers.ROLLUP}|{counters.INCREMENT}|Nats-Expected-[A-Za-z-]+):"
)
"""Headers for which the acknowledgement depends on the stream's state."""
_NONE_ASKS = np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Batch:
    """Messages that are published together."""

    given: pa.Table
    """Messages as published: `subject`, `headers`, `payload`, `ts_ns`."""
    rows: pa.Table
    """Messages as they would be stored: `FILE_COLUMNS` without `seq`."""
    early: Validation
    features: Validation
    late: Validation
    asking: np.ndarray
    """bool: the messages whose headers make the answer depend on stored ones."""
    wanted: np.ndarray
    """bool: the messages to store. The others are still acknowledged: they use a sequence, and roll up."""


@dataclass(frozen=True)
class Answers:
    """The answers to a batch."""

    seqs: np.ndarray
    """int64: the sequence of each message; a duplicate has that of its original, a refused one has 0."""
    duplicates: np.ndarray
    """bool: nothing is stored for these."""
    rollups: np.ndarray
    """The roll-up of each stored message: `rollups.NONE`, `SUBJECT` or `EVERYTHING`."""
    counted: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Row of a counter message → the header block and the payload to store."""
    refusals: Sequence[MessageRefusal] = ()
    """The refusals, in message order; the others are answered as if the refused ones had not been sent."""

    @property
    def new(self) -> np.ndarray:
        """A mask of the messages that get a new sequence."""
        new = ~self.duplicates
        new[[refusal.row for refusal in self.refusals]] = False
        return new

    @property
    def totals(self) -> dict[int, str]:
        """Row of a counter message → the counter's total after it."""
        return {row: json.loads(payload)["val"] for row, (_, payload) in self.counted.items()}

    @classmethod
    def plain(cls, first_seq: int, count: int) -> Answers:
        """Answers for messages that are all stored in order, without roll-ups."""
        seqs = np.arange(first_seq, first_seq + count, dtype=np.int64)
        return cls(seqs, np.zeros(count, dtype=bool), np.full(count, rollups.NONE))


class _RefusedMessage(Exception):  # noqa: N818  (never leaves this module)
    """Carries the refusal of a message."""

    def __init__(self, refusal: MessageRefusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def asking_mask(blocks: pa.ChunkedArray) -> np.ndarray:
    """A mask of the messages whose header blocks make the answer depend on stored messages."""
    return np.asarray(pc.fill_null(pc.match_substring_regex(blocks, _ASKING), False))  # noqa: FBT003


def depends_on_stored(config: StreamConfig, asking: np.ndarray = _NONE_ASKS) -> bool:
    """Whether answers depend on stored messages: one asks for it, or every message is counted.

    Args:
        config: the stream's.
        asking: as `asking_mask`; by default no message asks.
    """
    return _is_counted(config) or config.allow_msg_counter or bool(asking.any())


def answer_each(batch: Batch, config: StreamConfig, stored: StreamState, next_seq: int) -> Answers:
    """Answer each message of a batch, in order, as the server does (jetstream R1)."""
    return _Checks(batch, config, stored, next_seq).answer(batch.asking)


def _is_counted(config: StreamConfig) -> bool:
    """Whether a message may be refused because the stream, or its subject, is full."""
    per_subject = config.max_msgs_per_subject if config.discard_new_per_subject else 0
    return config.discard == "new" and max(config.max_msgs, config.max_bytes, per_subject) > 0


def answer_together(batch: Batch, next_seq: int) -> Answers:
    """Answer messages that depend on no stored ones: those not refused get the next sequences."""
    count = batch.given.num_rows
    stages = ((batch.early, True), (batch.features, True), (batch.late, batch.wanted))
    refused = np.logical_or.reduce([stage.refused() & among for stage, among in stages])
    if not refused.any():
        return Answers.plain(next_seq, count)
    refusals = [
        next(filter(None, (stage.refusal(row) for stage, _ in stages)))
        for row in np.flatnonzero(refused).tolist()
    ]
    answers = replace(Answers.plain(0, count), refusals=refusals)
    answers.seqs[:] = np.where(refused, 0, next_seq - 1 + np.cumsum(~refused))
    return answers


class _Checks:
    """The state that the server keeps while messages arrive, as far as a batch needs it."""

    def __init__(
        self, batch: Batch, config: StreamConfig, stored: StreamState, next_seq: int
    ) -> None:
        self._batch = batch
        self._config = config
        self._next_seq = next_seq
        self._row = 0
        self._rollup = rollups.NONE
        self._subjects = batch.rows["subject"].to_pylist()
        self._times = batch.rows["ts_ns"].to_pylist()
        self._sizes = batch.rows["size"].to_pylist()
        self._msg_ids = batch.rows["msg_id"].to_pylist()
        self._ids = self._known_ids(stored)
        blocks = batch.given["headers"]
        self._last_seqs = stored.last_seqs(_expected_on(batch))
        expected = _values(blocks, EXPECTED_MSG_ID)
        self._last_id = stored.last_id(next_seq - 1, expected) if expected else ""
        self._room = self._filled(stored)
        self._last_messages = (
            stored.last_messages(pc.unique(batch.rows["subject"].combine_chunks()))
            if config.allow_msg_counter
            else {}
        )
        self._counters: dict[str, Counter] = {}
        self._counted: dict[int, tuple[bytes, bytes]] = {}

    def answer(self, asking: np.ndarray) -> Answers:
        count = self._batch.given.num_rows
        answers = Answers.plain(0, count)
        rows = np.flatnonzero(asking)
        texts = self._batch.given["headers"].take(pa.array(rows)).to_pylist()
        blocks = dict(zip(rows.tolist(), texts, strict=True))
        refusals = list[MessageRefusal]()
        for self._row in range(count):
            self._rollup = rollups.NONE
            try:
                original = self._original(blocks.get(self._row))
            except _RefusedMessage as refused:
                refusals.append(refused.refusal)
                continue
            answers.duplicates[self._row] = original is not None
            answers.seqs[self._row] = self._next_seq if original is None else original
            if original is None:
                answers.rollups[self._row] = self._rollup
                self._take_in()
        return replace(answers, counted=self._counted, refusals=refusals)

    def _original(self, block: bytes | None) -> int | None:
        """The sequence of the message that this one repeats; None: it is new and accepted."""
        self._raise(self._batch.early.refusal(self._row))
        if block:
            self._check_sequences(block)
        self._raise(self._batch.features.refusal(self._row))
        original = self._duplicate_of()
        if original is not None:
            return original
        if block:
            self._check_last_id(block)
            self._check_rollup(block)
        if self._batch.wanted[self._row]:
            self._raise(self._batch.late.refusal(self._row))
            if self._room is not None:
                self._check_room(self._room, block)
        if self._config.allow_msg_counter and block:
            self._count(block)
        return None

    def _check_sequences(self, block: bytes) -> None:
        subject = headers.lookup(block, EXPECTED_SUBJECT)
        expected = headers.lookup(block, EXPECTED_SUBJECT_SEQ)
        if expected:
            actual = self._last_of((subject or b"").decode(errors="replace"))
            self._expect(expected, actual)
        elif subject:
            self._refuse(
                f"its {EXPECTED_SUBJECT} is not used without {EXPECTED_SUBJECT_SEQ}", 10193
            )
        expected = headers.lookup(block, EXPECTED_LAST_SEQ)
        if expected:
            self._expect(expected, self._next_seq - 1)

    def _expect(self, expected: bytes, actual: int) -> None:
        # Compared as text: a number may have more digits than Python converts.
        if not expected.isdigit() or (expected.lstrip(b"0") or b"0") != str(actual).encode():
            self._refuse(f"wrong last sequence: {actual}", 10071)

    def _last_of(self, subject_filter: str) -> int:
        """The last sequence on the message's subject or on subjects that match a filter; 0 if nothing is stored."""
        if not subject_filter:
            return self._last_seqs.get(self._subjects[self._row], 0)
        hits = (seq for name, seq in self._last_seqs.items() if matches(subject_filter, name))
        return max(hits, default=0)

    def _duplicate_of(self) -> int | None:
        original = self._ids.get(self._msg_ids[self._row] or "")
        if original is None:
            return None
        seq, ts_ns = original
        is_recent = self._times[self._row] - ts_ns < self._config.duplicate_window_ns
        return seq if is_recent else None

    def _check_last_id(self, block: bytes) -> None:
        expected = headers.lookup(block, EXPECTED_MSG_ID)
        if expected and expected != self._last_id.encode():
            self._refuse(f"wrong last msg ID: {self._last_id}", 10070)

    def _check_rollup(self, block: bytes) -> None:
        rollup = (headers.lookup(block, headers.ROLLUP) or b"").lower()
        if not rollup:
            return
        if not self._config.allow_rollup_hdrs or self._config.deny_purge:
            self._refuse("rollup not permitted: allow_rollup_hdrs is off", 10111)
        if rollup not in _ROLLUPS:
            self._refuse("rollup value invalid: sub or all", 10111)
        self._rollup = _ROLLUPS[rollup]

    def _check_room(self, room: Room, block: bytes | None) -> None:
        config, subject, size = self._config, self._subjects[self._row], self._sizes[self._row]
        kept = room.kept.get(subject, deque())
        at_cap = 0 < config.max_msgs_per_subject <= len(kept)
        if at_cap and config.discard_new_per_subject and not headers.lookup(block, headers.ROLLUP):
            self._refuse("maximum messages per subject exceeded", 10077)
        if 0 < config.max_msgs <= room.count and not at_cap:
            self._refuse("maximum messages exceeded", 10077)
        replaces = at_cap and kept[0] >= size
        if 0 < config.max_bytes < room.bytes + size and not replaces:
            self._refuse("maximum bytes exceeded", 10077)

    def _count(self, block: bytes) -> None:
        subject = self._subjects[self._row]
        try:
            if subject not in self._counters:
                self._counters[subject] = Counter(*self._last_messages.get(subject, (None, None)))
            headings, payload = self._counters[subject].with_increment(block)
        except UncountableError as error:
            self._refuse(error.reason, error.code)
        if 0 < self._config.max_msg_size < len(headings) + len(payload):
            text = f"its total exceeds max_msg_size, {self._config.max_msg_size:,} bytes"
            self._refuse(text, 10054)
        self._counters[subject].add(block)
        self._counted[self._row] = (headings, payload)

    def _take_in(self) -> None:
        subject, msg_id = self._subjects[self._row], self._msg_ids[self._row]
        if msg_id is not None and self._config.duplicate_window_ns:
            self._ids[msg_id] = (self._next_seq, self._times[self._row])
        self._last_id = msg_id or ""
        if self._rollup == rollups.EVERYTHING:
            self._last_seqs.clear()
        elif self._rollup == rollups.SUBJECT:
            self._last_seqs.pop(subject, None)
        if self._room is not None:
            self._room.roll_up(subject, self._rollup)
        if self._batch.wanted[self._row]:
            self._store(subject)
        self._next_seq += 1

    def _store(self, subject: str) -> None:
        self._last_seqs[subject] = self._next_seq
        if self._room is not None:
            self._room.take(subject, self._sizes[self._row])

    def _known_ids(self, stored: StreamState) -> dict[str, tuple[int, int]]:
        ids = self._batch.rows["msg_id"].combine_chunks()
        if not self._config.duplicate_window_ns or ids.null_count == len(ids):
            return {}
        oldest = pc.min(self._batch.rows["ts_ns"].filter(ids.is_valid())).as_py()
        return dict(
            stored.ids(pc.unique(ids.drop_null()), oldest - self._config.duplicate_window_ns)
        )

    def _filled(self, stored: StreamState) -> Room | None:
        config = self._config
        if not _is_counted(config):
            return None
        cap = config.max_msgs_per_subject if config.max_msgs_per_subject > 0 else None
        if cap is None and _holds(self._batch.given["headers"], headers.ROLLUP):
            cap = UNCAPPED
        arriving = pc.unique(self._batch.rows["subject"].combine_chunks())
        return stored.room(cap, arriving, sizes=config.max_bytes > 0)

    def _raise(self, refusal: MessageRefusal | None) -> None:
        if refusal:
            raise _RefusedMessage(refusal)

    def _refuse(self, reason: str, code: int | None = None) -> NoReturn:
        raise _RefusedMessage(MessageRefusal(self._row, reason, code))


def _expected_on(batch: Batch) -> set[str]:
    """The subjects and filters for which a batch expects certain last sequences."""
    blocks = batch.given["headers"]
    asking = pc.fill_null(pc.match_substring(blocks, f"\r\n{EXPECTED_SUBJECT_SEQ}:"), False)  # noqa: FBT003
    named = set(filter(None, _values(blocks, EXPECTED_SUBJECT)))
    return named | set(batch.rows["subject"].filter(asking).to_pylist())


def _holds(blocks: pa.ChunkedArray, name: str) -> bool:
    return bool(pc.any(pc.match_substring(blocks, f"\r\n{name}:")).as_py())


def _values(blocks: pa.ChunkedArray, name: str) -> list[str]:
    """The values of a header in the header blocks that contain it."""
    holding = blocks.filter(pc.match_substring(blocks, f"\r\n{name}:")).to_pylist()
    return [(headers.lookup(block, name) or b"").decode(errors="replace") for block in holding]
