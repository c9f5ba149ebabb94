"""Limits lowered since a stream's last pass, and the removals caused by each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from retention.core.json_object import JsonObject
from retention.core.policy import Policy
from retention.rules.acting import settings_of
from retention.rules.setting import Setting, Switch, Unit


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

    def as_json(self) -> JsonObject:
        """The values by name."""
        return asdict(self)


def lowered_since(before: Mapping[str, object] | None, policy: Policy) -> tuple[LimitChange, ...]:
    """List the limits that are new or lower than before, in the order of a pass.

    Args:
        before: the policy in the record of the last pass; None: there was no pass, and nothing is compared.
        policy: the current policy.
    """
    if before is None:
        return ()
    changes = (_change(setting, before, policy) for setting in settings_of(policy).values())
    return tuple(change for change in dict.fromkeys(changes) if change is not None)


def _change(setting: Setting, before: Mapping[str, object], policy: Policy) -> LimitChange | None:
    """The change of a limit that is new or lower than before; None: it is neither."""
    then, now = setting.of_json(before), setting.of(policy)
    if now is None or isinstance(setting, Switch) or (then is not None and now >= then):
        return None
    return LimitChange(setting.key, then, now, setting.unit)
