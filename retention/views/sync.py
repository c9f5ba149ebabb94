"""Views of a sync: the messages copied from a live server, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.json_object import JsonObject
from retention.core.outcomes import Outcome, failure_entry
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.ingest.sync.iggy.result import TopicSynced
    from retention.ingest.sync.result import Synced

_NOTHING: JsonObject = {
    "stream": None,
    "origin": None,
    "created": None,
    "messages": 0,
    "bytes": 0,
    "commits": 0,
    "position": None,
    "last_seq": None,
    "behind": None,
    "missed": 0,
    "missed_ranges": [],
    "restored": False,
    "ended": None,
    "notes": [],
}
_ENDED = {"end": "", "signal": "; ended by a signal", "sealed": "; the server's stream is sealed"}


def sync_text(synced: Synced) -> list[str]:
    """Lines for a synced stream: its sums, then each thing that a person should know."""
    behind = f", {synced.behind:,} behind" if synced.behind else ""
    where = f"up to sequence {synced.position:,} of {synced.origin}{behind}"
    copied = f"{counted(synced.messages, 'message')} in {counted(synced.commits, 'commit')}"
    lines = [f"{synced.stream}: copied {copied}, {where}{_ENDED[synced.ended]}"]
    if synced.missed.count:
        lines.append(f"  missed: {synced.missed}: the server removed them before they were copied")
    if synced.is_restored:
        lines.append(
            f"  restored: the server's stream was created anew ({synced.created}) with the same messages"
        )
    return [*lines, *(f"  {note}" for note in synced.notes)]


def topic_sync_text(synced: TopicSynced) -> list[str]:
    """Lines for a synced topic: its sums, then each partition, and each thing that a person should know."""
    copied = f"{counted(synced.messages, 'message')} in {counted(synced.commits, 'commit')}"
    lines = [f"{synced.stream}: copied {copied} of {synced.origin}{_ENDED[synced.ended]}"]
    for each in synced.partitions:
        behind = f", {each.end - each.next_offset:,} behind" * (each.end > each.next_offset)
        reach = f"up to offset {each.next_offset - 1:,}" if each.next_offset else "empty"
        lines.append(f"  partition {each.partition}: {reach}{behind}")
    lines += [
        f"  missed: {each}: the server removed them before they were copied"
        for each in synced.missed
    ]
    return [*lines, *(f"  {note}" for note in synced.notes)]


def sync_entry(outcome: Outcome[Synced] | Outcome[TopicSynced]) -> JsonObject:
    """The JSON entry of a synced stream or topic; every requested one has one."""
    if outcome.value is None:
        return _NOTHING | failure_entry(outcome)
    return outcome.value.as_json() | {"seconds": round(outcome.seconds, 6)}
