"""Model of the server's answers to a publish: message by message, from the current content of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from retention.config.stream import StreamConfig
from tests.support.histories.stored import SECOND, Headers, Stored
from tests.support.histories.stream_model import StreamModel


@dataclass(frozen=True)
class Given:
    """A published message."""

    subject: str
    ts_ns: int
    headers: Headers
    payload: bytes


@dataclass(frozen=True)
class Taken:
    """The answers to a batch, and its effects."""

    acks: tuple[tuple[int, bool], ...] = ()
    """The sequence of each message, and whether it is a duplicate."""
    stored: tuple[Stored, ...] = ()
    rolled_up: frozenset[int] = frozenset()
    """The stored messages removed by rollups."""
    next_seq: int = 0
    unstored: int = 0
    """The highest acknowledged sequence that is not stored; 0: none."""
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: str | None = None
    """The server's reason to refuse the batch; None: it is accepted."""


def publish(model: StreamModel, batch: Sequence[Given]) -> Taken:
    """Answer a batch message by message, like the server (publish-and-import.md)."""
    config, next_seq = model.config, model.next_seq
    room = _Room(model)
    ids, acks, kept = dict(model.ids), [], list[Stored]()
    gone: set[int] = set()
    for given in batch:
        message = Stored(
            next_seq, given.subject, given.ts_ns, _clamped(config, given.headers), given.payload
        )
        known = ids.get(message.msg_id or "")
        if known is not None and message.ts_ns - known[1] < config.duplicate_window_ns:
            acks.append((known[0], True))
            continue
        rollup = message.value("Nats-Rollup")
        wanted = _is_wanted(model, message)
        refused = room.refuse(message, bool(rollup)) if wanted else None
        if refused:
            return Taken(refused=refused)
        if rollup:
            is_taken = [
                m
                for m in (*model.messages, *kept)
                if rollup == "all" or m.subject == message.subject
            ]
            gone.update(m.seq for m in is_taken)
            room.drop(gone)
        if wanted:
            room.take(message)
        if wanted or model.holds.cover(message):
            kept.append(message)
        if message.msg_id is not None and config.duplicate_window_ns:
            ids[message.msg_id] = (next_seq, message.ts_ns)
        acks.append((next_seq, False))
        next_seq += 1
    gone = {m.seq for m in (*model.messages, *kept) if m.seq in gone and not model.holds.cover(m)}
    stored = tuple(m for m in kept if m.seq not in gone)
    new = {seq for seq, again in acks if not again}
    unstored = max(new - {m.seq for m in stored}, default=0)
    return Taken(tuple(acks), stored, frozenset(gone & model.live.keys()), next_seq, unstored, ids)


class _Room:
    """The totals for `discard: new`: all stored messages, except those beyond the limit per subject."""

    def __init__(self, model: StreamModel) -> None:
        self._config = model.config
        self._held: list[Stored] = []
        if model.config.discard == "new":
            for message in model.messages:
                self.take(message)

    def take(self, message: Stored) -> None:
        if self._config.discard != "new":
            return
        self._held.append(message)
        cap = self._config.max_msgs_per_subject
        mine = [m for m in self._held if m.subject == message.subject]
        if 0 < cap < len(mine):
            self._held.remove(mine[0])

    def drop(self, gone: set[int]) -> None:
        self._held = [m for m in self._held if m.seq not in gone]

    def refuse(self, message: Stored, rolls_up: bool) -> str | None:
        config = self._config
        if config.discard != "new":
            return None
        mine = [m for m in self._held if m.subject == message.subject]
        at_cap = 0 < config.max_msgs_per_subject <= len(mine)
        if at_cap and config.discard_new_per_subject and not rolls_up:
            return "maximum messages per subject exceeded"
        if 0 < config.max_msgs <= len(self._held) and not at_cap:
            return "maximum messages exceeded"
        held = sum(m.size for m in self._held)
        replaces = at_cap and mine[0].size >= message.size
        if 0 < config.max_bytes < held + message.size and not replaces:
            return "maximum bytes exceeded"
        return None


def _is_wanted(model: StreamModel, message: Stored) -> bool:
    """Whether a message is stored: an `interest` stream may discard one that no consumer wants."""
    if model.config.retention != "interest" or model.config.unmatched != "remove":
        return True
    wanting = [one.wants(message.subject) for one in model.subscribers.values()]
    return not wanting or any(wanting)


def _clamped(config: StreamConfig, headers: Headers) -> Headers:
    """Headers with the TTL raised to at least that of a delete marker (ADR-43)."""
    least = (config.subject_delete_marker_ttl_ns or 0) // SECOND
    ttl = dict(headers).get("Nats-TTL", "")
    if not least or config.max_msgs_per_subject == 1 or not ttl.isdigit() or int(ttl) >= least:
        return headers
    rest = tuple((name, value) for name, value in headers if name != "Nats-TTL")
    return (*rest, ("Nats-TTL", str(least)))
