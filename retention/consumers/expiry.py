"""Expiry of unused consumers: ephemeral ones, and others with an `inactive_threshold`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from retention.config.consumer import DEFAULT_INACTIVE_THRESHOLD_NS
from retention.consumers.state import ConsumerState


def inactive_threshold_ns(config: Mapping[str, Any]) -> int:
    """Nanoseconds without use after which a consumer expires; 0: never.

    Args:
        config: the consumer's configuration, with the server's JSON names and values.
    """
    configured: int = config.get("inactive_threshold", 0)
    return configured or (0 if config.get("durable_name") else DEFAULT_INACTIVE_THRESHOLD_NS)


def has_expired(config: Mapping[str, object], state: ConsumerState, as_of_ns: int) -> bool:
    """Whether a consumer was unused for too long (server: deleteNotActive); False if its last use is unknown."""
    threshold, last_ns = inactive_threshold_ns(config), state.last_active_ns
    return threshold > 0 and last_ns is not None and as_of_ns - last_ns >= threshold


def mark_used(config: Mapping[str, object], state: ConsumerState, now_ns: int) -> ConsumerState:
    """The state with `now_ns` as the consumer's last use; unchanged for a consumer that never expires."""
    if not inactive_threshold_ns(config):
        return state
    return replace(state, last_active_ns=max(now_ns, state.last_active_ns or 0))
