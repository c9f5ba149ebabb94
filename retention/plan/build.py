"""Build a plan from verdicts: decisions from metadata and answers from probed rows, combined file by file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.row_numbers import rows_at
from retention.core.spans import Array, Spans
from retention.plan.actions import DROP, REWRITE, Actions
from retention.plan.cause_files import cause_of_files, cause_of_pass
from retention.plan.header import Header, Pins, SegmentCounts
from retention.plan.plan import Plan
from retention.plan.remaining import KeptFromRelease, RemainingMessages
from retention.plan.removed_ranges import RemovedRanges, ranges_of, settled_counts
from retention.plan.rule_rows import rule_rows
from retention.rules import RULES
from retention.rules.fold import Vetoed
from retention.rules.holds import LegalHolds
from retention.rules.requests import Request
from retention.rules.row_verdicts import Answer, stop_of
from retention.schemas.plan import PLANNED_FILES


@dataclass(frozen=True)
class ByMetadata:
    """Losses of spans decided by metadata, without the spans that need their rows."""

    spans: Spans
    whole: Array
    """A mask of spans to remove completely."""
    by_rule: Array
    """Messages that each rule removes from each span; shape (spans, rules)."""


@dataclass(frozen=True)
class FileLosses:
    """Losses per file: messages, bytes, messages by rule, and ranges of sequences."""

    messages: Array
    bytes: Array
    by_rule: Array
    """Shape (files, rules)."""
    ranges: RemovedRanges
    """`file` is a row number among those files."""

    def only(self, wanted: Array) -> FileLosses:
        """The losses of the files in `wanted`, a mask; zero for others."""
        return FileLosses(
            messages=np.where(wanted, self.messages, 0),
            bytes=np.where(wanted, self.bytes, 0),
            by_rule=np.where(wanted[:, None], self.by_rule, 0),
            ranges=self.ranges.only(wanted),
        )


def make_plan(
    left: RemainingMessages,
    policy: Policy,
    as_of_ns: int,
    vetoed: Vetoed,
) -> Plan:
    """Combine the releases of consumers, the decisions from metadata on the rest, and the answers from rows.

    Args:
        left: the stream, and the messages not released by consumers.
        policy: the stream's rules.
        as_of_ns: the pass's instant.
        vetoed: the pass over the remaining messages.
    """
    inventory, decided, answers = left.inventory, vetoed.decided, vetoed.answers
    stopped_at = stop_of(answers)
    known = ByMetadata(decided.spans, decided.whole(stopped_at), decided.by_rule(stopped_at))
    losses = _file_losses(left.files, known, _in_order(answers), stopped_at)
    losses = _with_released(left, policy, losses)
    cause = cause_of_pass(left, policy, decided, answers, losses.ranges)
    if policy.whole_segments:
        losses = losses.only(_sealed(inventory) & _in_spent_segments(inventory, losses))
    plan = _plan(inventory, policy, as_of_ns, losses, answers)
    header = replace(plan.header, read=plan.header.read + left.read)
    return replace(plan, header=header, cause=cause)


def make_removal(
    inventory: Inventory,
    policy: Policy,
    as_of_ns: int,
    vetoed: Vetoed,
    request: Request | None = None,
) -> Plan:
    """Build the plan of a request, or of a pass over a topic, which removes only whole segments.

    Args:
        inventory: the stream or topic.
        policy: its rules.
        as_of_ns: the instant of the removal.
        vetoed: the decision.
        request: the request; None: a pass.
    """
    decided, answers = vetoed.decided, vetoed.answers
    known = ByMetadata(decided.spans, decided.whole(None), decided.by_rule(None))
    losses = _file_losses(inventory.files, known, _in_order(answers), None)
    if policy.topic is not None:
        losses = losses.only(_in_spent_segments(inventory, losses))
    plan = _plan(inventory, policy, as_of_ns, losses, answers)
    return replace(plan, header=replace(plan.header, request=request))


def under_holds(
    plan: Plan, holds: LegalHolds, vetoed: Vetoed, kept: KeptFromRelease | None = None
) -> Plan:
    """A plan with the legal holds that it is based on, and the messages that each keeps.

    Args:
        plan: the plan.
        holds: the legal holds in effect.
        vetoed: the decision, of which they were the first veto.
        kept: the messages that vetoes keep from the release by consumers.
    """
    released = 0 if kept is None else kept.by_reason[: len(holds.holds)]
    pins = replace(plan.pins, holds=holds.edits)
    return replace(plan, pins=pins, kept_by_holds=holds.kept_by(vetoed, released))


def _in_order(answers: Sequence[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: answer.span)


def _plan(
    inventory: Inventory,
    policy: Policy,
    as_of_ns: int,
    losses: FileLosses,
    answers: Sequence[Answer],
) -> Plan:
    """Build the plan of losses."""
    messages = inventory.files["messages"].to_numpy()
    touched = np.flatnonzero(losses.messages)
    actions = np.where(losses.messages == messages, DROP, REWRITE)
    files = _planned(inventory.files, losses, touched, actions)
    header = Header(
        stream=inventory.stream,
        table_id=inventory.table_id,
        version=inventory.version,
        as_of_ns=as_of_ns,
        policy=policy,
        epoch=inventory.counters.epoch,
        segments=_segment_counts(inventory.files, losses.messages, messages),
        read=sum((answer.read for answer in answers), inventory.read),
    )
    done = Actions(
        files=files,
        rules=rule_rows(losses.by_rule[touched], losses.bytes[touched]),
        removed=_of_planned(actions, losses, touched),
    )
    return Plan(header, Pins(), done, cause_of_files(inventory))


def _file_losses(
    files: pa.Table, known: ByMetadata, answers: Sequence[Answer], stopped_at: int | None
) -> FileLosses:
    """Distribute the losses of spans among files."""
    goes_whole = known.whole[known.spans.span_of_file]
    by_rule = _spread(files, known, np.flatnonzero(goes_whole))
    lost_messages = np.where(goes_whole, files["messages"].to_numpy(), 0)
    lost_bytes = np.where(goes_whole, files["bytes"].to_numpy(), 0)
    for answer in answers:
        counts = settled_counts(answer, stopped_at)
        at, messages = counts["file"].to_numpy(), counts["messages"].to_numpy()
        np.add.at(by_rule, (at, counts["rule"].to_numpy()), messages)
        np.add.at(lost_messages, at, messages)
        np.add.at(lost_bytes, at, counts["bytes"].to_numpy())
    return FileLosses(lost_messages, lost_bytes, by_rule, ranges_of(answers, stopped_at))


def _spread(files: pa.Table, known: ByMetadata, goes: Array) -> Array:
    """Distribute the messages that each rule removes from whole spans among the files `goes`; shape (files, rules).

    A span of files with 4 and 6 messages; one rule removes 7 of them, the next 3:

        files   |0 . . . 4 . . . . . 10|     the first file: 4 and 0
        rules   |0 . . . . . . 7 . . 10|     the second:     3 and 3
    """
    of_file = known.spans.span_of_file[goes]
    rule_ends = np.cumsum(known.by_rule[of_file], axis=1)
    messages = files["messages"].to_numpy()
    file_ends = np.cumsum(messages)[goes]
    before_span = (np.cumsum(known.spans.messages) - known.spans.messages)[of_file]
    ends, messages = (file_ends - before_span)[:, None], messages[goes, None]
    reached = np.minimum(rule_ends, ends) - np.minimum(rule_ends, ends - messages)
    shares = np.zeros((files.num_rows, known.by_rule.shape[1]), dtype=np.int64)
    shares[goes] = np.diff(reached, axis=1, prepend=0)
    return shares


def _with_released(left: RemainingMessages, policy: Policy, losses: FileLosses) -> FileLosses:
    """The losses of all files of the inventory, from those of the files with remaining messages."""
    stored = left.inventory.files
    if len(left.numbers) == stored.num_rows and not left.released and left.kept is None:
        return losses
    messages, lost_bytes = (stored[name].to_numpy().copy() for name in ("messages", "bytes"))
    messages[left.numbers] += losses.messages - left.files["messages"].to_numpy()
    lost_bytes[left.numbers] += losses.bytes - left.files["bytes"].to_numpy()
    if left.kept is not None:
        messages -= left.kept.messages
        lost_bytes -= left.kept.bytes
    by_rule = np.zeros((stored.num_rows, len(RULES)), dtype=np.int64)
    by_rule[left.numbers] = losses.by_rule
    by_rule[:, RULES.index(policy.retention)] = messages - by_rule.sum(axis=1)
    ranges = losses.ranges.renumbered(left.numbers).joined(left.released)
    return FileLosses(messages, lost_bytes, by_rule, ranges)


def _in_spent_segments(inventory: Inventory, losses: FileLosses) -> Array:
    """A mask of the files of segments that lose every message."""
    number, _ = segment_numbers(inventory.files)
    messages = inventory.files["messages"].to_numpy()
    left = np.bincount(number, weights=messages - losses.messages)
    return np.asarray(left[number] == 0)


def _sealed(inventory: Inventory) -> Array:
    """A mask of the files of sealed segments."""
    partitions = inventory.files["partition"].to_numpy()
    open_base = np.zeros(len(partitions), dtype=np.int64)
    for partition, base in inventory.counters.open_base.items():
        open_base[partitions == partition] = base
    return np.asarray(inventory.files["segment"].to_numpy() < open_base)


def _planned(files: pa.Table, losses: FileLosses, touched: Array, actions: Array) -> pa.Table:
    planned = rows_at(files, touched)
    lost = {
        "action": actions[touched],
        "removed_messages": losses.messages[touched],
        "removed_bytes": losses.bytes[touched],
    }
    columns = [
        pa.array(lost[field.name], field.type) if field.name in lost else planned[field.name]
        for field in PLANNED_FILES
    ]
    return pa.Table.from_arrays(columns, schema=PLANNED_FILES)


def _of_planned(actions: Array, losses: FileLosses, touched: Array) -> RemovedRanges:
    """The ranges of partly removed files, by their row numbers in the plan."""
    numbers = np.full(len(losses.messages), -1)
    numbers[touched] = np.where(actions[touched] != DROP, np.arange(len(touched)), -1)
    return losses.ranges.renumbered(numbers)


def segment_numbers(files: pa.Table) -> tuple[Array, int]:
    """Number the segments of an inventory's files from 0; returns each file's number, and the number of segments.

    Files of the segments 1, 1, 40, 40 and 90 have the numbers 0, 0, 1, 1 and 2; there are 3.
    """
    if not files.num_rows:
        return np.zeros(0, dtype=np.int64), 0
    new = (np.diff(files["partition"].to_numpy()) != 0) | (
        np.diff(files["segment"].to_numpy()) != 0
    )
    numbers = np.append(0, np.cumsum(new))
    return numbers, int(numbers[-1]) + 1


def _segment_counts(files: pa.Table, lost: Array, messages: Array) -> SegmentCounts:
    number, count = segment_numbers(files)
    if not count:
        return SegmentCounts()
    lost_of = np.bincount(number, weights=lost)
    dropped = int((lost_of == np.bincount(number, weights=messages)).sum())
    kept = int((lost_of == 0).sum())
    return SegmentCounts(dropped, count - dropped - kept, kept)
