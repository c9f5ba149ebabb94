"""The next due instant of a stream; before it, a pass need not open the table."""

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
"""The edition of rules and version tokens; raised when either changes, to discard everything stored before."""


@dataclass(frozen=True)
class NextDue:
    """A state of a stream from which no pass removes anything until `due_ns`."""

    table_id: str
    due_ns: int
    """Nanoseconds since the epoch; `NEVER` if only a commit can make anything due."""
    segments: int
    next_seq: Mapping[int, int]
    forecast: tuple[Mapping[str, int], ...] | None = None
    """The forecast of later instants, defined by the planner; None if not yet computed."""
    rests_on: tuple[Mapping[str, object], ...] = ()
    """Everything else that must be unchanged, such as stored offsets; defined by the planner."""
    epoch: int = 0
    """The epoch of its sequences."""
    overdue: Mapping[str, Any] | None = None
    """The messages kept beyond their age limit; defined by the planner."""


def recall(root: str, token: VersionToken, policy: Policy) -> NextDue | None:
    """The stored next due instant for exactly this state, policy and edition of rules; None if there is none."""
    record = _sidecar(root).latest()
    if record is None or record.label.state != _state(token, policy):
        return None
    return record.value


def remember(root: str, token: VersionToken, policy: Policy, due: NextDue) -> None:
    """Store the next due instant of a state under a policy, if the storage is writable."""
    _sidecar(root).save_unsynced(due, _state(token, policy))


def _sidecar(root: str) -> Sidecar[NextDue]:
    place = files.join(root, "_retention", "due.json")
    return Sidecar(place, JsonCodec(_to_json, _from_json), Step.DUE_KEPT, _EDITION)


def _state(token: VersionToken, policy: Policy) -> dict[str, object]:
    return {"mark": vars(token), "policy": policy.as_json()}


def _to_json(due: NextDue) -> dict[str, object]:
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
