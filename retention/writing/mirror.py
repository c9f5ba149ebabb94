"""Carrying the messages of origins over to a mirror or a stream with sources: what is new, in parts, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.position import FIRST_SEQ, Position, locate
from retention.segments import Counters
from retention.staging import Staged, Staging, stage_rows
from retention.writing.admission import Admission, Stalled
from retention.writing.append import Appended, BatchIdentity, append
from retention.writing.carried import mirrored, sourced
from retention.writing.known import Stored
from retention.writing.origin import Origin, Tally, View

PART_BYTES = 1 << 30
"""About so much is carried over by one commit, by the broker's accounting: an interrupted run goes on behind it."""


@dataclass(frozen=True)
class Taken:
    """What one origin gave in one run."""

    origin: str
    messages: int = 0
    bytes: int = 0
    skipped: int = 0
    """Messages that were looked at and not wanted: by the filters, or because their id was there."""
    first_seq: int | None = None
    """The first sequence that a message of it got; None if none came."""
    last_seq: int | None = None
    missing: int = 0
    """Sequences behind the last position that were gone from the origin before they came."""
    position: int = 0
    """The last sequence of the origin that was looked at."""
    stalled: str | None = None
    """Why the next message of the origin is not taken."""


@dataclass(frozen=True)
class Mirrored:
    """What a run carried over to one stream."""

    stream: str
    first_seq: int
    """Of what came; without messages the next sequence."""
    last_seq: int
    origins: Sequence[Taken]

    @property
    def messages(self) -> int:
        """How many messages came."""
        return sum(one.messages for one in self.origins)

    @property
    def bytes(self) -> int:
        """Their size by the broker's accounting."""
        return sum(one.bytes for one in self.origins)

    def as_json(self) -> dict[str, Any]:
        """The numbers as JSON values."""
        summed = {
            name: sum(getattr(one, name) for one in self.origins)
            for name in ("messages", "bytes", "skipped", "missing")
        }
        bounds = {"first_seq": self.first_seq, "last_seq": self.last_seq}
        origins = [vars(one) for one in self.origins]
        return {"stream": self.stream} | summed | bounds | {"origins": origins}


def carry_over(
    target: OpenedStream, origins: Sequence[Origin], as_of_ns: int, part_bytes: int = PART_BYTES
) -> Mirrored:
    """Bring a stream up to where its origins are, one after the other; each part is a commit with its position.

    Args:
        target: the stream; it is created if it does not exist and something is there for it.
        origins: where its messages come from.
        as_of_ns: the time at which a source's messages are stored; a mirror's keep their own.
        part_bytes: how much one commit carries, about.

    Raises:
        RefusedError: an origin is not the one that was taken from before, or the stream refuses a message; what
            came before that is there.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    if target.config.sealed:
        raise RefusedError(
            f"{target.name}: the stream is sealed (server error 10109); nothing was written; remove its "
            "mirror or sources"
        )
    taken = [_Taking(target, origin, as_of_ns, part_bytes).run() for origin in origins]
    next_seq = _next_seq(target)
    first = min((one.first_seq for one in taken if one.first_seq), default=next_seq)
    last = max((one.last_seq for one in taken if one.last_seq), default=next_seq - 1)
    mirrored = Mirrored(target.name, first, last, taken)
    stalled = [one for one in taken if one.stalled]
    if stalled:
        raise RefusedError(
            f"{target.name}: {stalled[0].stalled}; {mirrored.messages:,} messages came; make room (`apply`), or change "
            "the stream's limits, and run again"
        )
    return mirrored


def _next_seq(target: OpenedStream) -> int:
    if not target.store.exists():
        return target.config.first_seq or FIRST_SEQ
    return locate(target).next_seq


class _Taking:
    """Taking from one origin, at one version of it."""

    def __init__(
        self, target: OpenedStream, origin: Origin, as_of_ns: int, part_bytes: int
    ) -> None:
        self._target = target
        self._origin = origin
        self._as_of_ns = as_of_ns
        self._part_bytes = part_bytes
        self._tally = Tally()

    def run(self) -> Taken:
        view = self._origin.look()
        counters = Counters()
        if self._target.store.exists():
            counters = self._target.store.snapshot().counters
        done = _position(self._target.name, self._origin, view, counters)
        taken = Taken(self._origin.source.name, position=done or 0)
        if view is None:
            return taken
        first = self._first(view, done, _next_seq(self._target))
        if done is not None:
            there = view.first_from(first) or view.last_seq + 1
            taken = replace(taken, missing=there - first)
        while taken.position < view.last_seq and taken.stalled is None:
            taken = self._part(view, max(first, taken.position + 1), taken)
        return taken

    def _part(self, view: View, first: int, taken: Taken) -> Taken:
        """Commit the next part; less of it, if a message is refused."""
        until, stalled = view.part_end(first, self._part_bytes), None
        while until > taken.position:
            try:
                appended = self._append(view, until)
            except Stalled as stopped:
                until, stalled = stopped.seq - 1, self._sentence(stopped)
                continue
            looked = 0 if appended.duplicate else self._tally.looked
            return replace(
                taken,
                messages=taken.messages + appended.messages,
                bytes=taken.bytes + appended.bytes,
                first_seq=taken.first_seq or (appended.first_seq if appended.messages else None),
                last_seq=appended.last_seq if appended.messages else taken.last_seq,
                skipped=taken.skipped + looked - appended.messages,
                position=until,
                stalled=stalled,
            )
        return replace(taken, stalled=stalled)

    def _append(self, view: View, until: int) -> Appended:
        config, store = self._target.config, self._target.store
        is_mirror = self._origin.kind == "mirror"
        carry = mirrored(view, config) if is_mirror else sourced(view, config, self._as_of_ns)

        def stage(position: Position, staging: Staging) -> Staged:
            done = _position(self._target.name, self._origin, view, position.snapshot.counters)
            first = self._first(view, done, position.next_seq)
            self._tally = Tally()
            admission = Admission(config, Stored(store, position.inventory.files), self._as_of_ns)
            rows = (
                admission.admit(raw["seq"].to_numpy(), carry(raw))
                for raw in view.rows(first, until, self._tally)
            )
            if not is_mirror:
                return position.stage(staging, rows)
            staged = stage_rows(staging, rows, position.active, position.rule, position.next_seq)
            return replace(staged, next_seq=until + 1)

        return append(self._target, stage, BatchIdentity(self._origin.writer, until, view.table))

    def _first(self, view: View, done: int | None, next_seq: int) -> int:
        """The first sequence of the origin to look at.

        Raises:
            RefusedError: a mirror holds something else behind its position, or more than its origin.
        """
        if self._origin.kind != "mirror":
            return view.start(done)
        if next_seq - 1 > (view.last_seq if done is None else done):
            there = view.last_seq if done is None else done
            raise RefusedError(
                f"{self._target.name}: as a mirror of {view.origin.source.name} it can hold sequences up to {there:,}, "
                f"and its last is {next_seq - 1:,}: others wrote to it; nothing was copied; mirror into a new stream"
            )
        # A backup of the origin may have been imported: the mirror goes on behind it.
        return max(view.start(done), next_seq)

    def _sentence(self, stopped: Stalled) -> str:
        refusal = stopped.refusal
        return (
            f"sequence {stopped.seq:,} of {self._origin.source.name} and what follows stays there "
            f"(server error {refusal.code}): {refusal.reason}"
        )


def _position(stream: str, origin: Origin, view: View | None, counters: Counters) -> int | None:
    """The last sequence of the origin that was looked at; None if it is new to the stream.

    Raises:
        RefusedError: the origin is not the table that was taken from, or is shorter now.
    """
    name = origin.source.name
    done = counters.batches.get(origin.writer)
    if done is None:
        return None
    if view is None or counters.batches.get(view.table) != done:
        another = ", is another stream, or has other filters" if origin.kind == "mirror" else ""
        raise RefusedError(
            f"{stream}: its origin {name} was deleted or made anew since the last run{another}, and its sequences are "
            "not those that came; nothing was copied; take from it into a new stream"
        )
    if done > view.last_seq:
        raise RefusedError(
            f"{stream}: sequences of its origin {name} up to {done:,} came already, and its last is {view.last_seq:,} "
            "now: it was replaced by an older state; nothing was copied; take from it into a new stream"
        )
    return done
