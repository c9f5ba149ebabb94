"""Limits lowered since a stream's last pass, and the removals caused by each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from retention.core.policy import Policy

Unit = Literal["ns", "us", "bytes", "messages"]
_OF_STREAM: Mapping[str, tuple[str, Unit]] = {
    "max_age": ("max_age_ns", "ns"),
    "max_msgs": ("max_msgs", "messages"),
    "max_bytes": ("max_bytes", "bytes"),
    "max_msgs_per_subject": ("max_msgs_per_subject", "messages"),
    "delete_retention": ("delete_retention_ns", "ns"),
}
"""Key of a stream → the field of its policy, and the unit of that field."""
_OF_TOPIC: Mapping[str, tuple[str, Unit]] = {
    "message_expiry": ("message_expiry_us", "us"),
    "max_topic_size": ("max_topic_size", "bytes"),
}
"""Key of a topic → the field of its policy, and the unit of that field."""
_OF_HEAD = ("max_msgs", "max_bytes")
"""Keys of limits that remove nothing under `discard: new`."""


@dataclass(frozen=True)
class LimitChange:
    """A limit that keeps fewer messages than before."""

    limit: str
    """The name of its key."""
    before: int | None
    """The limit of the last pass; None: there was none."""
    now: int
    unit: Unit


@dataclass(frozen=True)
class LoweredLimit(LimitChange):
    """A lowered limit, and the removals that it alone causes."""

    removed_messages: int = 0
    """Messages removed only because the limit was lowered."""
    removed_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """The values by name."""
        return asdict(self)


def lowered_since(before: Mapping[str, Any] | None, policy: Policy) -> tuple[LimitChange, ...]:
    """List the limits that are new or lower than before.

    Args:
        before: the policy in the record of the last pass; None: there was no pass, and nothing is compared.
        policy: the current policy.
    """
    if before is None:
        return ()
    keys = _OF_STREAM if policy.topic is None else _OF_TOPIC
    then, now = _limits(before, keys), _limits(policy.as_json(), keys)
    return tuple(
        LimitChange(key, then.get(key), limit, keys[key][1])
        for key, limit in now.items()
        if key not in then or limit < then[key]
    )


def _limits(policy: Mapping[str, Any], keys: Mapping[str, tuple[str, Unit]]) -> dict[str, int]:
    """Key → limit, for the limits of a policy (as JSON values) that remove messages."""
    values = policy if keys is _OF_STREAM else policy.get("topic") or {}
    refusing = _OF_HEAD if policy.get("discard") == "new" else ()
    limits = {key: values.get(field) for key, (field, _) in keys.items() if key not in refusing}
    return {key: limit for key, limit in limits.items() if limit is not None}
