"""The replay of a stream in commits: where the next pass goes on, after a pass and after its undo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.spoken_commands import command
from retention.core.table_requirements import AssertReplay, TableRequirement
from retention.core.table_updates import SetReplay, TableUpdate
from retention.errors import RefusedError
from retention.planners.cached import Planned
from retention.ports import Snapshot
from retention.stores.replay_states import RecordedState, ReplayStates


@dataclass(frozen=True)
class ReplayTerms:
    """The part of a commit that takes the replay of a stream further, or back."""

    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()


def replay_terms(opened: OpenedStream, planned: Planned, run: str) -> ReplayTerms:
    """The terms of a pass: it records the state for the next one; a pass by an update ends the replay.

    Raises:
        StorageError: the record cannot be written.
    """
    snapshot, plan = planned.snapshot, planned.plan
    if snapshot is None or plan.header.request is not None:
        return ReplayTerms()
    if planned.goes_on is None:
        number = snapshot.counters.replay
        if not number or plan.header.policy.mode == "replay":
            return ReplayTerms()
        return ReplayTerms((AssertReplay(number),), (SetReplay(0),))
    states = ReplayStates(opened.layout, snapshot.counters)
    recorded = RecordedState(planned.goes_on.state, run, planned.goes_on.before)
    number = states.keep(recorded, opened.clock(), opened.config.grace_ns)
    return ReplayTerms((AssertReplay(planned.goes_on.before),), (SetReplay(number),))


def refuse_replayed_on(opened: OpenedStream, counters: Counters, run: str) -> None:
    """Refuse to undo a pass whose replay later passes have taken further.

    Raises:
        RefusedError: names the pass to undo first.
        DamagedError: a record of the replay is missing, or cannot be read.
    """
    chain = list(_chain(opened, counters))
    if any(each.run == run for each in chain[1:]):
        last = chain[0].run
        raise RefusedError(
            f"{opened.name}: run {run} cannot be undone yet: run {last} went on with its replay; nothing was changed; "
            f"undo that one first: {command('undo', opened.name, last)}"
        )


def undo_terms(opened: OpenedStream, snapshot: Snapshot, run: str) -> ReplayTerms:
    """The terms of the undo of a run: the next pass goes on from where that run did.

    Raises:
        DamagedError: the record from which the run went on is missing, or cannot be read.
        StorageError: the record cannot be written.
    """
    states = ReplayStates(opened.layout, snapshot.counters)
    if not states.number or states.record(states.number).run != run:
        return ReplayTerms()
    before = states.record(states.record(states.number).before)
    number = states.keep(before, opened.clock(), opened.config.grace_ns)
    return ReplayTerms((AssertReplay(states.number),), (SetReplay(number),))


def _chain(opened: OpenedStream, counters: Counters) -> Iterator[RecordedState]:
    """The records of the replay that counts, from the last pass to the first one that is still recorded."""
    states = ReplayStates(opened.layout, counters)
    number = states.number
    while number and states.has(number):
        recorded = states.record(number)
        yield recorded
        number = recorded.before
