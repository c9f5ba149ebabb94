"""Planning of a pass over a topic: its segments from statistics, Iggy's rules, and a plan of whole files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.position import with_floors
from retention.context.topic import topic_of
from retention.core.inventory import Inventory
from retention.core.spans import Array, spans_of
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.engines.select import Engines
from retention.layout.topic_segment_roll import aged_mask
from retention.plan.ahead_of_clock import ahead_of_clock
from retention.plan.build import make_removal, segment_numbers, under_holds
from retention.plan.consumer_snapshot import Pin
from retention.plan.plan import Plan
from retention.plan.protected_segments import protected_segments
from retention.plan.remaining import all_remaining
from retention.planners.probe import StoredRows
from retention.planners.veto import veto
from retention.ports import Snapshot
from retention.rules import DELETE_SEGMENTS, MAX_TOPIC_SIZE, MESSAGE_EXPIRY, RULES
from retention.rules.fold import Vetoed, fold
from retention.rules.iggy.delete_segments import DeleteSegments, requested_fates
from retention.rules.iggy.evaluate import TopicPass, reached_by, topic_pass
from retention.rules.iggy.segments import BY_AGE, BY_REQUEST, BY_SIZE, TopicSegments, with_sealed
from retention.rules.iggy.segments import STAYS as UNTOUCHED
from retention.rules.row_verdicts import STAYS
from retention.rules.verdicts import Verdicts
from retention.rules.veto import Veto
from retention.stores.offset_table import Offsets, OffsetTable

OFFSETS = "offsets"
"""The name of a topic's stored offsets in pins."""
RULE_OF = {
    BY_AGE: RULES.index(MESSAGE_EXPIRY),
    BY_SIZE: RULES.index(MAX_TOPIC_SIZE),
    BY_REQUEST: RULES.index(DELETE_SEGMENTS),
}
"""The rule of each fate except `STAYS`, an index into `RULES`."""


@dataclass(frozen=True)
class TopicTable:
    """A topic at one version, with its segments and stored offsets."""

    snapshot: Snapshot
    inventory: Inventory
    stored_segments: TopicSegments
    """The topic's stored segments."""
    offsets: Offsets


@dataclass(frozen=True)
class TopicPlanning(TopicTable):
    """A topic's plan, and its inputs."""

    segments: TopicSegments
    """The segments for the pass: those due by `roll_after` count as sealed."""
    decided: TopicPass
    plan: Plan


def plan_topic_table(
    opened: OpenedStream,
    topic: TopicPolicy,
    as_of_ns: int,
    snapshot: Snapshot | None = None,
    vetoes: Sequence[Veto] = (),
) -> TopicPlanning:
    """Plan one pass over an existing topic, from metadata alone unless a veto needs rows.

    Args:
        opened: the topic.
        topic: its rules.
        as_of_ns: the pass's one instant.
        snapshot: the table, if it is open already.
        vetoes: the reasons to keep messages; a segment is kept if they keep any of its messages.

    Raises:
        RefusedError: the table needs a feature that this version does not have.
        DamagedError: the table or the stored offsets cannot be read.
    """
    table = read_topic(opened, topic, snapshot or opened.store.snapshot())
    return plan_segments(opened, table, topic, as_of_ns, vetoes)


def plan_segments(
    opened: OpenedStream,
    table: TopicTable,
    topic: TopicPolicy,
    as_of_ns: int,
    vetoes: Sequence[Veto] = (),
) -> TopicPlanning:
    """Plan one pass over a topic that has been read; otherwise as `plan_topic_table`."""
    inventory, offsets = table.inventory, table.offsets
    segments, decided = decide_topic(table.stored_segments, topic, as_of_ns, offsets)
    rules = rules_of_files(inventory, segments, decided.fates)
    policy = replace(opened.config.policy(), topic=topic)
    holds = holds_in_effect(opened, inventory.counters)
    vetoed = _vetoed(opened, inventory, rules, (*holds.vetoes, *vetoes))
    plan = _with_offsets(make_removal(inventory, policy, as_of_ns, vetoed), offsets)
    plan = under_holds(plan, holds, vetoed)
    ahead = ahead_of_clock(table.stored_segments, topic, as_of_ns)
    plan = replace(plan, ahead=ahead)
    if topic.respect_consumer_offsets:
        waiting = rules_of_files(inventory, segments, decided.held)
        plan = replace(plan, held_segments=protected_segments(inventory.files, waiting, offsets))
    return TopicPlanning(**vars(table), segments=segments, decided=decided, plan=plan)


def plan_delete_segments(
    opened: OpenedStream,
    request: DeleteSegments,
    snapshot: Snapshot,
    vetoes: Sequence[Veto],
) -> Plan:
    """Plan the removal of a partition's oldest sealed segments, up to the first one not read by every reader.

    Raises:
        RefusedError, DamagedError: as planning a pass.
    """
    topic = topic_of(opened).policy()
    table = read_topic(opened, topic, snapshot)
    inventory, segments, offsets = table.inventory, table.stored_segments, table.offsets
    reaching = replace(request, up_to=_reach(segments, request))
    up_to = {} if reaching.up_to is None else {request.partition: reaching.up_to}
    barriers = offsets.barriers if topic.respect_consumer_offsets else {}
    fates = requested_fates(segments, up_to, barriers)
    rules = rules_of_files(inventory, segments, fates)
    holds = holds_in_effect(opened, inventory.counters)
    vetoed = _vetoed(opened, inventory, rules, (*holds.vetoes, *vetoes))
    plan = make_removal(inventory, opened.config.policy(), opened.clock(), vetoed, reaching)
    plan = under_holds(_with_offsets(plan, offsets), holds, vetoed)
    if not topic.respect_consumer_offsets:
        return plan
    waiting = np.where(fates == UNTOUCHED, requested_fates(segments, up_to, {}), UNTOUCHED)
    rules = rules_of_files(inventory, segments, waiting)
    return replace(plan, held_segments=protected_segments(inventory.files, rules, offsets))


def read_topic(opened: OpenedStream, topic: TopicPolicy, snapshot: Snapshot) -> TopicTable:
    """The segments and stored offsets of an existing topic.

    Raises:
        DamagedError: the table or the stored offsets cannot be read.
    """
    inventory = with_floors(opened, opened.store.inventory(snapshot))
    # Read after the snapshot, because the commit requires the snapshot's counter of edits.
    offsets = OffsetTable(opened.root).live(inventory.counters)
    stored = segments_of(inventory.files, inventory.counters.open_base, topic.partitions)
    return TopicTable(snapshot, inventory, stored, offsets)


def _vetoed(
    opened: OpenedStream, inventory: Inventory, rules: Array, vetoes: Sequence[Veto]
) -> Vetoed:
    """The decision on the files of a topic, given the rule that removes each (`rules_of_files`)."""
    spans = spans_of(inventory.files, np.ones(inventory.files.num_rows, dtype=bool))
    verdicts = [
        Verdicts(RULES[rule], rules == rule) for rule in np.unique(rules[rules != STAYS]).tolist()
    ]
    with Engines("local") as engines:
        asks = StoredRows(opened, engines).of(all_remaining(inventory))
        return veto(fold(spans, verdicts), vetoes, asks)


def _with_offsets(plan: Plan, offsets: Offsets) -> Plan:
    """A plan with the stored offsets that it is based on."""
    pins = replace(plan.pins, consumers=pins_of(offsets))
    return replace(plan, pins=pins, cause=replace(plan.cause, offsets=offsets))


def _reach(segments: TopicSegments, request: DeleteSegments) -> int | None:
    part = dict(segments.parts()).get(request.partition)
    return None if part is None else reached_by(segments, part, request.count)


def decide_topic(
    stored: TopicSegments, topic: TopicPolicy, as_of_ns: int, offsets: Offsets
) -> tuple[TopicSegments, TopicPass]:
    """Decide a pass over a topic; returns its segments for the pass, and the fate of each.

    Args:
        stored: its stored segments.
        topic: its rules.
        as_of_ns: the pass's one instant, nanoseconds since the epoch.
        offsets: the stored offsets.
    """
    now_us = as_of_ns // MICROSECOND
    segments = with_sealed(stored, aged_mask(stored.first_us, topic, now_us))
    return segments, topic_pass(segments, topic, now_us, offsets.barriers, offsets.watermarks)


def pins_of(offsets: Offsets) -> tuple[Pin, ...]:
    """The pins of a plan that respects stored offsets."""
    return (Pin(OFFSETS, offsets.revision, offsets.version),)


def segments_of(files: pa.Table, open_base: Mapping[int, int], partitions: int) -> TopicSegments:
    """The segments of a topic, including an active one without messages.

    Args:
        files: an inventory's; the columns of `CAUSE_FILES` at least.
        open_base: partition → the base of its active segment.
        partitions: the configured number of partitions.
    """
    numbers, count = segment_numbers(files)
    column = {name: files[name].to_numpy() for name in _COLUMNS}
    begins = np.searchsorted(numbers, np.arange(count))
    ends = np.append(begins[1:], len(numbers)) - 1 if count else begins

    def folded(name: str, fold: np.ufunc) -> Array:
        return fold.reduceat(column[name], begins) if count else column[name]

    stored = TopicSegments(
        partition=column["partition"][begins].astype(np.int64),
        start=column["segment"][begins],
        end=folded("max_seq", np.maximum),
        first_us=column["first_ts_ns"][begins] // MICROSECOND,
        last_us=column["last_ts_ns"][ends] // MICROSECOND,
        max_us=folded("max_ts_ns", np.maximum) // MICROSECOND,
        bytes=folded("bytes", np.add),
        sealed=np.ones(count, dtype=bool),
    )
    known = {*range(partitions), *np.unique(stored.partition).tolist()}
    bases = {partition: open_base.get(partition) for partition in sorted(known)}
    return with_active(stored, {part: base for part, base in bases.items() if base is not None})


def with_active(stored: TopicSegments, open_base: Mapping[int, int]) -> TopicSegments:
    """Add every partition's active segment, which may be empty.

    Example: segments 0 and 5 of partition 0 are stored, and `open_base` is {0: 5, 1: 0}. Then 5 is
    not sealed, and segment 0 of partition 1 is added: not sealed, from offset 0 to -1.

    Args:
        stored: segments with messages, as if all of them were sealed.
        open_base: partition → the base of its active segment.
    """
    there = set(zip(stored.partition.tolist(), stored.start.tolist(), strict=True))
    empty = [(part, base) for part, base in open_base.items() if (part, base) not in there]
    partition, start = (
        np.array([segment[at] for segment in empty], dtype=np.int64) for at in (0, 1)
    )
    nothing = np.zeros(len(empty), dtype=np.int64)
    added = (partition, start, start - 1, nothing, nothing, nothing, nothing, nothing.astype(bool))
    columns = [
        np.concatenate([getattr(stored, name), new])
        for name, new in zip(_FIELDS, added, strict=True)
    ]
    order = np.lexsort((columns[1], columns[0]))
    partition, start, end, first, last, highest, size, sealed = (
        column[order] for column in columns
    )
    opened = np.array([open_base.get(part, 0) for part in partition.tolist()], dtype=np.int64)
    return TopicSegments(
        partition, start, end, first, last, highest, size, sealed & (start < opened)
    )


_COLUMNS = (
    "partition",
    "segment",
    "max_seq",
    "first_ts_ns",
    "last_ts_ns",
    "max_ts_ns",
    "bytes",
)
_FIELDS = ("partition", "start", "end", "first_us", "last_us", "max_us", "bytes", "sealed")


def rules_of_files(inventory: Inventory, segments: TopicSegments, fates: Array) -> Array:
    """The rule that removes each file of the inventory, an index into `RULES`; `STAYS`: the file is kept."""
    stored = segments.end >= segments.start
    rules = np.full(int(stored.sum()), STAYS, dtype=np.int64)
    for fate, rule in RULE_OF.items():
        rules[fates[stored] == fate] = rule
    return rules[segment_numbers(inventory.files)[0]]
