"""Messages held by a pass for consumers or readers of a topic: numbers, consumers, and oldest times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.policy import HoldAction
from retention.rules.row_verdicts import ANYBODY
from retention.schemas.rule_names import RULE_NAMES


@dataclass(frozen=True)
class ProtectedFor:
    """Messages that one rule would remove and one consumer still needs."""

    consumer: str
    rule: str
    messages: int
    bytes: int
    oldest_ts_ns: int
    """The time of the oldest of them, nanoseconds since the epoch."""


@dataclass(frozen=True)
class ProtectedMessages:
    """Messages held for consumers, or with `warn` only counted."""

    action: HoldAction
    messages: int = 0
    """The number of messages; one needed by several consumers counts once."""
    bytes: int = 0
    by_consumer: tuple[ProtectedFor, ...] = ()
    """Entries sorted by consumer, then in the order of rules."""
    missing: tuple[str, ...] = ()
    """Consumers that the configuration names but that do not exist: everything is held for them."""

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        return asdict(self) | {
            "by_consumer": [asdict(entry) for entry in self.by_consumer],
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class ProtectedForReader:
    """Segments held for one reader: they are due, and it has not read them completely."""

    kind: str
    """`consumer` or `group`."""
    name: str
    offset: int
    """The stored offset of the reader."""
    stored_ns: int
    """The time when it was stored, nanoseconds since the epoch."""
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class ProtectedInPartition:
    """Held segments of one partition."""

    partition: int
    segments: int
    messages: int
    bytes: int
    by_rule: dict[str, int]
    """Rule → the messages that it would remove."""
    readers: tuple[ProtectedForReader, ...]
    """Readers that they are held for, slowest first."""


@dataclass(frozen=True)
class ProtectedSegments:
    """Held segments of a topic."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0
    partitions: tuple[ProtectedInPartition, ...] = ()
    """Partitions with held segments."""

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        partitions = [
            asdict(partition) | {"readers": [asdict(reader) for reader in partition.readers]}
            for partition in self.partitions
        ]
        return asdict(self) | {"partitions": partitions}


def protected_from_json(values: dict[str, Any] | None) -> ProtectedMessages | None:
    """Read `ProtectedMessages.as_json` values; None: the policy holds nothing, or the values are those of a topic."""
    if values is None or "partitions" in values:
        return None
    by_consumer = tuple(ProtectedFor(**entry) for entry in values["by_consumer"])
    return ProtectedMessages(
        **values | {"by_consumer": by_consumer, "missing": tuple(values["missing"])}
    )


def protected_segments_from_json(values: dict[str, Any] | None) -> ProtectedSegments | None:
    """Read `ProtectedSegments.as_json` values; None: nothing is held, or the values are those of a stream."""
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
    """Sum up the messages held for consumers.

    Args:
        ranges: shape `HELD_RANGES`.
        consumers: their names, by number.
        action: the action on them.
        missing: consumers that do not exist.
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
