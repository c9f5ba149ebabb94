"""Fold of an ack log into the states of consumers, by the server's accounting, in a few passes over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_events import AckEvents, AckLines, read_events
from retention.consumers.ack_floor import floor_of_all, floor_of_explicit, last_delivery
from retention.consumers.ack_gaps import Numbers, UnseenRuns, gaps_of, runs_up_to
from retention.consumers.ack_subject import NAK, SETTLING, UNKNOWN
from retention.consumers.pending import Settled, pending_after, redelivered_after
from retention.consumers.state import UNSEEN, ConsumerState, DeliveryPosition
from retention.errors import RefusedError
from retention.storage.parallel import in_threads

_THREADS = 2
_MOST_SHORT = 1 << 15
"""The number of consumers up to which two bytes number them: NumPy sorts these by their digits, in linear time."""


@dataclass(frozen=True)
class FoldInput:
    """One consumer before a log is folded in."""

    ack_policy: str
    """The server's name: none, all, explicit or flow_control."""
    state: ConsumerState
    matching: Numbers | None = None
    """The stream's sequences that the consumer's filters match, ascending; None: any may."""


@dataclass(frozen=True)
class FoldReport:
    """Counts of a log's lines about one consumer, and its gaps."""

    lines: int = 0
    settling: int = 0
    """Acks, terms and requests for the next message."""
    naks: int = 0
    unknown_bodies: int = 0
    """Unknown bodies; the server ignores them."""
    beyond: int = 0
    """Acks above the last sequence of the stream, or below 1; ignored."""
    undelivered: int = 0
    """Acks of messages not yet delivered, by the log or by the state; ignored."""
    missing: pa.Table = field(default_factory=UNSEEN.empty_table)
    """Gaps in the consumer's sequence (ADR-15), shape `UNSEEN`: deliveries that neither log nor state reports."""

    def then(self, state: ConsumerState, later: FoldReport) -> FoldReport:
        """The combined report of two pieces of a log.

        Args:
            state: the state between the pieces; the later piece knows the gaps in it.
            later: the report of the later piece.
        """
        known = pc.is_in(self.missing["first"], state.unseen["first"].combine_chunks())
        dropped = self.missing.filter(pc.invert(known))
        missing = pa.concat_tables([dropped, later.missing]).sort_by("first")
        counts = {
            count.name: getattr(self, count.name) + getattr(later, count.name)
            for count in fields(self)
            if count.name != "missing"
        }
        return FoldReport(**counts, missing=missing)


@dataclass(frozen=True)
class FoldResult:
    """A stream's consumers after a log, and a report for each."""

    states: Mapping[str, ConsumerState]
    reports: Mapping[str, FoldReport]
    """Report of every consumer that the log names."""
    unknown_consumers: Mapping[str, int]
    """Name → number of lines; the stream has no such consumer."""
    other_streams: Mapping[str, int]
    """Name of another stream → number of lines about it."""


def fold_log(
    consumers: Mapping[str, FoldInput],
    acks: pa.Table,
    *,
    stream: str,
    last_seq: int,
) -> FoldResult:
    """Fold a log of acks into the states of a stream's consumers.

    Each line counts once: `acks` must not contain lines folded before. The resulting states do not depend on how a log
    is cut into folds, except for the consumer sequence of a floor where lines that report deliveries are missing: it is
    a guess then, and no message is released by it.

    Args:
        consumers: the stream's consumers, by name.
        acks: shape `ACKS`, in the log's order.
        stream: the name of the stream.
        last_seq: the last sequence that the stream assigned.

    Raises:
        RefusedError: so much of a consumer's log is missing that too many messages would have to be kept.
    """
    ours, others = _divided(acks, pc.equal(acks["stream"], stream))
    names = pc.dictionary_encode(ours["consumer"]).combine_chunks()
    lines, starts = _by_consumer(ours, names)
    lines_of = {
        name: lines.take(slice(starts[code], starts[code + 1]))
        for code, name in enumerate(names.dictionary.to_pylist())
    }
    unknown = {
        name: len(log_lines) for name, log_lines in lines_of.items() if name not in consumers
    }
    known = [name for name in lines_of if name in consumers]

    def folded(name: str) -> tuple[ConsumerState, FoldReport]:
        try:
            return fold(consumers[name], lines_of[name], last_seq)
        except RefusedError as error:
            raise RefusedError(f"consumer {name} of {stream}: {error}") from error

    after = dict(zip(known, in_threads(folded, known, _THREADS), strict=True))
    states = {name: before.state for name, before in consumers.items()}
    states |= {name: state for name, (state, _) in after.items()}
    reports = {name: report for name, (_, report) in after.items()}
    return FoldResult(states, reports, unknown, counts_of(others["stream"]))


def fold(before: FoldInput, log_lines: AckLines, last_seq: int) -> tuple[ConsumerState, FoldReport]:
    """Fold one consumer's lines into its state.

    A line reports the delivery that its reply names, and may settle it. A reply names no delivery if its sequence is
    above the last delivery and its consumer sequence was another message's; the server ignores it.

    Args:
        before: the consumer.
        log_lines: the lines about it, in the log's order.
        last_seq: the last sequence that the stream assigned.
    """
    state = before.state
    within = (log_lines.seq >= 1) & (log_lines.seq <= last_seq) & (log_lines.consumer_seq >= 1)
    lines = log_lines.take(within & (log_lines.deliveries >= 1))
    heard = read_events(state, lines, runs_up_to(state, int(lines.consumer_seq.max(initial=0))))
    delivery_lines = lines.take(heard.learned)
    delivered = last_delivery(state.delivered, delivery_lines)
    unseen = _still_unseen(runs_up_to(state, delivered.consumer_seq), delivery_lines)
    report = FoldReport(
        lines=len(log_lines),
        settling=int(np.isin(log_lines.verb, SETTLING).sum()),
        naks=int((log_lines.verb == NAK).sum()),
        unknown_bodies=int((log_lines.verb == UNKNOWN).sum()),
        beyond=len(log_lines) - len(lines),
        undelivered=int(heard.ignored.sum()),
        missing=unseen.table(),
    )
    if before.ack_policy == "none":
        kept = {name: getattr(state, name) for name in ("lasts", "until", "last_active_ns")}
        return ConsumerState(delivered, delivered, **kept), report
    settled, floor = _settlement(before.ack_policy, heard)
    gaps = gaps_of(unseen, delivered.stream_seq, before.matching)
    waiting = pending_after(state, delivery_lines, gaps, settled)
    if floor is None:
        floor = floor_of_explicit(heard, delivered, waiting, unseen)
    after = replace(
        state,
        delivered=delivered,
        ack_floor=floor,
        pending=waiting.table(),
        redelivered=redelivered_after(state, delivery_lines, waiting, settled),
        unseen=unseen.lasting(floor.stream_seq).table(),
    )
    return after, report


def _divided(acks: pa.Table, mask: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    """The lines in a mask and the others; no copy if there are no others."""
    if pc.all(mask, min_count=0).as_py():
        return acks, acks.slice(0, 0)
    return acks.filter(mask), acks.filter(pc.invert(mask))


def _by_consumer(acks: pa.Table, names: pa.DictionaryArray) -> tuple[AckLines, Numbers]:
    """The lines sorted by consumer, and the index at which each consumer's lines begin."""
    codes = names.indices.to_numpy()
    if len(names.dictionary) <= _MOST_SHORT:
        codes = codes.astype(np.int16)
    order = np.argsort(codes, kind="stable")
    columns = (acks[name].to_numpy()[order] for name in AckLines.__dataclass_fields__)
    return AckLines(*columns), np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))


def counts_of(names: pa.ChunkedArray) -> dict[str, int]:
    """The number of times that each name occurs."""
    counted = pc.value_counts(names)
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def _still_unseen(unseen: UnseenRuns, delivery_lines: AckLines) -> UnseenRuns:
    """The unseen deliveries that remain once the lines that report deliveries are known."""
    first = delivery_lines.take(delivery_lines.deliveries == 1)
    first = first.take(unseen.admit(first.consumer_seq, first.seq))
    first = first.take(np.argsort(first.consumer_seq, kind="stable"))
    highest = np.maximum.accumulate(np.append(0, first.seq))[:-1]
    first = first.take(first.seq > highest)
    reported = np.sort(delivery_lines.consumer_seq, kind="stable")
    reported = reported[np.diff(reported, prepend=-1) > 0]
    return unseen.split(reported, first.consumer_seq, first.seq)


def _settlement(ack_policy: str, heard: AckEvents) -> tuple[Settled, DeliveryPosition | None]:
    """The messages that the lines settle; and the floor, if the ack policy alone decides it (all but `explicit`)."""
    acks = heard.lines.take(heard.settles)
    if ack_policy == "explicit":
        return (lambda seqs: np.isin(seqs, acks.seq)), None
    floor = floor_of_all(heard.state.ack_floor, acks)
    return (lambda seqs: seqs <= floor.stream_seq), floor
