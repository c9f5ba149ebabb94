"""The header of a plan, which says what it is of, and its pins, which say what it rests on beside files."""

from __future__ import annotations

from dataclasses import dataclass, field

from retention.core.inventory import ReadCount
from retention.core.policy import Policy
from retention.plan.consumer_snapshot import Pin
from retention.rules.requests import Request

APPLY = "apply"
"""The run history's name of a pass."""


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
    """The table version that was looked at; not part of the plan's identity."""
    as_of_ns: int
    policy: Policy
    request: Request | None = None
    """The request of people; None: the plan is that of a pass."""
    epoch: int = 0
    """The epoch in which the plan's sequences count."""
    begins_epoch: bool = False
    """Whether offsets count from 0 again behind the plan: the purge of a topic."""
    segments: SegmentCounts = field(default_factory=SegmentCounts)
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of planning: files and bytes that were read."""

    @property
    def kind(self) -> str:
        """The run history's name of a run that carries the plan out."""
        return APPLY if self.request is None else self.request.rule


@dataclass(frozen=True)
class Pins:
    """States that a plan rests on beside the files that it touches: it is stale as soon as one of them is another."""

    consumers: tuple[Pin, ...] | None = None
    """The consumers that were asked what they need; None: the pass asked none."""
    expired: tuple[Pin, ...] = ()
    """Consumers that nobody has used for too long: the pass did not ask them, and deletes them."""
    released: int = 0
    """The number of the record of row tombstones that the stream was read by."""
