"""The setting of a rule: its key in the configuration, its value in a policy, and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from retention.core.policy import Policy
from retention.core.units import MICROSECOND, format_duration, format_size

Unit = Literal["ns", "us", "bytes", "messages", "subjects"]


@dataclass(frozen=True)
class Setting:
    """The limit of a rule of streams; a higher limit keeps more messages."""

    key: str
    """Its key in the configuration."""
    field: str
    """Its field in the policy; None there: no limit."""
    unit: Unit
    refuses: bool = False
    """Whether `discard: new` makes it refuse new messages, so that it removes none."""

    def of(self, policy: Policy) -> int | None:
        """The limit in a policy; None: it removes nothing."""
        return self.of_json(vars(policy))

    def of_json(self, policy: Mapping[str, Any]) -> int | None:
        """The limit in a policy given by its fields; None: it removes nothing."""
        if self.refuses and policy.get("discard") == "new":
            return None
        return policy.get(self.field)

    def spell(self, value: int) -> str:
        """A value of the limit, for reading."""
        return spell_limit(value, self.unit)


@dataclass(frozen=True)
class TopicSetting(Setting):
    """The limit of a rule of topics."""

    def of_json(self, policy: Mapping[str, object]) -> int | None:
        """The limit in a policy given by its fields; None: it removes nothing, or the policy is not a topic's."""
        topic = policy.get("topic") or {}
        return (topic if isinstance(topic, Mapping) else vars(topic)).get(self.field)


@dataclass(frozen=True)
class Switch(Setting):
    """The setting of a rule that is on or off; on is the limit 0."""

    def of_json(self, policy: Mapping[str, object]) -> int | None:
        """0 if the rule is on; None: it removes nothing."""
        return 0 if policy.get(self.field) else None

    def spell(self, value: int) -> str:
        """The limit that each message brings with it."""
        del value
        return "their own TTL"


def spell_limit(value: int, unit: Unit) -> str:
    """A limit, for reading."""
    match unit:
        case "ns":
            return format_duration(value)
        case "us":
            return format_duration(value * MICROSECOND)
        case "bytes":
            return format_size(value)
        case "messages" | "subjects":
            return f"{value:,}"
