"""The retention of a Delta table's removed files and old versions: properties that follow the configuration."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from retention.delta.snapshot import DeltaSnapshot
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.places import delta_name
from retention.stores.delta.compatibility import lists_features
from retention.stores.layout import Layout

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger(__name__)

_REMOVED = "delta.deletedFileRetentionDuration"
_VERSIONS = "delta.logRetentionDuration"
_DELTAS_OWN = {_REMOVED: "interval 7 days", _VERSIONS: "interval 30 days"}
"""The defaults for tables without these properties (Delta protocol)."""
_WEEK_S = 7 * 86_400
_UNITS_S = {"week": _WEEK_S, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


def grace_properties(grace_ns: int) -> dict[str, str]:
    """The properties of a table that keeps removed files for `grace_ns`, and versions a week longer."""
    grace_s = -(-grace_ns // 10**9)
    return {
        _REMOVED: f"interval {grace_s} seconds",
        _VERSIONS: f"interval {grace_s + _WEEK_S} seconds",
    }


def differing(table: DeltaSnapshot, grace_ns: int) -> dict[str, str]:
    """The properties that differ from the configuration, with its values; versions may be kept longer."""
    actual = {**_DELTAS_OWN, **table.properties}
    wanted = grace_properties(grace_ns)
    kept, wants = ({name: _seconds(of[name]) for name in wanted} for of in (actual, wanted))
    changed = {}
    if kept[_REMOVED] != wants[_REMOVED]:
        changed[_REMOVED] = wanted[_REMOVED]
    if kept[_VERSIONS] < wants[_VERSIONS]:
        changed[_VERSIONS] = wanted[_VERSIONS]
    return changed


def kept_ns(table: DeltaSnapshot) -> int:
    """The table's own retention of removed files, nanoseconds."""
    return _seconds({**_DELTAS_OWN, **table.properties}[_REMOVED]) * 10**9


def log_kept_ns(table: DeltaSnapshot) -> int | None:
    """The table's retention of log entries, nanoseconds; None if its owner keeps them forever."""
    properties = {**_DELTAS_OWN, **table.properties}
    if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    return _seconds(properties[_VERSIONS]) * 10**9


def pending(layout: Layout, table: DeltaSnapshot, grace_ns: int) -> bool:
    """Whether a run must still set properties, or log that it does not."""
    changed = differing(table, grace_ns)
    return bool(changed) and not (lists_features(table) and _was_left(layout, changed))


def follow(
    layout: Layout, table: DeltaSnapshot, grace_ns: int, for_deltalake: Callable[[], DeltaTable]
) -> None:
    """Set the properties that differ from the configuration, and log it; a rival's commit defers this.

    A table that lists its features is not changed: deltalake would add features to its protocol, and Spark cannot drop
    all of them. That is logged once.
    """
    changed = differing(table, grace_ns)
    if not changed:
        return
    if lists_features(table):
        _leave(layout, changed)
        return
    from deltalake import PostCommitHookProperties
    from deltalake.exceptions import DeltaError

    stream, listed = layout.stream, _listed(changed)
    no_hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        for_deltalake().alter.set_table_properties(changed, post_commithook_properties=no_hooks)
        reached(Step.GRACE_FOLLOWED)
    except (DeltaError, OSError) as error:
        _log.warning("stream %s: %s was not set: %s", stream, listed, error)
        return
    _log.warning("stream %s: %s, as the configuration's grace says now", stream, listed)


def owners_statement(layout: Layout, table: DeltaSnapshot, grace_ns: int) -> str | None:
    """The SQL for the table's owner to set the properties; None if a run sets them or none differs."""
    changed = differing(table, grace_ns)
    return _statement(layout, changed) if changed and lists_features(table) else None


def _leave(layout: Layout, changed: Mapping[str, str]) -> None:
    if _was_left(layout, changed):
        return
    _log.warning(
        "stream %s: the configuration's grace wants %s, which was not set, because setting it from here would add "
        "features to the table's protocol, which other programs may refuse; VACUUM follows the table: run %s in Spark",
        layout.stream,
        _listed(changed),
        _statement(layout, changed),
    )
    with suppress(OSError):
        files.replace(_note(layout), json.dumps(changed, sort_keys=True).encode())
        reached(Step.GRACE_LEFT)


def _was_left(layout: Layout, changed: Mapping[str, str]) -> bool:
    return files.read_bytes(_note(layout)) == json.dumps(changed, sort_keys=True).encode()


def _note(layout: Layout) -> str:
    """The location of the note on the properties that were left to the owner."""
    return layout.engine_path("grace-left.json")


def _listed(changed: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items())


def _statement(layout: Layout, changed: Mapping[str, str]) -> str:
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in changed.items())
    return f"ALTER TABLE {delta_name(layout.messages)} SET TBLPROPERTIES ({properties})"


def _seconds(interval: str | None) -> int:
    """The length of an interval in seconds; 0 for an unreadable one, so that it is replaced."""
    parts = re.findall(r"(\d+)\s+(week|day|hour|minute|second)s?\b", (interval or "").lower())
    return sum(int(number) * _UNITS_S[unit] for number, unit in parts)
