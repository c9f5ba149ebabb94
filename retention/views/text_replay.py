"""Replays as lines of text and as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retention.core.units import format_instant, format_size
from retention.core.wording import counted
from retention.rules.replay.fates import DUPLICATE, KEPT, REFUSED, HeldState

if TYPE_CHECKING:
    from retention.core.json_object import JsonObject
    from retention.replay.result import Replay


def replay_text(replay: Replay, seqs: Sequence[int] = ()) -> Iterator[str]:
    """The lines of a replay: its limits, what the server held at each instant, what happened, and single fates.

    Raises:
        MissingMessageError: no message that was replayed has one of the sequences.
    """
    changes = ", ".join(f"{key}: {_value(value)}" for key, value in replay.settings.items())
    policy = f" with {changes}" if changes else " with its configuration"
    yield f"{replay.stream}: {counted(replay.published, 'message')} published again to a server{policy}"
    for sentence in replay.limits:
        yield f"  {sentence}"
    for state in replay.states:
        yield f"  at {format_instant(state.at_ns)}: {_held(state)}"
    for event in _events(replay):
        yield f"  until the last of these instants it would have {event}"
    if replay.missing:
        yield (
            f"  {counted(replay.missing, 'sequence has', 'sequences have')} no message: what was published there is "
            "not known, and a server may have held others"
        )
    for seq in seqs:
        yield f"  {fate_text(replay.fate(seq))}"


def fate_text(fate: Mapping[str, Any]) -> str:
    """The fate of one message in a sentence."""
    name = f"message {fate['seq']:,} ({fate['subject']})"
    if fate["fate"] == REFUSED:
        code = "" if fate["code"] is None else f" (server error {fate['code']})"
        return f"{name}: refused, {fate['reason']}{code}"
    if fate["fate"] == DUPLICATE:
        return f"{name}: a duplicate of the server's {fate['by_server_seq']:,}, not stored"
    stored = f"{name}: the server's {fate['server_seq']:,}"
    if fate["fate"] == KEPT:
        return f"{stored}, kept"
    by = fate["by_server_seq"]
    when = "" if by is None else f", when the server's {by:,} was stored"
    return f"{stored}, removed by {fate['reason']} at {format_instant(fate['removed_ns'])}{when}"


def fate_rows(replay: Replay, seqs: Sequence[int] = ()) -> Iterator[JsonObject]:
    """The fates as JSON values, a row for each publish and each marker, or of some messages alone."""
    if seqs:
        yield from map(replay.fate, seqs)
        return
    for batch in replay.fates.to_batches(max_chunksize=1 << 14):
        yield from batch.to_pylist()


def _held(state: HeldState) -> str:
    if not state.messages:
        return f"it would have held nothing; its last sequence was {state.last_seq:,}"
    where = f"on {counted(state.subjects, 'subject')}, first {state.first_seq:,}, last {state.last_seq:,}"
    return f"it would have held {counted(state.messages, 'message')} ({format_size(state.bytes)}) {where}"


def _events(replay: Replay) -> Iterator[str]:
    if replay.removed_by:
        yield f"removed {', '.join(f'{number:,} by {rule}' for rule, number in replay.removed_by.items())}"
    if replay.refused_for:
        yield f"refused {', '.join(f'{number:,} ({words})' for words, number in replay.refused_for.items())}"
    if replay.duplicates:
        yield f"answered {counted(replay.duplicates, 'duplicate')}"
    if replay.markers:
        yield f"written {counted(replay.markers, 'delete marker')}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
