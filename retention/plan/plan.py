"""The plan as a value: which files go, which are rewritten without which sequences, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.dropped import Dropped
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
from schemas.plan import RULE_NAMES

FORMAT_VERSION = 7


@dataclass(frozen=True)
class Plan:
    """One pass over one stream, or a removal by hand, as a value; made by `build`, carried out by `apply`."""

    header: Header
    pins: Pins = field(default_factory=Pins)
    actions: Actions = field(default_factory=Actions)
    cause: Cause = field(default_factory=Cause)
    """The data that it was made from, as far as explaining it takes them; not part of its identity."""
    forecast: Forecast = NOTHING_FORETOLD
    """Losses that fall due, and when; neither part of the plan's identity nor of a saved plan."""
    overdue: Overdue | None = None
    """Messages older than `max_age` that stay; neither part of its identity nor of a saved plan. None: none."""
    held: ProtectedMessages | None = None
    """Messages that consumers hold back, or with `warn` would; not part of its identity. None: the policy holds
    nothing."""
    held_segments: ProtectedSegments | None = None
    """Segments that stored offsets of a topic hold back; not part of its identity. None: they hold nothing."""
    guards: tuple[GuardFinding, ...] = ()
    """The guards whose limits it exceeds; neither part of its identity nor of a saved plan."""
    dropped: Dropped | None = None
    """The drop of the stream, which holds nothing therefore; None: it is not dropped."""
    ahead: tuple[AheadOfClock, ...] = ()
    """Partitions of a topic with later times than its instant; neither part of its identity nor of a saved plan."""
    lowered: tuple[LoweredLimit, ...] = ()
    """Limits that were lowered since the last pass; neither part of its identity nor of a saved plan."""

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self.header.stream

    @property
    def table_id(self) -> str:
        """The table's id; empty where there was no table."""
        return self.header.table_id

    @property
    def version(self) -> int:
        """The table version that was looked at."""
        return self.header.version

    @property
    def as_of_ns(self) -> int:
        """Its instant, nanoseconds since the epoch."""
        return self.header.as_of_ns

    @property
    def policy(self) -> Policy:
        """The rules by which it was made."""
        return self.header.policy

    @property
    def request(self) -> Request | None:
        """The request of people; None: it is the plan of a pass."""
        return self.header.request

    @property
    def kind(self) -> str:
        """The run history's name of a run that carries it out."""
        return self.header.kind

    @property
    def epoch(self) -> int:
        """The epoch in which its sequences count."""
        return self.header.epoch

    @property
    def begins_epoch(self) -> bool:
        """Whether offsets count from 0 again behind it."""
        return self.header.begins_epoch

    @property
    def segments(self) -> SegmentCounts:
        """Numbers of segments that it drops, rewrites and keeps."""
        return self.header.segments

    @property
    def read(self) -> ReadCount:
        """The cost of planning: files and bytes that were read."""
        return self.header.read

    @property
    def consumers(self) -> tuple[Pin, ...] | None:
        """The consumers that were asked; None: the pass asked none."""
        return self.pins.consumers

    @property
    def expired(self) -> tuple[Pin, ...]:
        """Consumers that the pass deletes."""
        return self.pins.expired

    @property
    def released(self) -> int:
        """The number of the record of row tombstones that it rests on."""
        return self.pins.released

    @property
    def files(self) -> pa.Table:
        """Every file that it touches; shape `PLANNED_FILES`."""
        return self.actions.files

    @property
    def rules(self) -> pa.Table:
        """Messages and bytes that each rule takes of each of `files`; shape `PLANNED_RULES`."""
        return self.actions.rules

    @property
    def removed(self) -> pa.Table:
        """Ranges of sequences that go of files that do not go whole; shape `PLANNED_PARTS`.

        All of them are read, and there may be more than fit into memory: `actions.removed` has some at a time.
        """
        return planned_parts(self.actions.removed.table)

    @property
    def markers(self) -> pa.Table:
        """The delete markers that it writes; shape `PLANNED_MARKERS`."""
        return self.actions.markers

    @property
    def sequences(self) -> tuple[int, int] | None:
        """The sequences that it uses; None: the next sequence stays."""
        return self.actions.sequences

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return self.files.num_rows == 0 and not self.sets_sequences

    @property
    def sets_sequences(self) -> bool:
        """Whether it says which sequence is the next, so that it is wrong as soon as messages come."""
        return self.sequences is not None or self.begins_epoch

    @property
    def removed_messages(self) -> int:
        """Messages that go."""
        return _total(self.files["removed_messages"])

    @property
    def removed_bytes(self) -> int:
        """Bytes that go, by the broker's accounting."""
        return _total(self.files["removed_bytes"])

    @property
    def by_rule(self) -> dict[str, int]:
        """Messages that go, by the rule that lets them; rules that take none are left out."""
        return rules_of(self.rules)

    def by_rule_of(self, files: pa.Array) -> dict[str, int]:
        """Messages that go of files at some paths, by the rule that lets them; rules that take none are left out."""
        numbers = pc.indices_nonzero(pc.is_in(self.files["path"], value_set=files))
        return rules_of(self.rules.filter(pc.is_in(self.rules["file"], value_set=numbers)))

    @property
    def held_as_json(self) -> dict[str, Any] | None:
        """Everything that is held back, as JSON values; None: the policy holds nothing."""
        held = self.held or self.held_segments
        return None if held is None else held.as_json()

    @cached_property
    def plan_id(self) -> str:
        """SHA-256 of what was decided (see `identity`): the same inputs give the same plan, on any engine.

        Whatever a run takes from the plan (also numbers that only its history tells) is in it.
        """
        tables = (self.files, self.rules, self.markers)
        return identity(self._header(), tables, part_digests(self.files, self.actions.removed))

    def _header(self) -> dict[str, Any]:
        optional: dict[str, Any] = {}
        if self.request is not None:
            optional["request"] = as_json(self.request)
        if self.consumers is not None:
            optional["consumers"] = pins_as_json(self.consumers)
        if self.released:
            optional["released"] = self.released
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
    """The plan of a stream that holds nothing yet."""
    return Plan(Header(stream, table_id="", version=-1, as_of_ns=as_of_ns, policy=policy))


def rules_of(rows: pa.Table) -> dict[str, int]:
    """Messages by rule, in the order of a pass, of `PLANNED_RULES` rows."""
    counts = np.zeros(len(RULE_NAMES), dtype=np.int64)
    np.add.at(counts, rule_numbers(rows["rule"]), rows["messages"].to_numpy())
    return {rule: count for rule, count in zip(RULE_NAMES, counts.tolist(), strict=True) if count}


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
