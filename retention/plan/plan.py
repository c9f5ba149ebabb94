"""The plan as a value: the files to remove, the sequences to remove from rewritten files, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from retention.core.policy import Policy
from retention.plan.cause import Cause
from retention.plan.consumer_snapshot import pins_as_json
from retention.plan.forecast import NOTHING_FORETOLD, Forecast
from retention.plan.header import Header, Pins
from retention.plan.no_actions import NO_ACTIONS, NoActions

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.core.dropped import StreamDrop
    from retention.plan.actions import Actions
    from retention.plan.ahead_of_clock import AheadOfClock
    from retention.plan.lowered import LoweredLimit
    from retention.plan.overdue import Overdue
    from retention.plan.protected import ProtectedMessages, ProtectedSegments
    from retention.rules.removal_guards import GuardFinding

FORMAT_VERSION = 7


@dataclass(frozen=True)
class Plan:
    """One pass over one stream, or a requested removal, as a value; built by `build`, applied by `apply`."""

    header: Header
    pins: Pins = field(default_factory=Pins)
    effects: Actions | NoActions = NO_ACTIONS
    """Its actions; of a plan that changes nothing, no tables of them."""
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
    kept_by_holds: Mapping[str, int] | None = None
    """Legal hold → the messages that it keeps from the rules or the request; not part of its identity. None: no
    legal hold is in effect."""
    dropped: StreamDrop | None = None
    """The drop of the stream, which is therefore empty; None: it is not dropped."""
    ahead: tuple[AheadOfClock, ...] = ()
    """Partitions of a topic with timestamps after its instant; neither part of its identity nor of a saved plan."""
    lowered: tuple[LoweredLimit, ...] = ()
    """Limits lowered since the last pass; neither part of its identity nor of a saved plan."""

    @cached_property
    def actions(self) -> Actions:
        """The actions, without rows if it changes nothing."""
        return self.effects.tables()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.effects.file_count and not self.sets_sequences

    @property
    def sets_sequences(self) -> bool:
        """Whether it sets the next sequence, so that new messages invalidate it."""
        return self.sequences is not None or self.header.begins_epoch

    @property
    def sequences(self) -> tuple[int, int] | None:
        """The sequences that it uses or skips: the first, and the next after the last; None: it uses none."""
        return self.effects.sequences

    @property
    def markers(self) -> int:
        """The number of delete markers to write."""
        return self.effects.marker_count

    @property
    def removed_messages(self) -> int:
        """The number of messages to remove."""
        return self.effects.removed_messages

    @property
    def removed_bytes(self) -> int:
        """The bytes to remove, by the broker's accounting."""
        return self.effects.removed_bytes

    @property
    def bytes_rewritten(self) -> int:
        """The lengths of the files that lose some of their messages, as they are now."""
        return self.effects.bytes_rewritten

    @property
    def by_rule(self) -> dict[str, int]:
        """Messages to remove, by rule; rules that remove none are omitted."""
        return self.effects.by_rule

    def by_rule_of(self, files: pa.Array) -> dict[str, int]:
        """Messages to remove from files at some paths, by rule; rules that remove none are omitted."""
        return self.effects.by_rule_of(files)

    @property
    def held_as_json(self) -> dict[str, object] | None:
        """All held messages or segments, as JSON values; None: the policy holds nothing."""
        held = self.held or self.held_segments
        return None if held is None else held.as_json()

    @cached_property
    def plan_id(self) -> str:
        """SHA-256 of the decisions (see `plan.identity`): the same inputs give the same plan, on any engine.

        It covers everything that a run uses of the plan, including numbers only for the run history.
        """
        return self.effects.identity(self._header())

    def removes_as(self, other: Plan) -> bool:
        """Whether another plan removes the same messages of the same files by the same rules."""
        return self.actions.removal == other.actions.removal

    def _header(self) -> dict[str, object]:
        optional: dict[str, object] = {}
        if self.header.request is not None:
            from retention.rules.requests import as_json

            optional["request"] = as_json(self.header.request)
        if self.pins.consumers is not None:
            optional["consumers"] = pins_as_json(self.pins.consumers)
        if self.pins.expired:
            optional["expired"] = pins_as_json(self.pins.expired)
        if self.pins.holds:
            optional["holds"] = self.pins.holds
        if self.header.epoch:
            optional["epoch"] = self.header.epoch
        if self.header.begins_epoch:
            optional["begins_epoch"] = True
        return optional | {
            "stream": self.header.stream,
            "table_id": self.header.table_id,
            "as_of_ns": self.header.as_of_ns,
            "policy": self.header.policy.as_json(),
            "sequences": self.sequences,
        }

    def summary(self) -> dict[str, object]:
        """The numbers of the plan, JSON-able."""
        held, dropped = self.held_as_json, self.dropped
        optional = {} if held is None else {"held": held}
        if self.kept_by_holds is not None:
            optional["kept_by_holds"] = dict(self.kept_by_holds)
        optional |= {} if dropped is None else {"dropped": dropped.as_json()}
        return optional | {
            "stream": self.header.stream,
            "plan_id": self.plan_id,
            "removed_messages": self.removed_messages,
            "removed_bytes": self.removed_bytes,
            "by_rule": self.by_rule,
            "segments": vars(self.header.segments),
            "markers": self.markers,
            "deleted_consumers": [pin.consumer for pin in self.pins.expired],
        }


def empty_plan(stream: str, as_of_ns: int, policy: Policy) -> Plan:
    """The plan of an empty stream."""
    return Plan(Header(stream, table_id="", version=-1, as_of_ns=as_of_ns, policy=policy))
