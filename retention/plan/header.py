"""The header of a plan (its scope), and its pins (the states that it is based on, besides files)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retention.core.policy import Policy
from retention.core.read_count import ReadCount
from retention.plan.consumer_snapshot import Pin

if TYPE_CHECKING:
    from retention.rules.requests import Request

APPLY = "apply"
"""The name of a pass in the run history."""


@dataclass(frozen=True)
class SegmentCounts:
    """Numbers of segments that a plan drops, rewrites and keeps."""

    dropped: int = 0
    rewritten: int = 0
    kept: int = 0


@dataclass(frozen=True)
class Header:
    """The scope of a plan: one stream at one version of its table, by one policy, at one instant."""

    stream: str
    table_id: str
    version: int
    """The table version that the plan is based on; not part of its identity."""
    as_of_ns: int
    policy: Policy
    request: Request | None = None
    """The request of an operator; None: the plan is that of a pass."""
    epoch: int = 0
    """The epoch of the plan's sequences."""
    begins_epoch: bool = False
    """Whether offsets restart at 0 after the plan: the purge of a topic."""
    segments: SegmentCounts = field(default_factory=SegmentCounts)
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of planning: files and bytes read."""

    @property
    def kind(self) -> str:
        """The run history's kind of the run that applies the plan."""
        return APPLY if self.request is None else self.request.rule


@dataclass(frozen=True)
class Pins:
    """States that a plan is based on besides its files; a change of any of them makes the plan stale."""

    consumers: tuple[Pin, ...] | None = None
    """The consumers that the pass read; None: it read none."""
    expired: tuple[Pin, ...] = ()
    """Inactive consumers: the pass ignores their needs, and deletes them."""
    holds: int = 0
    """The number of records of legal holds that the table's log counted; 0: there never was a legal hold."""
