"""The next due instant of a stream: before it a pass need not open the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from retention.core.policy import Policy
from retention.ports import VersionToken
from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar

_EDITION = 5
"""The edition of rules and marks, raised when either comes to be made otherwise: nothing remembered before counts."""


@dataclass(frozen=True)
class NextDue:
    """A state of a stream of which a pass takes nothing until `due_ns`."""

    table_id: str
    due_ns: int
    """Nanoseconds since the epoch; `NEVER`: only a commit changes anything."""
    segments: int
    next_seq: Mapping[int, int]
    forecast: tuple[Mapping[str, int], ...] | None = None
    """The forecast of later instants; its meaning is the planner's. None: nobody was shown it yet."""
    rests_on: tuple[Mapping[str, Any], ...] = ()
    """All else that must be as it was, such as stored offsets; its meaning is the planner's."""
    epoch: int = 0
    """The epoch in which its sequences count."""
    overdue: Mapping[str, Any] | None = None
    """All that is older than its limit and stays; its meaning is the planner's."""


def recall(root: str, mark: VersionToken, policy: Policy) -> NextDue | None:
    """The next due instant remembered of exactly this state under this policy by these rules; else None."""
    return _sidecar(root).load(_state(mark, policy))


def remember(root: str, mark: VersionToken, policy: Policy, due: NextDue) -> None:
    """Keep the next due instant of a state under a policy; where nothing can be written, nothing is."""
    _sidecar(root).save(due, _state(mark, policy))


def _sidecar(root: str) -> Sidecar[NextDue]:
    place = files.join(root, "_retention", "due.json")
    return Sidecar(place, JsonCodec(_to_json, _from_json), Step.DUE_KEPT, _EDITION)


def _state(mark: VersionToken, policy: Policy) -> dict[str, Any]:
    return {"mark": asdict(mark), "policy": policy.as_json()}


def _to_json(due: NextDue) -> dict[str, Any]:
    return asdict(due) | {"next_seq": {str(key): seq for key, seq in due.next_seq.items()}}


def _from_json(_: object, fields: dict[str, Any]) -> NextDue:
    next_seq = {int(partition): seq for partition, seq in fields["next_seq"].items()}
    forecast, rests_on = fields["forecast"], tuple(fields["rests_on"])
    return NextDue(
        **fields
        | {
            "next_seq": next_seq,
            "forecast": None if forecast is None else tuple(forecast),
            "rests_on": rests_on,
        }
    )
