"""Taking messages from one origin, at one version of it: part by part, each committed with its position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.position import Position
from retention.core import message_rows
from retention.core.wording import counted
from retention.datafile.segment_writer import PARTITION, Staged, stage_rows, with_sequences
from retention.dialects.jetstream import JetStream
from retention.ingest.append import AppendAttempt, Appended, appending
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.mirror.admission import Admission, Stalled
from retention.ingest.mirror.origin import MirrorOrigin, MirrorTally, OriginView
from retention.ingest.mirror.resume import counters_of, first_of, next_seq_of, position_of
from retention.ingest.mirror.rollup_scan import ReplacedMessages
from retention.ingest.progress import naming_progress
from retention.ingest.recorded_commit import Removal, recorded_removal
from retention.ingest.rollup import plan_older
from retention.ingest.stream_state import StreamState
from retention.ingest.subject_transform import mapped, transform_subjects
from retention.layout.ttl_clamp import clamp_ttls

_STREAM_SOURCE = "Nats-Stream-Source"
_FIRST_LINE = b"NATS/1.0\r\n"
_ONLY_FIRST_LINE = b"NATS/1.0\r\n\r\n"
_OF_MIRRORS = ("Nats-Expected-", "Nats-Batch-")
_OF_SOURCES = (*_OF_MIRRORS, f"{_STREAM_SOURCE}:")
"""Prefixes of the header lines that a mirror and a source strip."""


@dataclass(frozen=True)
class PullResult:
    """The result for one origin in one run."""

    origin: str
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    """Messages that were read and not stored: not wanted by the filters, repeated by id, or replaced."""
    first_seq: int | None = None
    """The first sequence assigned to a message of the origin; None: none was stored."""
    last_seq: int | None = None
    missing: int = 0
    """Sequences after the last position that the origin removed before they were taken."""
    rolled_up: int = 0
    """Messages of the stream that the origin's roll-ups replaced."""
    position: int = 0
    """The last sequence of the origin that was read."""
    stalled: str | None = None
    """The reason why the next message of the origin is refused."""


@dataclass(frozen=True)
class _Part:
    """The content of one commit."""

    view: OriginView
    until: int
    run: tuple[str, int] | None
    """Name and instant under which the part's roll-ups are recorded; None: it has no effective ones."""


class Pull:
    """Taking from one origin, at one version of it."""

    def __init__(
        self, target: OpenedStream, origin: MirrorOrigin, as_of_ns: int, part_bytes: int
    ) -> None:
        self._target = target
        self._origin = origin
        self._as_of_ns = as_of_ns
        self._part_bytes = part_bytes
        self._is_mirror = origin.kind == "mirror"
        self._tally = MirrorTally()

    def run(self) -> PullResult:
        view = self._origin.look()
        name = self._target.name
        done = position_of(name, self._origin, view, counters_of(self._target))
        taken = PullResult(self._origin.source.name, position=done or 0)
        if view is None:
            return taken
        first = first_of(name, view, done, next_seq_of(self._target))
        if done is not None:
            there = view.first_from(first) or view.last_seq + 1
            taken = replace(taken, missing=there - first)
        while taken.position < view.last_seq and taken.stalled is None:
            with naming_progress(partial(_progress, taken)):
                taken = self._part(view, max(first, taken.position + 1), taken)
        return taken

    def _part(self, view: OriginView, first: int, taken: PullResult) -> PullResult:
        """Commit the next part, or less of it if a message is refused."""
        until, stalled = view.part_end(first, self._part_bytes), None
        while until > taken.position:
            try:
                appended = self._append(view, taken.position + 1, until)
            except Stalled as stopped:
                until, stalled = stopped.seq - 1, self._sentence(stopped)
                continue
            looked = 0 if appended.duplicate else self._tally.looked
            return replace(
                taken,
                messages=taken.messages + appended.messages,
                bytes=taken.bytes + appended.bytes,
                first_seq=taken.first_seq or (appended.first_seq if appended.messages else None),
                last_seq=appended.last_seq if appended.messages else taken.last_seq,
                skipped=taken.skipped + looked - appended.messages,
                rolled_up=taken.rolled_up + appended.removed,
                position=until,
                stalled=stalled,
            )
        return replace(taken, stalled=stalled)

    def _append(self, view: OriginView, first: int, until: int) -> Appended:
        config = self._target.config
        may_roll_up = config.allow_rollup_hdrs and not config.deny_purge
        identity = BatchIdentity(self._origin.writer, until, view.table)
        with ExitStack() as held:
            run = None
            if may_roll_up and view.rolls_up(first, until):
                run = (held.enter_context(recorded_removal(self._target)), self._as_of_ns)
            part = _Part(view, until, run)
            append = held.enter_context(appending(self._target, identity))
            for attempt in append.attempts():
                staged, removal = self._staged(attempt, part)
                if self._is_mirror:
                    staged = replace(staged, next_seq={PARTITION: until + 1})
                append.commit(staged, removal)
        return append.done

    def _staged(self, attempt: AppendAttempt, part: _Part) -> tuple[Staged, Removal | None]:
        position, staging = attempt.position, attempt.staging
        ends = JetStream.of(self._target.config).ends(position.tail(PARTITION))
        rows = self._rows(position, part)
        if part.run is None:
            return stage_rows(staging, rows, ends), None
        replaced = ReplacedMessages(rows)
        staged = stage_rows(staging, map(replaced.left, self._rows(position, part)), ends)
        return staged, plan_older(self._target, position, replaced.stored(), part.run)

    def _rows(self, position: Position, part: _Part) -> Iterator[pa.Table]:
        """The rows to store, shape `FILE_COLUMNS`, after the stream's end at this position."""
        target, view = self._target, part.view
        done = position_of(target.name, self._origin, view, position.snapshot.counters)
        first = first_of(target.name, view, done, position.next_seq)
        stored = StreamState.at(target, position, self._as_of_ns)
        admission = Admission(target.config, stored, self._as_of_ns)
        self._tally = MirrorTally()
        rows = (
            admission.admit(raw["seq"].to_numpy(), self._carried(view, raw))
            for raw in view.rows(first, part.until, self._tally)
        )
        return rows if self._is_mirror else with_sequences(rows, position.next_seq)

    def _carried(self, view: OriginView, raw: pa.Table) -> pa.Table:
        if self._is_mirror:
            return _mirrored(view, self._target.config, raw)
        return _sourced(view, self._target.config, raw, self._as_of_ns)

    def _sentence(self, stopped: Stalled) -> str:
        refusal = stopped.refusal
        return (
            f"sequence {stopped.seq:,} of {self._origin.source.name} and all later ones were not copied "
            f"(server error {refusal.code}): {refusal.reason}"
        )


def _progress(taken: PullResult) -> str:
    """The parts stored before another one; empty: none was."""
    if not taken.messages:
        return ""
    came = (
        f"{counted(taken.messages, 'message')} up to sequence {taken.position:,} of {taken.origin}"
    )
    return f"{came} were copied before this part, and are kept"


def _mirrored(view: OriginView, config: StreamConfig, raw: pa.Table) -> pa.Table:
    """Messages as a mirror keeps them, shape `FILE_COLUMNS`: sequence and time are unchanged."""
    stored = {
        "seq": raw["seq"],
        "subject": _renamed(raw["subject"], view, config),
        "headers": _without(raw["headers"], _OF_MIRRORS),
        "payload": raw["payload"],
        "ts_ns": raw["ts_ns"],
        "origin_ts_ns": raw["origin_ts_ns"],
    }
    return message_rows.complete_rows(pa.table(stored), config.storage)


def _sourced(view: OriginView, config: StreamConfig, raw: pa.Table, as_of_ns: int) -> pa.Table:
    """Messages as a stream with sources stores them, without `seq`: stored anew, with their origin in a header."""
    blocks = _with_source(_without(raw["headers"], _OF_SOURCES), raw, view)
    now = pa.repeat(pa.scalar(as_of_ns, pa.int64()), raw.num_rows)
    stored = {
        "subject": _renamed(raw["subject"], view, config),
        "headers": clamp_ttls(blocks, config),
        "payload": raw["payload"],
        "ts_ns": pa.chunked_array([now]),
        "origin_ts_ns": raw["ts_ns"],
    }
    return message_rows.complete_rows(pa.table(stored), config.storage)


def _renamed(subjects: pa.ChunkedArray, view: OriginView, config: StreamConfig) -> pa.ChunkedArray:
    """Subjects renamed by the origin's transforms first, then by the stream's own."""
    source = view.origin.source
    return transform_subjects(mapped(config.name, subjects, source.subject_transforms), config)


def _without(blocks: pa.ChunkedArray, beginnings: tuple[str, ...]) -> pa.ChunkedArray:
    """Header blocks without the lines that have a prefix; null where none remains."""
    names = "|".join(map(re.escape, beginnings))
    left = pc.replace_substring_regex(blocks, rf"(?s)\r\n(?:(?:{names}).*?\r\n)+", "\r\n")
    return pc.if_else(pc.equal(left, _ONLY_FIRST_LINE), pa.scalar(None, pa.binary()), left)


def _with_source(blocks: pa.ChunkedArray, raw: pa.Table, view: OriginView) -> pa.ChunkedArray:
    """Blocks with one more line: stream, sequence, filters, destinations, original subject, identity of that stream."""
    filters, destinations = view.origin.selection
    before = pc.replace_substring_regex(pc.fill_null(blocks, _FIRST_LINE), r"\r\n\r\n\z", "\r\n")
    return pc.binary_join_element_wise(
        before,
        f"{_STREAM_SOURCE}: {view.origin.source.name} ".encode(),
        raw["seq"].cast(pa.string()).cast(pa.binary()),
        f" {filters} {destinations} ".encode(),
        raw["subject"].cast(pa.binary()),
        f" {view.identity}\r\n\r\n".encode(),
        b"",
    )
