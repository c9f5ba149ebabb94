"""The plan as a value: which files go, which are rewritten without which sequences, and by which rule."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import ReadCount
from retention.core.policy import Policy
from retention.plan.cause import NO_CAUSE, Cause
from retention.plan.consumer_snapshot import Pin, pins_as_json
from retention.plan.forecast import NOTHING_FORETOLD, Forecast
from retention.plan.identity import canonical, identity
from retention.plan.protected import Held, HeldSegments
from retention.plan.rule_rows import rule_counts, rule_numbers
from retention.rules.requests import Request, as_json
from schemas.plan import (
    PLANNED_FILES,
    PLANNED_MARKERS,
    PLANNED_PARTS,
    PLANNED_RULES,
    RULE_NAMES,
)

FORMAT_VERSION = 7
APPLY = "apply"
"""What the run history calls a pass."""
_AT_ONCE = 65_536


@dataclass(frozen=True)
class SegmentCounts:
    """How many segments a plan leaves in which state."""

    dropped: int = 0
    rewritten: int = 0
    kept: int = 0


@dataclass(frozen=True)
class Plan:
    """What one pass over one stream, or a removal by hand, does; made by `verdicts`, carried out by `run`."""

    stream: str
    table_id: str
    version: int
    """The table version that was looked at; not part of the plan's identity."""
    as_of_ns: int
    policy: Policy
    files: pa.Table
    """Every file that the plan touches, in order; shape `PLANNED_FILES`."""
    rules: pa.Table
    """What each rule takes of each of them; shape `PLANNED_RULES`."""
    removed: pa.Table
    """What goes of files that do not go whole; shape `PLANNED_PARTS`."""
    segments: SegmentCounts
    read: ReadCount
    """What planning cost."""
    markers: pa.Table = field(default_factory=PLANNED_MARKERS.empty_table)
    """Subject-delete markers that are left when the pass is over; shape `PLANNED_MARKERS`."""
    sequences: tuple[int, int] | None = None
    """Those that markers use, also markers evicted again, or that a purge steps over: the first, and the next after
    the last; None: the next sequence stays."""
    request: Request | None = None
    """What people asked for; None: the plan is that of a pass."""
    consumers: tuple[Pin, ...] | None = None
    """The consumers that were asked what they need; None: the pass asked none."""
    expired: tuple[Pin, ...] = ()
    """Consumers that nobody has used for too long: the pass did not ask them, and deletes them."""
    forecast: Forecast = NOTHING_FORETOLD
    """What is due when; neither part of the plan's identity nor of a saved plan."""
    released: int = 0
    """The number of the record of released ranges that the stream was read by."""
    held: Held | None = None
    """What consumers hold back, or with `warn` would; not part of its identity. None: the policy holds nothing."""
    epoch: int = 0
    """The epoch in which the sequences count that it speaks of."""
    begins_epoch: bool = False
    """Whether offsets count from 0 again behind it: the purge of a topic."""
    held_segments: HeldSegments | None = None
    """What stored offsets of a topic hold back; not part of its identity. None: they hold nothing."""
    cause: Cause = NO_CAUSE
    """What it was made from, as far as explaining it takes; not part of its identity."""

    @property
    def kind(self) -> str:
        """What the run history calls a run that carries it out."""
        return APPLY if self.request is None else self.request.rule

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
        """The same of some files, by their paths."""
        numbers = pc.indices_nonzero(pc.is_in(self.files["path"], value_set=files))
        return rules_of(self.rules.filter(pc.is_in(self.rules["file"], value_set=numbers)))

    @property
    def files_with_rules(self) -> pa.Table:
        """The files, with a column `by_<rule>` for what each rule takes of them."""
        counts, files = rule_counts(self.rules, self.files.num_rows), self.files
        for at, rule in enumerate(RULE_NAMES):
            files = files.append_column(f"by_{rule}", pa.array(counts[:, at]))
        return files

    @property
    def held_as_json(self) -> dict[str, Any] | None:
        """What is held back as JSON values; None: the policy holds nothing."""
        held = self.held or self.held_segments
        return None if held is None else held.as_json()

    @property
    def drops(self) -> pa.Table:
        """The files that go whole."""
        return self.files.filter(pc.equal(self.files["action"], "drop"))

    @property
    def rewrites(self) -> pa.Table:
        """The files that are copied without some rows, with their row number in `files` as `number`."""
        return self._numbered("rewrite")

    @property
    def hides(self) -> pa.Table:
        """The files that stay although some of their rows go, with their row number in `files` as `number`."""
        return self._numbered("hide")

    @property
    def leaving(self) -> pa.Table:
        """The files that do not stay."""
        return self.files.filter(pc.not_equal(self.files["action"], "hide"))

    @property
    def leaving_with_rules(self) -> pa.Table:
        """The same, with a column `by_<rule>` for what each rule takes of them."""
        files = self.files_with_rules
        return files.filter(pc.not_equal(files["action"], "hide"))

    def _numbered(self, action: str) -> pa.Table:
        numbered = self.files.append_column("number", pa.array(np.arange(self.files.num_rows)))
        return numbered.filter(pc.equal(self.files["action"], action))

    def ranges_of(self, number: int) -> np.ndarray:
        """The removed ranges of one file that loses some rows, shape (n, 2); `number` is its row in `files`."""
        files = self.removed["file"].to_numpy()
        start, end = np.searchsorted(files, [number, number + 1])
        part = self.removed.slice(start, end - start)
        return np.stack([part["first_seq"].to_numpy(), part["last_seq"].to_numpy()], axis=1)

    @cached_property
    def plan_id(self) -> str:
        """SHA-256 of what was decided (see `identity`): the same inputs give the same plan, on any engine.

        Whatever a run takes from the plan (also numbers that only its history tells) is in it.
        """
        return identity(self._header(), self.files, self.rules, self.removed)

    def _header(self) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        if self.request is not None:
            asked["request"] = as_json(self.request)
        if self.consumers is not None:
            asked["consumers"] = pins_as_json(self.consumers)
        if self.released:
            asked["released"] = self.released
        if self.expired:
            asked["expired"] = pins_as_json(self.expired)
        if self.epoch:
            asked["epoch"] = self.epoch
        if self.begins_epoch:
            asked["begins_epoch"] = True
        return asked | {
            "stream": self.stream,
            "table_id": self.table_id,
            "as_of_ns": self.as_of_ns,
            "policy": self.policy.as_json(),
            "sequences": self.sequences,
            "by_rule": self.by_rule,
            "markers": None if self.sequences is None else _markers(self.markers),
        }

    def summary(self) -> dict[str, Any]:
        """The numbers of the plan, JSON-able."""
        held = self.held_as_json
        return ({} if held is None else {"held": held}) | {
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
    return Plan(
        stream=stream,
        table_id="",
        version=-1,
        as_of_ns=as_of_ns,
        policy=policy,
        files=PLANNED_FILES.empty_table(),
        rules=PLANNED_RULES.empty_table(),
        removed=PLANNED_PARTS.empty_table(),
        segments=SegmentCounts(),
        read=ReadCount(),
    )


def rules_of(rows: pa.Table) -> dict[str, int]:
    """Messages by rule, in the order of a pass, of `PLANNED_RULES` rows."""
    counts = np.zeros(len(RULE_NAMES), dtype=np.int64)
    np.add.at(counts, rule_numbers(rows["rule"]), rows["messages"].to_numpy())
    return {rule: count for rule, count in zip(RULE_NAMES, counts.tolist(), strict=True) if count}


def _markers(markers: pa.Table) -> str:
    """SHA-256 of markers, from canonical JSON, some of them at a time."""
    digest = hashlib.sha256()
    for at in range(0, markers.num_rows, _AT_ONCE):
        digest.update(canonical(markers.slice(at, _AT_ONCE).to_pydict()))
    return digest.hexdigest()


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
