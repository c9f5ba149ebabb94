"""What a pass held back, for consumers or for readers of a topic: how much would have gone, for whom, since when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import HoldAction
from retention.rules.jetstream.consumer_protection import ANYBODY
from schemas.plan import RULE_NAMES


@dataclass(frozen=True)
class ProtectedFor:
    """What one rule would have taken and one consumer still needs."""

    consumer: str
    rule: str
    messages: int
    bytes: int
    oldest_ts_ns: int
    """When the oldest of them was stored, nanoseconds since the epoch."""


@dataclass(frozen=True)
class ProtectedMessages:
    """What consumers held back, or with `warn` would have."""

    action: HoldAction
    messages: int = 0
    """Each once, also if several consumers need it."""
    bytes: int = 0
    by_consumer: tuple[ProtectedFor, ...] = ()
    """By consumer, then in the order of the rules."""
    missing: tuple[str, ...] = ()
    """Consumers that the configuration names and that are not there: everything is held for them."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self) | {
            "by_consumer": [asdict(one) for one in self.by_consumer],
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class ProtectedForReader:
    """What waits for one reader: segments that would go, and that it has not read to their ends."""

    kind: str
    """`consumer` or `group`."""
    name: str
    offset: int
    """The one that it has stored."""
    stored_ns: int
    """Since when, nanoseconds since the epoch."""
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class ProtectedInPartition:
    """What is held back of one partition."""

    partition: int
    segments: int
    messages: int
    bytes: int
    by_rule: dict[str, int]
    """Rule → the messages that it would take."""
    readers: tuple[ProtectedForReader, ...]
    """For whom, the slowest first."""


@dataclass(frozen=True)
class ProtectedSegments:
    """What is held back of a topic."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0
    partitions: tuple[ProtectedInPartition, ...] = ()
    """Those of which something is held back."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        partitions = [
            asdict(one) | {"readers": [asdict(reader) for reader in one.readers]}
            for one in self.partitions
        ]
        return asdict(self) | {"partitions": partitions}


def protected_from_json(values: dict[str, Any] | None) -> ProtectedMessages | None:
    """Read what `ProtectedMessages.as_json` made; None: the policy holds nothing, or it is that of a topic."""
    if values is None or "partitions" in values:
        return None
    by_consumer = tuple(ProtectedFor(**one) for one in values["by_consumer"])
    return ProtectedMessages(
        **values | {"by_consumer": by_consumer, "missing": tuple(values["missing"])}
    )


def protected_segments_from_json(values: dict[str, Any] | None) -> ProtectedSegments | None:
    """Read what `ProtectedSegments.as_json` made; None: it holds nothing, or is that of a stream."""
    if values is None or "partitions" not in values:
        return None
    partitions = tuple(
        ProtectedInPartition(
            **one | {"readers": tuple(ProtectedForReader(**reader) for reader in one["readers"])}
        )
        for one in values["partitions"]
    )
    return ProtectedSegments(**values | {"partitions": partitions})


def sum_protected(
    ranges: pa.Table, consumers: tuple[str, ...], action: HoldAction, missing: tuple[str, ...]
) -> ProtectedMessages:
    """Sum up what is held.

    Args:
        ranges: shape `HELD_RANGES`.
        consumers: their names, by number.
        action: what is done about it.
        missing: those that are not there.
    """
    total = ranges.filter(pc.equal(ranges["consumer"], ANYBODY))
    each = ranges.filter(pc.not_equal(ranges["consumer"], ANYBODY))
    folds = [("messages", "sum"), ("bytes", "sum"), ("oldest_ts_ns", "min")]
    grouped = each.group_by(["consumer", "rule"], use_threads=False).aggregate(folds)
    rows = grouped.sort_by([("consumer", "ascending"), ("rule", "ascending")]).to_pylist()
    return ProtectedMessages(
        action=action,
        messages=pc.sum(total["messages"], min_count=0).as_py(),
        bytes=pc.sum(total["bytes"], min_count=0).as_py(),
        by_consumer=tuple(
            ProtectedFor(
                consumer=consumers[row["consumer"]],
                rule=RULE_NAMES[row["rule"]],
                messages=row["messages_sum"],
                bytes=row["bytes_sum"],
                oldest_ts_ns=row["oldest_ts_ns_min"],
            )
            for row in rows
        ),
        missing=missing,
    )
