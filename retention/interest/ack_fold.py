"""Fold of ack logs into the consumers of a stream: each line once, in pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_fold import FoldInput, FoldReport, FoldResult, fold_log
from retention.consumers.ack_gaps import Numbers
from retention.consumers.ack_subject import ACKS, Malformed, merge_malformed
from retention.consumers.expiry import mark_used
from retention.consumers.state import ConsumerState, contradictions
from retention.context.context import OpenedStream
from retention.context.dropped import refuse_dropped
from retention.context.position import next_seq
from retention.core.display import Displayed
from retention.core.inventory import Inventory
from retention.core.labels import labelled, on_stream
from retention.core.wording import counted
from retention.engine_port import Engine, GroupsRows
from retention.engines.select import Engines
from retention.errors import BusyError, RefusedError, UsageError
from retention.formats.ack.log import (
    TAIL_LINES,
    AckLog,
    LogSlice,
    ParsedAcks,
    digest_of_tail,
    last_lines,
    parse_slice,
    tail_digest,
)
from retention.interest.ack_tasks import KEYED, ConsumerFold, ReadAcks, read_acks
from retention.interest.edit import edit_declared
from retention.interest.interest import interest_of, matching_seqs
from retention.storage.places import spellings
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable

_ROWS, _TAIL = "rows", "tail"
"""Keys of a position in a log: the number of lines before it, and a digest of the last ones."""


PIECE_ROWS = 2_000_000
"""Lines that are folded together: some hundred bytes of memory each."""


@dataclass(frozen=True, repr=False)
class FoldedLog(Displayed):
    """Result of folding one log; counts are lines."""

    stream: str
    log: str
    rows: int
    """Lines of the log."""
    before: int
    """Lines folded into every consumer before; the counts below are of the other lines."""
    consumers: Mapping[str, FoldReport]
    """Report of every consumer that the lines name."""
    malformed: Sequence[Malformed]
    unknown_consumers: Mapping[str, int]
    """Name → number of lines; the stream has no such consumer."""
    other_streams: Mapping[str, int]


@on_stream
@labelled(step="fold acks")
def fold_logs(opened: OpenedStream, logs: Sequence[AckLog], engines: Engines) -> list[FoldedLog]:
    """Fold ack logs, one after the other, into the consumers of a stream.

    The consumers that its configuration lists are created first. Each record keeps the position up to which a log is
    folded in: a log that has grown is folded from there on, the same log again changes nothing, and after a crash
    the next fold completes the remaining consumers.

    Raises:
        UsageError: a log cannot be read, or two have the same name.
        RefusedError: a log is not the one that was folded before, an ack is for a message that does not exist yet, or a
            state would contradict itself. Nothing of that log was folded.
        BusyError: a consumer was changed concurrently.
        DamagedError: a record or a file of the stream cannot be read.
    """
    if len({log.name for log in logs}) < len(logs):
        raise UsageError(
            f"{opened.name}: two logs have the same name; nothing was changed; name each log once"
        )
    refuse_dropped(opened, "publish to it, which creates a new table, before acks are folded in")
    edit_declared(opened)
    return [_fold(opened, log, engines) for log in logs]


def _fold(opened: OpenedStream, log: AckLog, engines: Engines) -> FoldedLog:
    inventory = opened.store.inventory(opened.store.snapshot())
    records = ConsumerTable(opened.root).live(inventory.counters)
    _refuse_another_log(opened.name, log, records)
    folding = _Folding(opened, inventory, log, records)
    slices = log.between(folding.before, log.rows)
    size = sum(log_slice.part.bytes for log_slice in slices)
    engine = engines.pick(opened.config.engine, size, opened.config.local_limit)
    if isinstance(engine, GroupsRows):
        folding.take_grouped(slices, engine)
    else:
        for share in _shares(slices):
            folding.take(_parsed(share, engine))
    folding.write()
    return folding.result()


@dataclass
class _Folding:
    """One log while it is folded into the consumers of a stream."""

    opened: OpenedStream
    inventory: Inventory
    log: AckLog
    records: Sequence[ConsumerRecord]
    malformed: list[Malformed] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    reports: dict[str, FoldReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start each consumer at its first unfolded line."""
        self.last_seq = next_seq(self.opened, self.inventory) - 1
        self.states = {record.consumer: record.state for record in self.records}
        self.begins = {record.consumer: _rows_folded(record, self.log) for record in self.records}
        self.before = min(self.begins.values(), default=0)
        self._tail = last_lines([])
        self._matching: dict[str, Numbers | None] = {}

    def take(self, piece: ParsedAcks) -> None:
        """Fold the next lines, each into the consumers that have not folded it yet."""
        self._refuse_beyond(piece.acks)
        self.malformed = merge_malformed([*self.malformed, *piece.malformed])
        self._tail = last_lines([self._tail, piece.tail])
        rows = piece.acks["row"].to_numpy()
        for begin in sorted({self.before, *self.begins.values()}):
            acks = piece.acks.slice(int(np.searchsorted(rows, begin)))
            consumers = self._consumers_at(begin, acks)
            folded = fold_log(consumers, acks, stream=self.opened.name, last_seq=self.last_seq)
            self._learn(folded)
            if begin == self.before:
                self._count(folded.unknown_consumers, folded.other_streams)

    def take_grouped(self, slices: Sequence[LogSlice], engine: GroupsRows) -> None:
        """Fold all lines, each consumer's in a task of its own; cut into the same pieces as in this process."""
        inputs = {record.consumer: self._input_of(record) for record in self.records}
        ends = [share[-1].row + share[-1].rows for share in _shares(slices)]
        tasks = [ReadAcks(lines, self.opened.name, self.begins, self.last_seq) for lines in slices]
        fold = ConsumerFold(self.opened.name, inputs, ends, self.last_seq)
        weights = [lines.part.bytes for lines in slices]
        asides, folded = engine.grouped(read_acks, fold, KEYED, tasks, weights)
        for part in asides:
            if part.beyond is not None:
                raise self._beyond(part.beyond)
            self.malformed = merge_malformed([*self.malformed, *part.malformed])
            self._count(part.unknown, part.others)
        for name, (state, report) in folded.items():
            self.states[name], self.reports[name] = state, report

    def write(self) -> None:
        """Write every consumer's record.

        Raises:
            RefusedError: a state would contradict itself; no record was written.
            BusyError: a consumer was changed concurrently.
        """
        for name, state in self.states.items():
            self._refuse_contradictions(name, state)
        place = self._end_position()
        table = ConsumerTable(self.opened.root, self.inventory.counters.generation)
        now_ns = self.opened.clock()
        for record in self.records:
            if self.begins[record.consumer] < self.log.rows:
                after = replace(
                    record,
                    state=self._state_at_end(record, now_ns),
                    folded={**record.folded, self.log.name: place},
                )
                table.update(record.consumer, partial(self._move, record, after))

    def _end_position(self) -> dict[str, object]:
        """The position after the last line of the log, as a consumer's record keeps it."""
        end = self.log.rows
        is_read = self._tail.num_rows == min(TAIL_LINES, end)
        tail = digest_of_tail(end, self._tail) if is_read else tail_digest(self.log, end)
        return {_ROWS: end, _TAIL: tail}

    def _state_at_end(self, record: ConsumerRecord, now_ns: int) -> ConsumerState:
        state = self.states[record.consumer]
        return mark_used(record.config, state, now_ns) if record.consumer in self.reports else state

    def result(self) -> FoldedLog:
        """Report the lines folded, consumer by consumer."""
        return FoldedLog(
            stream=self.opened.name,
            log=self.log.name,
            rows=self.log.rows,
            before=self.before,
            consumers=dict(sorted(self.reports.items())),
            malformed=self.malformed,
            unknown_consumers=self.unknown,
            other_streams=self.others,
        )

    def _consumers_at(self, begin: int, acks: pa.Table) -> dict[str, FoldInput]:
        """The consumers that these lines name and that have folded exactly the lines before `begin`."""
        named = set(pc.unique(acks["consumer"]).to_pylist())
        return {
            record.consumer: self._input_of(record)
            for record in self.records
            if self.begins[record.consumer] == begin and record.consumer in named
        }

    def _input_of(self, record: ConsumerRecord) -> FoldInput:
        policy = record.config.get("ack_policy", "none")
        return FoldInput(policy, self.states[record.consumer], self._matching_of(record))

    def _matching_of(self, record: ConsumerRecord) -> Numbers | None:
        if record.consumer not in self._matching:
            interest = interest_of(record, self.opened.config.subjects)
            seqs = matching_seqs(self.opened, self.inventory, interest)
            self._matching[record.consumer] = seqs
        return self._matching[record.consumer]

    def _learn(self, folded: FoldResult) -> None:
        for name, report in folded.reports.items():
            known = self.reports.get(name)
            self.reports[name] = known.then(self.states[name], report) if known else report
        self.states |= folded.states

    def _count(self, unknown: Mapping[str, int], others: Mapping[str, int]) -> None:
        for name, lines in unknown.items():
            if name not in self.states:
                self.unknown[name] = self.unknown.get(name, 0) + lines
        for name, lines in others.items():
            self.others[name] = self.others.get(name, 0) + lines

    def _move(
        self, before: ConsumerRecord, after: ConsumerRecord, current: ConsumerRecord | None
    ) -> ConsumerRecord:
        if current is not None and _same(current, after):
            return current
        if current is None or not _same(current, before) or current.revision != before.revision:
            raise BusyError(
                f"{self.opened.name}: consumer {before.consumer} was changed while {self.log.name} was folded; the log "
                "is folded into the consumers before this one, but not into this one; run again"
            )
        return replace(current, state=after.state, folded=after.folded)

    def _refuse_beyond(self, acks: pa.Table) -> None:
        ours = pc.and_(
            pc.equal(acks["stream"], self.opened.name),
            pc.is_in(acks["consumer"], pa.array(self.states, pa.string())),
        )
        beyond = pc.index(pc.and_(ours, pc.greater(acks["seq"], self.last_seq)), True).as_py()
        if beyond >= 0:
            [line] = acks.slice(beyond, 1).to_pylist()
            raise self._beyond(line)

    def _beyond(self, line: Mapping[str, Any]) -> RefusedError:
        """The error for a line about a message that does not exist yet."""
        return RefusedError(
            f"{self.opened.name}: line {line['row'] + 1} of {self.log.name} is about message {line['seq']}, of "
            f"consumer {line['consumer']}, and the last one here is {self.last_seq}: the log is ahead of the "
            "stream; nothing was changed; append the messages first, then fold again"
        )

    def _refuse_contradictions(self, name: str, state: ConsumerState) -> None:
        faults = contradictions(state, self.last_seq)
        if faults:
            raise RefusedError(
                f"{self.opened.name}: with {self.log.name} the state of consumer {name} is impossible: "
                f"{'; '.join(faults)}; nothing was changed; import its state from the broker again, or delete that "
                "consumer"
            )


def _same(first: ConsumerRecord, second: ConsumerRecord) -> bool:
    return (first.state, first.folded, first.deleted) == (
        second.state,
        second.folded,
        second.deleted,
    )


def _parsed(share: Sequence[LogSlice], engine: Engine) -> ParsedAcks:
    """The lines of some slices, parsed by tasks, in order."""
    parsed = engine.map(parse_slice, share, [lines.part.bytes for lines in share])
    acks = pa.concat_tables([ACKS.empty_table(), *(piece.acks for piece in parsed)])
    malformed = merge_malformed(fault for piece in parsed for fault in piece.malformed)
    return ParsedAcks(acks, tuple(malformed), last_lines(piece.tail for piece in parsed))


def _shares(slices: Sequence[LogSlice]) -> Iterator[list[LogSlice]]:
    share: list[LogSlice] = []
    for log_slice in slices:
        if share and sum(taken.rows for taken in share) + log_slice.rows > PIECE_ROWS:
            yield share
            share = []
        share.append(log_slice)
    if share:
        yield share


def _rows_folded(record: ConsumerRecord, log: AckLog) -> int:
    """Number of lines of a log that are folded into a consumer."""
    place = _place(record, log)
    return 0 if place is None else int(place[_ROWS])


def _refuse_another_log(stream: str, log: AckLog, records: Sequence[ConsumerRecord]) -> None:
    """Refuse a log that does not begin as it did when it was last folded into one of the consumers.

    Raises:
        RefusedError: the log is shorter, or the last folded lines have changed.
    """
    tails: dict[int, str] = {}
    for record in records:
        place = _place(record, log)
        if place is None:
            continue
        rows = int(place[_ROWS])
        if rows > log.rows:
            wrong = f"it has {counted(log.rows, 'line')}, and {rows} of it are"
        elif place[_TAIL] != _tail_at(log, rows, tails):
            wrong = (
                f"its first {counted(rows, 'line is not what is', 'lines are not those that are')}"
            )
        else:
            continue
        raise RefusedError(
            f"{stream}: {log.name} is not the log that was folded before: {wrong} folded into consumer "
            f"{record.consumer} already, and a log only grows; nothing was changed; restore it, or give another log a "
            "name of its own"
        )


def _place(record: ConsumerRecord, log: AckLog) -> Mapping[str, Any] | None:
    # A log on an object store may have been folded under its other URI scheme.
    places = (record.folded.get(name) for name in spellings(log.name))
    return next((place for place in places if place is not None), None)


def _tail_at(log: AckLog, rows: int, known: dict[int, str]) -> str:
    if rows not in known:
        known[rows] = tail_digest(log, rows)
    return known[rows]
