"""Why one message stays or goes: one sentence, and the arithmetic behind it, rule by rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import Array, joined, spans_of
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.plan.build import reached, stop_of
from retention.plan.explain_consumers import held_for, needs_of
from retention.plan.explain_rules import IN_KEPT_SEGMENT, Facts, arithmetic, sentence
from retention.plan.remaining import shown
from retention.planners.consumer_protection import missing_of
from retention.planners.probe import read_span
from retention.planners.retention import Planning
from retention.planners.subject_shuffle import fetched
from retention.planners.table import plan_table
from retention.rules import RULES
from retention.rules.row_verdicts import STAYS, judge, settled


@dataclass(frozen=True)
class Explanation:
    """The fate of one message in one pass."""

    stream: str
    partition: int
    seq: int
    subject: str
    ts_ns: int
    size: int
    goes: bool
    rule: str | None
    """The rule that lets it go; None if it stays."""
    sentence: str
    arithmetic: tuple[str, ...]
    """One line for each rule of the policy, with the numbers that were compared."""

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return asdict(self) | {"arithmetic": list(self.arithmetic)}


@dataclass(frozen=True)
class Found:
    """A message, and where it lies."""

    span: int
    """Of those that no other interleaves with."""
    row: int
    """Its row number in `rows`."""
    rows: pa.Table
    """The narrow columns of the whole span, ascending by `seq`."""
    file_of_row: Array
    """For each row, its file's row number in the inventory."""
    newer_on_subject: int
    """Messages on its subject in later spans; 0 if the policy does not limit subjects."""


def explain(
    opened: OpenedStream, seq: int, as_of_ns: int, engines: Engines, partition: int = 0
) -> Explanation:
    """Explain one message, as a pass at `as_of_ns` would treat it.

    Raises:
        UsageError: no message with that sequence is in the stream.
        RefusedError, DamagedError: as planning.
    """
    if not opened.store.exists():
        raise UsageError(
            f"{opened.name}: the stream holds nothing yet, so there is no message {seq}"
        )
    seen = plan_table(opened, as_of_ns, engines, every_row=True).planning
    row, rows, file_of_row = find(opened, seen.inventory, (partition, seq))
    if seen.plan.policy.retention != "limits":
        told = _released(seen, partition, rows.slice(row, 1))
        if told is not None:
            return told
    return explanation(seen, _found(opened, seen, row, rows, file_of_row))


def _released(seen: Planning, partition: int, message: pa.Table) -> Explanation | None:
    """Explain a message that consumers let go; None: they do not, and limits judge it."""
    plan = seen.plan
    released, line = needs_of(message, plan.policy, seen.consumers.interests)
    if not released:
        return None
    [said] = message.to_pylist()
    goes = _is_planned(seen, partition, said["seq"])
    named = f"{plan.stream} {said['seq']:,} ({said['subject']})"
    return Explanation(
        stream=plan.stream,
        partition=partition,
        seq=said["seq"],
        subject=said["subject"],
        ts_ns=said["ts_ns"],
        size=said["size"],
        goes=goes,
        rule=plan.policy.retention if goes else None,
        sentence=f"{named} goes: {line}." if goes else f"{named} stays: {line}{IN_KEPT_SEGMENT}.",
        arithmetic=(line,),
    )


def explanation(seen: Planning, found: Found) -> Explanation:
    """Explain a message from everything that a plan was made from."""
    facts = _facts(seen, found)
    rule = None if facts.is_held else _rule(seen, found, facts)
    partition = int(joined(seen.decided.spans).partition[found.span])
    goes = rule is not None and _is_planned(seen, partition, facts.seq)
    policy, stream = seen.plan.policy, seen.plan.stream
    return Explanation(
        stream=stream,
        partition=partition,
        seq=facts.seq,
        subject=facts.subject,
        ts_ns=facts.ts_ns,
        size=facts.size,
        goes=goes,
        rule=rule if goes else None,
        sentence=sentence(stream, policy, facts, rule, goes=goes),
        arithmetic=arithmetic(policy, facts),
    )


def _found(
    opened: OpenedStream, seen: Planning, row: int, rows: pa.Table, file_of_row: Array
) -> Found:
    """A message that consumers leave, in the span of what they leave: a part of the one in which it is stored.

    Args:
        opened: the stream.
        seen: what its plan was made from.
        row: the message's row number in `rows`.
        rows: the narrow columns of the span in which it is stored.
        file_of_row: for each of them, its file's row number in the inventory.
    """
    spans, left, seq = joined(seen.decided.spans), seen.remaining, rows["seq"][row].as_py()
    place_of_file = np.full(left.inventory.files.num_rows, -1)
    place_of_file[left.numbers] = np.arange(len(left.numbers))
    places = place_of_file[file_of_row]
    span = int(spans.span_of_file[places[row]])
    first, end = (int(number) for number in spans.first_file[span : span + 2])
    inside = (first <= places) & (places < end)
    rows, places = shown(rows.filter(pa.array(inside)), places[inside], left.hidden(first, end))
    row = int(np.searchsorted(rows["seq"].to_numpy(), seq))
    newer = _newer_on_subject(opened, seen, end, rows["subject"][row].as_py())
    return Found(span, row, rows, places, newer)


def find(
    opened: OpenedStream, inventory: Inventory, place: tuple[int, int]
) -> tuple[int, pa.Table, Array]:
    """Find a message by its partition and sequence.

    Returns:
        Its row number in the narrow columns of the span in which it is stored, those, and for each of their rows its
        file's row number in the inventory.

    Raises:
        UsageError: no such message is in the stream.
    """
    (partition, seq), spans = place, spans_of(inventory.files)
    holds = (spans.partition == partition) & (spans.min_seq <= seq) & (seq <= spans.max_seq)
    for span in np.flatnonzero(holds):
        first, end = (int(number) for number in spans.first_file[span : span + 2])
        located = opened.store.data_files(inventory.files.slice(first, end - first))
        rows, file_of_row, _ = read_span(tuple(located))
        row = int(np.searchsorted(rows["seq"].to_numpy(), seq))
        if row < rows.num_rows and rows["seq"][row].as_py() == seq:
            return row, rows, file_of_row + first
    held = f"{spans.min_seq[0]:,} to {spans.max_seq[-1]:,}" if len(spans) else "none"
    raise UsageError(
        f"{opened.name}: there is no message {seq} (sequences held: {held}); it was never stored, or an earlier run "
        "or the broker removed it: `retention history` lists the runs"
    )


def _facts(seen: Planning, found: Found) -> Facts:
    spans, rows, row = joined(seen.decided.spans), found.rows, found.row
    message = rows.slice(row, 1).to_pylist()[0]
    same = pc.equal(rows["subject"], message["subject"]).to_numpy()
    scan_end = _scan_end(seen)
    return Facts(
        seq=message["seq"],
        subject=message["subject"],
        ts_ns=message["ts_ns"],
        size=message["size"],
        deadline_ns=message["deadline_ns"],
        newer=int(spans.messages[found.span + 1 :].sum()) + rows.num_rows - row - 1,
        bytes_with_newer=int(
            spans.bytes[found.span + 1 :].sum() + rows["size"].to_numpy()[row:].sum()
        ),
        newer_on_subject=int(same[row + 1 :].sum()) + found.newer_on_subject,
        as_of_ns=seen.plan.as_of_ns,
        scan_end=scan_end if scan_end is not None and scan_end < message["seq"] else None,
        marker=_marker_for(seen, message["seq"]),
        refused=message["seq"] in seen.refused,
        needs=_needs(seen, rows.slice(row, 1)),
        **_held(seen, rows.slice(row, 1)),
    )


def _held(seen: Planning, message: pa.Table) -> dict[str, Any]:
    """What the hold says of a message, and whether no limit may take it."""
    rule = seen.plan.policy.hold
    if rule is None or seen.protection is None:
        return {}
    covered, line = held_for(message, rule, seen.protection.hold, missing_of(rule, seen.consumers))
    return {"held": line, "is_held": covered and rule.action == "hold"}


def _needs(seen: Planning, message: pa.Table) -> str | None:
    if seen.plan.policy.retention == "limits":
        return None
    return needs_of(message, seen.plan.policy, seen.consumers.interests)[1]


def _marker_for(seen: Planning, seq: int) -> int | None:
    markers = seen.plan.markers
    stored: list[int] = markers.filter(pc.equal(markers["replaces"], seq))["seq"].to_pylist()
    return stored[0] if stored else None


def _newer_on_subject(opened: OpenedStream, seen: Planning, first_newer: int, subject: str) -> int:
    if seen.plan.policy.max_msgs_per_subject is None:
        return 0
    counts = seen.remaining.subject_counts(opened.store, first_newer)
    on_subject = counts.filter(pc.equal(counts["subject"], subject))
    return int(pc.sum(on_subject["messages"], min_count=0).as_py())


def _scan_end(seen: Planning) -> int | None:
    """The message at which the age scan ends; None if it never does, or does not run."""
    scan = seen.decided.scan
    if scan is None:
        return None
    stops = [answer.stop_seq for answer in seen.answers if answer.stop_seq is not None]
    if stops:
        return min(stops)
    return int(seen.decided.spans.min_seq[scan.reach - 1]) if _ends_by_metadata(seen) else None


def _ends_by_metadata(seen: Planning) -> bool:
    scan, spans = seen.decided.scan, seen.decided.spans
    if scan is None or not len(spans) or seen.decided.ask[scan.reach - 1]:
        return False
    return bool(scan.may_stop[scan.reach - 1])


def _rule(seen: Planning, found: Found, facts: Facts) -> str | None:
    """The first rule that lets the message go by itself, segments aside."""
    span_of_row = seen.decided.spans.span_of_file[found.file_of_row]
    span = int(span_of_row[found.row])
    for answer in seen.answers:
        if answer.span == span:
            return _answered(reached(answer, stop_of(seen.answers)), facts.seq)
    inside = span_of_row == span
    verdicts, _ = judge(found.rows.filter(pa.array(inside)), fetched(seen.decided.question(span)))
    row = int(inside[: found.row].sum())
    verdict = int(settled(verdicts, reached=facts.scan_end is None)[row])
    return None if verdict == STAYS else RULES[verdict]


def _answered(removed: pa.Table, seq: int) -> str | None:
    first, last = removed["first_seq"].to_numpy(), removed["last_seq"].to_numpy()
    inside = np.flatnonzero((first <= seq) & (seq <= last))
    return RULES[removed["rule"][int(inside[0])].as_py()] if len(inside) else None


def _is_planned(seen: Planning, partition: int, seq: int) -> bool:
    """Whether the plan removes the message: with `whole_segments` a rule alone is not enough."""
    if not seen.plan.policy.whole_segments:
        return True
    planned = seen.plan.files
    inside = (
        (planned["partition"].to_numpy() == partition)
        & (planned["min_seq"].to_numpy() <= seq)
        & (seq <= planned["max_seq"].to_numpy())
    )
    return bool(inside.any())
