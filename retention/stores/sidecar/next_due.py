"""The next due instant of a stream, kept beside its statistics, so that a pass before it need not open the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from retention.core.policy import Policy
from retention.ports import Mark
from retention.storage import files
from retention.storage.checksum import parsed
from retention.storage.crash_points import Step, reached

_EDITION = 4
"""Of the rules and of marks: raised when they come to be made otherwise, so that nothing foretold before counts."""


@dataclass(frozen=True)
class Quiet:
    """A state of a stream of which a pass takes nothing until `due_ns`."""

    table_id: str
    due_ns: int
    """Nanoseconds since the epoch; `NEVER`: only a commit changes anything."""
    segments: int
    next_seq: Mapping[int, int]
    foretold: tuple[Mapping[str, int], ...] = ()
    """What is due at later instants; its meaning is the planner's."""
    rests_on: tuple[Mapping[str, Any], ...] = ()
    """What else must be as it was, such as stored offsets; its meaning is the planner's."""
    epoch: int = 0
    """In which its sequences count."""


def recall(root: str, mark: Mark, policy: Policy) -> Quiet | None:
    """What is remembered of exactly this state under this policy by these rules; None if nothing or in doubt."""
    content = files.read_bytes(_place(root))
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        said: dict[str, Any] = parsed(content or b"")
        if said["check"] == _check(said["of"], said["quiet"]) and said["of"] == _of(mark, policy):
            quiet = said["quiet"]
            next_seq = {int(partition): seq for partition, seq in quiet["next_seq"].items()}
            lists = {name: tuple(quiet[name]) for name in ("foretold", "rests_on")}
            return Quiet(**(quiet | {"next_seq": next_seq} | lists))
    return None


def keep(root: str, mark: Mark, policy: Policy, quiet: Quiet) -> None:
    """Remember it; where nothing can be written, nothing is."""
    of = _of(mark, policy)
    held = asdict(quiet) | {"next_seq": {str(key): seq for key, seq in quiet.next_seq.items()}}
    content = {"of": of, "quiet": held, "check": _check(of, held)}
    with suppress(OSError):
        files.replace(_place(root), json.dumps(content).encode())
        reached(Step.DUE_KEPT)


def _of(mark: Mark, policy: Policy) -> dict[str, Any]:
    return {"mark": asdict(mark), "policy": policy.as_json(), "edition": _EDITION}


def _check(*parts: object) -> str:
    """A flipped bit must not put the instant off."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _place(root: str) -> str:
    return files.join(root, "_retention", "due.json")
