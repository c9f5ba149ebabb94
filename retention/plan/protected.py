"""Messages held back by a pass, for consumers or readers of a topic: how many would have gone, for whom, since when."""

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
    """Messages that one rule would have taken and one consumer still needs."""

    consumer: str
    rule: str
    messages: int
    bytes: int
    oldest_ts_ns: int
    """The instant at which the oldest of them was stored, nanoseconds since the epoch."""


@dataclass(frozen=True)
class ProtectedMessages:
    """Messages that consumers held back, or with `warn` would have."""

    action: HoldAction
    messages: int = 0
    """Number of messages, each counted once, also if several consumers need it."""
    bytes: int = 0
    by_consumer: tuple[ProtectedFor, ...] = ()
    """Entries by consumer, then in the order of the rules."""
    missing: tuple[str, ...] = ()
    """Consumers that the configuration names and that are not there: everything is held for them."""

    def as_json(self) -> dict[str, Any]:
        """The numbers as JSON values."""
        return asdict(self) | {
            "by_consumer": [asdict(entry) for entry in self.by_consumer],
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class ProtectedForReader:
    """Segments that wait for one reader: they would go, and it has not read them to their ends."""

    kind: str
    """`consumer` or `group`."""
    name: str
    offset: int
    """The offset that the reader has stored."""
    stored_ns: int
    """The instant since which it is stored, nanoseconds since the epoch."""
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class ProtectedInPartition:
    """Segments of one partition that are held back."""

    partition: int
    segments: int
    messages: int
    bytes: int
    by_rule: dict[str, int]
    """Rule → the messages that it would take."""
    readers: tuple[ProtectedForReader, ...]
    """Readers for whom they are held back, the slowest first."""


@dataclass(frozen=True)
class ProtectedSegments:
    """Segments of a topic that are held back."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0
    partitions: tuple[ProtectedInPartition, ...] = ()
    """Partitions of which something is held back."""

    def as_json(self) -> dict[str, Any]:
        """The numbers as JSON values."""
        partitions = [
            asdict(partition) | {"readers": [asdict(reader) for reader in partition.readers]}
            for partition in self.partitions
        ]
        return asdict(self) | {"partitions": partitions}


def protected_from_json(values: dict[str, Any] | None) -> ProtectedMessages | None:
    """Read what `ProtectedMessages.as_json` made; None: the policy holds nothing, or it is that of a topic."""
    if values is None or "partitions" in values:
        return None
    by_consumer = tuple(ProtectedFor(**entry) for entry in values["by_consumer"])
    return ProtectedMessages(
        **values | {"by_consumer": by_consumer, "missing": tuple(values["missing"])}
    )


def protected_segments_from_json(values: dict[str, Any] | None) -> ProtectedSegments | None:
    """Read what `ProtectedSegments.as_json` made; None: it holds nothing, or is that of a stream."""
    if values is None or "partitions" not in values:
        return None
    partitions = tuple(
        ProtectedInPartition(
            **entry
            | {"readers": tuple(ProtectedForReader(**reader) for reader in entry["readers"])}
        )
        for entry in values["partitions"]
    )
    return ProtectedSegments(**values | {"partitions": partitions})


def sum_protected(
    ranges: pa.Table, consumers: tuple[str, ...], action: HoldAction, missing: tuple[str, ...]
) -> ProtectedMessages:
    """Sum up the messages that are held for consumers.

    Args:
        ranges: shape `HELD_RANGES`.
        consumers: their names, by number.
        action: what is done about them.
        missing: consumers that are not there.
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
