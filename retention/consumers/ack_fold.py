"""From a consumer's state and what a log says of it to its next state, as the server keeps books, in a few passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_events import Heard, Lines, listen
from retention.consumers.ack_floor import floor_of_all, floor_of_explicit, last_delivery
from retention.consumers.ack_gaps import Numbers, Runs, gaps_of, runs_up_to
from retention.consumers.ack_subject import NAK, SETTLING, UNKNOWN
from retention.consumers.pending import Settled, redelivered_after, waiting_after
from retention.consumers.state import UNSEEN, ConsumerState, Position
from retention.errors import RefusedError


@dataclass(frozen=True)
class Before:
    """One consumer before a log."""

    ack_policy: str
    """The server's word: none, all, explicit or flow_control."""
    state: ConsumerState
    matching: Numbers | None = None
    """The stream's sequences that the consumer's filters match, ascending; None: any may."""


@dataclass(frozen=True)
class Report:
    """What a log said of one consumer, in lines."""

    lines: int = 0
    settling: int = 0
    """Acks, terms and asks for the next one."""
    naks: int = 0
    unknown_bodies: int = 0
    """Bodies that mean nothing; the server does nothing for them."""
    beyond: int = 0
    """Acks above the last sequence of the stream, or below 1; ignored."""
    undelivered: int = 0
    """Acks for what had not been delivered, by the log or by the state; ignored."""
    missing: pa.Table = field(default_factory=UNSEEN.empty_table)
    """Gaps in the consumer's sequence (ADR-15), shape `UNSEEN`: deliveries that neither log nor state speak of."""

    def then(self, state: ConsumerState, later: Report) -> Report:
        """What two pieces of a log said together.

        Args:
            state: between them; the later piece knows of the gaps that it keeps.
            later: what the piece after it said.
        """
        known = pc.is_in(self.missing["first"], state.unseen["first"].combine_chunks())
        dropped = self.missing.filter(pc.invert(known))
        missing = pa.concat_tables([dropped, later.missing]).sort_by("first")
        counts = {
            one.name: getattr(self, one.name) + getattr(later, one.name)
            for one in fields(self)
            if one.name != "missing"
        }
        return Report(**counts, missing=missing)


@dataclass(frozen=True)
class Folded:
    """What a log makes of the consumers of a stream."""

    states: Mapping[str, ConsumerState]
    reports: Mapping[str, Report]
    """Of every consumer that the log speaks of."""
    unknown_consumers: Mapping[str, int]
    """Consumer → lines that speak of it; the stream has no such consumer."""
    other_streams: Mapping[str, int]
    """Stream → lines that speak of it; the log is another's there."""


def fold_log(
    consumers: Mapping[str, Before],
    acks: pa.Table,
    *,
    stream: str,
    last_seq: int,
) -> Folded:
    """Fold a log of acks into the states of a stream's consumers.

    Each line counts once: what was folded before must not be in `acks`. However a log is cut into folds, the states
    come out the same, but for the consumer sequence of a floor where lines that tell of deliveries are missing: it is
    guessed then, and nothing is let go by it.

    Args:
        consumers: by name.
        acks: shape `ACKS`, in the log's order.
        stream: whose consumers they are.
        last_seq: the last sequence that the stream gave out.

    Raises:
        RefusedError: so much of a consumer's log is missing that too many messages would have to be held.
    """
    of_stream = pc.equal(acks["stream"], stream)
    ours = acks.filter(of_stream)
    names = pc.dictionary_encode(ours["consumer"]).combine_chunks()
    lines, starts = _by_consumer(ours, names)
    states = {name: before.state for name, before in consumers.items()}
    reports, unknown = {}, {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        said = lines.take(slice(starts[code], starts[code + 1]))
        if name in consumers:
            try:
                states[name], reports[name] = fold(consumers[name], said, last_seq)
            except RefusedError as error:
                raise RefusedError(f"consumer {name} of {stream}: {error}") from error
        else:
            unknown[name] = len(said)
    return Folded(states, reports, unknown, _counts(acks.filter(pc.invert(of_stream))["stream"]))


def fold(before: Before, said: Lines, last_seq: int) -> tuple[ConsumerState, Report]:
    """Fold one consumer's lines into its state.

    A line tells of the delivery that its reply names, and settles it or not. A reply speaks of nothing delivered where
    its sequence is above the last delivery and its consumer sequence was another message's; the server ignores it.

    Args:
        before: the consumer.
        said: the lines, in the log's order.
        last_seq: the last sequence that the stream gave out.
    """
    state = before.state
    within = (said.seq >= 1) & (said.seq <= last_seq) & (said.consumer_seq >= 1)
    lines = said.take(within & (said.deliveries >= 1))
    heard = listen(state, lines, runs_up_to(state, int(lines.consumer_seq.max(initial=0))))
    told = lines.take(heard.learned)
    delivered = last_delivery(state.delivered, told)
    unseen = _still_unseen(runs_up_to(state, delivered.consumer_seq), told)
    report = Report(
        lines=len(said),
        settling=int(np.isin(said.verb, SETTLING).sum()),
        naks=int((said.verb == NAK).sum()),
        unknown_bodies=int((said.verb == UNKNOWN).sum()),
        beyond=len(said) - len(lines),
        undelivered=int(heard.ignored.sum()),
        missing=unseen.table(),
    )
    if before.ack_policy == "none":
        kept = {name: getattr(state, name) for name in ("lasts", "until", "last_active_ns")}
        return ConsumerState(delivered, delivered, **kept), report
    settled, floor = _settlement(before.ack_policy, heard)
    gaps = gaps_of(unseen, delivered.stream_seq, before.matching)
    waiting = waiting_after(state, told, gaps, settled)
    if floor is None:
        floor = floor_of_explicit(heard, delivered, waiting, unseen)
    after = replace(
        state,
        delivered=delivered,
        ack_floor=floor,
        pending=waiting.table(),
        redelivered=redelivered_after(state, told, waiting, settled),
        unseen=unseen.lasting(floor.stream_seq).table(),
    )
    return after, report


def _by_consumer(acks: pa.Table, names: pa.DictionaryArray) -> tuple[Lines, Numbers]:
    """The lines consumer by consumer, and where each one's begin."""
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    columns = (acks[name].to_numpy()[order] for name in Lines.__dataclass_fields__)
    return Lines(*columns), np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))


def _counts(names: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(names)
    return {one["values"]: one["counts"] for one in counted.to_pylist()}


def _still_unseen(unseen: Runs, told: Lines) -> Runs:
    """What is left of the unseen deliveries once some lines told of theirs."""
    first = told.take(told.deliveries == 1)
    first = first.take(unseen.admit(first.consumer_seq, first.seq))
    first = first.take(np.argsort(first.consumer_seq, kind="stable"))
    highest = np.maximum.accumulate(np.append(0, first.seq))[:-1]
    first = first.take(first.seq > highest)
    seen = np.sort(told.consumer_seq, kind="stable")
    seen = seen[np.diff(seen, prepend=-1) > 0]
    return unseen.split(seen, first.consumer_seq, first.seq)


def _settlement(ack_policy: str, heard: Heard) -> tuple[Settled, Position | None]:
    """What the lines settle, and the floor where it alone decides that."""
    acks = heard.lines.take(heard.settles)
    if ack_policy == "explicit":
        return (lambda seqs: np.isin(seqs, acks.seq)), None
    floor = floor_of_all(heard.state.ack_floor, acks)
    return (lambda seqs: seqs <= floor.stream_seq), floor
