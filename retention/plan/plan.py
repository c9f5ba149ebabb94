"""The plan as a value: the files to remove, the sequences to remove from rewritten files, and the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.dropped import StreamDrop
from retention.core.inventory import ReadCount
from retention.core.policy import Policy
from retention.plan.actions import Actions
from retention.plan.ahead_of_clock import AheadOfClock
from retention.plan.cause import Cause
from retention.plan.consumer_snapshot import Pin, pins_as_json
from retention.plan.forecast import NOTHING_FORETOLD, Forecast
from retention.plan.header import Header, Pins, SegmentCounts
from retention.plan.identity import identity, part_digests
from retention.plan.lowered import LoweredLimit
from retention.plan.overdue import Overdue
from retention.plan.protected import ProtectedMessages, ProtectedSegments
from retention.plan.rule_rows import planned_parts, rule_numbers
from retention.rules.removal_guards import GuardFinding
from retention.rules.requests import Request, as_json
from retention.schemas.plan import RULE_NAMES

FORMAT_VERSION = 7


@dataclass(frozen=True)
class Plan:
    """One pass over one stream, or a requested removal, as a value; built by `build`, applied by `apply`."""

    header: Header
    pins: Pins = field(default_factory=Pins)
    actions: Actions = field(default_factory=Actions)
    cause: Cause = field(default_factory=Cause)
    """The inputs that explain the plan; not part of its identity."""
    forecast: Forecast = NOTHING_FORETOLD
    """Future losses and their due times; neither part of the plan's identity nor of a saved plan."""
    overdue: Overdue | None = None
    """Kept messages older than `max_age`; neither part of its identity nor of a saved plan. None: none."""
    held: ProtectedMessages | None = None
    """Messages held for consumers, or with `warn` only counted; not part of its identity. None: the
    policy holds nothing."""
    held_segments: ProtectedSegments | None = None
    """Segments held for stored offsets of a topic; not part of its identity. None: nothing is held."""
    guards: tuple[GuardFinding, ...] = ()
    """The guards that it exceeds; neither part of its identity nor of a saved plan."""
    dropped: StreamDrop | None = None
    """The drop of the stream, which is therefore empty; None: it is not dropped."""
    ahead: tuple[AheadOfClock, ...] = ()
    """Partitions of a topic with timestamps after its instant; neither part of its identity nor of a saved plan."""
    lowered: tuple[LoweredLimit, ...] = ()
    """Limits lowered since the last pass; neither part of its identity nor of a saved plan."""

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self.header.stream

    @property
    def table_id(self) -> str:
        """The table's id; empty if there was no table."""
        return self.header.table_id

    @property
    def version(self) -> int:
        """The table version that the plan is based on."""
        return self.header.version

    @property
    def as_of_ns(self) -> int:
        """Its instant, nanoseconds since the epoch."""
        return self.header.as_of_ns

    @property
    def policy(self) -> Policy:
        """The policy of the plan."""
        return self.header.policy

    @property
    def request(self) -> Request | None:
        """The request of an operator; None: it is the plan of a pass."""
        return self.header.request

    @property
    def kind(self) -> str:
        """The run history's kind of the run that applies it."""
        return self.header.kind

    @property
    def epoch(self) -> int:
        """The epoch of its sequences."""
        return self.header.epoch

    @property
    def begins_epoch(self) -> bool:
        """Whether offsets restart at 0 after it."""
        return self.header.begins_epoch

    @property
    def segments(self) -> SegmentCounts:
        """The numbers of segments that it drops, rewrites and keeps."""
        return self.header.segments

    @property
    def read(self) -> ReadCount:
        """The cost of planning: files and bytes read."""
        return self.header.read

    @property
    def consumers(self) -> tuple[Pin, ...] | None:
        """The consumers that the pass read; None: it read none."""
        return self.pins.consumers

    @property
    def expired(self) -> tuple[Pin, ...]:
        """Consumers that the pass deletes."""
        return self.pins.expired

    @property
    def files(self) -> pa.Table:
        """Every file that it touches; shape `PLANNED_FILES`."""
        return self.actions.files

    @property
    def rules(self) -> pa.Table:
        """Messages and bytes that each rule removes from each of `files`; shape `PLANNED_RULES`."""
        return self.actions.rules

    @property
    def removed(self) -> pa.Table:
        """Ranges of sequences to remove from partly removed files; shape `PLANNED_PARTS`.

        Reads all of them, possibly more than fit into memory; `actions.removed` reads them in pieces.
        """
        return planned_parts(self.actions.removed.table)

    @property
    def markers(self) -> pa.Table:
        """The delete markers that it writes; shape `PLANNED_MARKERS`."""
        return self.actions.markers

    @property
    def sequences(self) -> tuple[int, int] | None:
        """The sequences that it uses; None: the next sequence is unchanged."""
        return self.actions.sequences

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return self.files.num_rows == 0 and not self.sets_sequences

    @property
    def sets_sequences(self) -> bool:
        """Whether it sets the next sequence, so that new messages invalidate it."""
        return self.sequences is not None or self.begins_epoch

    @property
    def removed_messages(self) -> int:
        """The number of messages to remove."""
        return _total(self.files["removed_messages"])

    @property
    def removed_bytes(self) -> int:
        """The bytes to remove, by the broker's accounting."""
        return _total(self.files["removed_bytes"])

    @property
    def by_rule(self) -> dict[str, int]:
        """Messages to remove, by rule; rules that remove none are omitted."""
        return rules_of(self.rules)

    def by_rule_of(self, files: pa.Array) -> dict[str, int]:
        """Messages to remove from files at some paths, by rule; rules that remove none are omitted."""
        numbers = pc.indices_nonzero(pc.is_in(self.files["path"], value_set=files))
        return rules_of(self.rules.filter(pc.is_in(self.rules["file"], value_set=numbers)))

    @property
    def held_as_json(self) -> dict[str, Any] | None:
        """All held messages or segments, as JSON values; None: the policy holds nothing."""
        held = self.held or self.held_segments
        return None if held is None else held.as_json()

    @cached_property
    def plan_id(self) -> str:
        """SHA-256 of the decisions (see `identity`): the same inputs give the same plan, on any engine.

        It covers everything that a run uses of the plan, including numbers only for the run history.
        """
        tables = (self.files, self.rules, self.markers)
        return identity(self._header(), tables, part_digests(self.files, self.actions.removed))

    def _header(self) -> dict[str, Any]:
        optional: dict[str, Any] = {}
        if self.request is not None:
            optional["request"] = as_json(self.request)
        if self.consumers is not None:
            optional["consumers"] = pins_as_json(self.consumers)
        if self.expired:
            optional["expired"] = pins_as_json(self.expired)
        if self.epoch:
            optional["epoch"] = self.epoch
        if self.begins_epoch:
            optional["begins_epoch"] = True
        return optional | {
            "stream": self.stream,
            "table_id": self.table_id,
            "as_of_ns": self.as_of_ns,
            "policy": self.policy.as_json(),
            "sequences": self.sequences,
        }

    def summary(self) -> dict[str, Any]:
        """The numbers of the plan, JSON-able."""
        held, dropped = self.held_as_json, self.dropped
        optional = {} if held is None else {"held": held}
        optional |= {} if dropped is None else {"dropped": dropped.as_json()}
        return optional | {
            "stream": self.stream,
            "plan_id": self.plan_id,
            "removed_messages": self.removed_messages,
            "removed_bytes": self.removed_bytes,
            "by_rule": self.by_rule,
            "segments": vars(self.segments),
            "markers": self.markers.num_rows,
            "deleted_consumers": [pin.consumer for pin in self.expired],
        }


def empty_plan(stream: str, as_of_ns: int, policy: Policy) -> Plan:
    """The plan of an empty stream."""
    return Plan(Header(stream, table_id="", version=-1, as_of_ns=as_of_ns, policy=policy))


def rules_of(rows: pa.Table) -> dict[str, int]:
    """Messages by rule, in the order of a pass, from `PLANNED_RULES` rows."""
    counts = np.zeros(len(RULE_NAMES), dtype=np.int64)
    np.add.at(counts, rule_numbers(rows["rule"]), rows["messages"].to_numpy())
    return {rule: count for rule, count in zip(RULE_NAMES, counts.tolist(), strict=True) if count}


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
