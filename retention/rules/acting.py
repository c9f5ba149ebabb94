"""The rules by which a policy may remove messages, and their settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from retention.core.policy import Policy
from retention.rules import MAX_TOPIC_SIZE, MESSAGE_EXPIRY
from retention.rules.jetstream.evaluate import ORDER
from retention.rules.setting import Setting, Switch, TopicSetting

_OF_STREAMS: dict[str, Setting] = {rule.name: rule.setting for rule in ORDER}
_OF_TOPICS: dict[str, Setting] = {
    MESSAGE_EXPIRY: TopicSetting("message_expiry", "message_expiry_us", "us"),
    MAX_TOPIC_SIZE: TopicSetting("max_topic_size", "max_topic_size", "bytes"),
}


def settings_of(policy: Policy) -> dict[str, Setting]:
    """Rule → its setting, for all rules of streams or of topics, in the order of a pass."""
    return _OF_STREAMS if policy.topic is None else _OF_TOPICS


def acting_limits(policy: Policy) -> tuple[str, ...]:
    """The names of a policy's rules that remove messages without consumers, in the order of a pass."""
    settings = settings_of(policy).items()
    return tuple(rule for rule, setting in settings if setting.of(policy) is not None)


def acting_rules(policy: Policy) -> tuple[str, ...]:
    """The names of a policy's rules that may remove something: the release by consumers, and limits."""
    releases = () if policy.retention == "limits" else (policy.retention,)
    return (*releases, *acting_limits(policy))


def with_one_rule(policy: Policy, rule: str) -> Policy:
    """A policy with one of its acting rules alone, and without delete markers."""
    settings = settings_of(policy)
    field = settings[rule].field if rule in settings else None
    off: dict[str, Any] = {
        setting.field: False if isinstance(setting, Switch) else None
        for setting in settings.values()
        if setting.field != field
    }
    if policy.topic is not None:
        return replace(policy, topic=replace(policy.topic, **off))
    retention = policy.retention if rule == policy.retention else "limits"
    return replace(policy, retention=retention, subject_delete_marker_ttl_ns=None, **off)
