"""Views of a mirror run: the messages carried from origins, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.json_object import JsonObject
from retention.core.outcomes import Outcome, failure_entry
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.ingest.mirror.pull import PullResult
    from retention.ingest.mirror.run import Mirrored

_NOTHING: JsonObject = {
    "stream": None,
    "messages": 0,
    "bytes": 0,
    "skipped": 0,
    "missing": 0,
    "rolled_up": 0,
    "first_seq": None,
    "last_seq": None,
    "origins": [],
}


def mirror_text(mirrored: Mirrored) -> list[str]:
    """Lines for a stream that received messages: its sum, then each origin."""
    stored = counted(mirrored.messages, "message")
    where = f", sequences {mirrored.first_seq:,} to {mirrored.last_seq:,}" * bool(mirrored.messages)
    return [f"{mirrored.stream}: stored {stored}{where}", *map(_origin_text, mirrored.origins)]


def mirror_entry(outcome: Outcome[Mirrored]) -> JsonObject:
    """The JSON entry of a stream that received messages; every requested stream has one."""
    if outcome.value is None:
        return _NOTHING | failure_entry(outcome)
    return outcome.value.as_json() | {"seconds": round(outcome.seconds, 6)}


def _origin_text(taken: PullResult) -> str:
    parts = [f"{counted(taken.messages, 'message')} up to its sequence {taken.position:,}"]
    if taken.skipped:
        parts.append(f"{taken.skipped:,} not stored")
    if taken.missing:
        parts.append(f"{counted(taken.missing, 'sequence')} missing at the origin")
    if taken.rolled_up:
        parts.append(f"{counted(taken.rolled_up, 'older message')} rolled up")
    return f"  from {taken.origin}: {', '.join(parts)}"
