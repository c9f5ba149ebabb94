"""How long a Delta table keeps removed files and old versions: properties that follow the configuration."""

from __future__ import annotations

import logging
import re

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from retention.steps import Step, reached

_log = logging.getLogger(__name__)

_REMOVED = "delta.deletedFileRetentionDuration"
_VERSIONS = "delta.logRetentionDuration"
_DELTAS_OWN = {_REMOVED: "interval 7 days", _VERSIONS: "interval 30 days"}
"""What holds where a table says nothing (Delta protocol)."""
_WEEK_S = 7 * 86_400
_UNITS_S = {"week": _WEEK_S, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def grace_properties(grace_ns: int) -> dict[str, str]:
    """The properties of a table whose removed files stay for that long: its versions stay a week longer."""
    grace_s = -(-grace_ns // 10**9)
    return {
        _REMOVED: f"interval {grace_s} seconds",
        _VERSIONS: f"interval {grace_s + _WEEK_S} seconds",
    }


def differing(table: DeltaTable, grace_ns: int) -> dict[str, str]:
    """The properties that the configuration wants otherwise; versions that are kept for longer are left alone."""
    said = {**_DELTAS_OWN, **table.metadata().configuration}
    wanted = grace_properties(grace_ns)
    kept, wants = ({name: _seconds(of[name]) for name in wanted} for of in (said, wanted))
    changed = {}
    if kept[_REMOVED] != wants[_REMOVED]:
        changed[_REMOVED] = wanted[_REMOVED]
    if kept[_VERSIONS] < wants[_VERSIONS]:
        changed[_VERSIONS] = wanted[_VERSIONS]
    return changed


def follow(stream: str, table: DeltaTable, grace_ns: int) -> None:
    """Write into the table what the configuration wants otherwise, and say so; a rival's commit puts it off."""
    changed = differing(table, grace_ns)
    if not changed:
        return
    listed = ", ".join(f"{name} = {value}" for name, value in changed.items())
    try:
        table.alter.set_table_properties(changed, post_commithook_properties=_NO_HOOKS)
        reached(Step.GRACE_FOLLOWED)
    except (DeltaError, OSError) as error:
        _log.warning("stream %s: %s was not set: %s", stream, listed, error)
        return
    _log.warning("stream %s: %s, as the configuration's grace says now", stream, listed)


def _seconds(interval: str | None) -> int:
    """The length of an interval; of one that nobody can read, none, so that it is written anew."""
    parts = re.findall(r"(\d+)\s+(week|day|hour|minute|second)s?\b", (interval or "").lower())
    return sum(int(number) * _UNITS_S[unit] for number, unit in parts)
