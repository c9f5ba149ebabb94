"""Planning of a pass that replays: what a server would have removed message by message, since the last pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.config.changed import replay_settings, replayed_as
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.core.inventory import Inventory
from retention.core.read_count import ReadCount
from retention.core.spans import spans_of
from retention.engines.select import Engines
from retention.plan.build import make_removal, under_holds
from retention.plan.plan import Plan
from retention.plan.remaining import all_remaining
from retention.planners.probe import StoredRows
from retention.planners.table import runner
from retention.planners.veto import veto
from retention.ports import Snapshot
from retention.replay.limits import replay_limits
from retention.replay.resume import Digests, first_state, resume, update
from retention.replay.stored import stored_publishes
from retention.rules.fold import fold
from retention.rules.holds import LegalHolds
from retention.rules.replay.publishes import Publishes
from retention.rules.replay.state import ReplayState
from retention.rules.replay.verdicts import verdicts_of
from retention.rules.veto import any_kept
from retention.stores.kept_ids import IdDigests
from retention.stores.replay_states import ReplayStates


@dataclass(frozen=True)
class NextReplay:
    """The state that a pass commits, for the next one to go on from."""

    state: ReplayState
    before: int
    """The number of the record that the pass went on from; 0: it began anew."""


@dataclass(frozen=True)
class ReplayPlanning:
    """The plan of a pass that replays, and its inputs."""

    plan: Plan
    snapshot: Snapshot
    inventory: Inventory
    gone: pa.Table
    """The messages that the server does not hold, whether legal holds keep them or not; shape `GONE`."""
    goes_on: NextReplay | None
    """None: the next pass goes on from where this one did."""


Reading = Callable[[OpenedStream, Inventory, StreamConfig], tuple[Publishes, ReadCount]]
"""`stored_publishes`, or a function that remembers its answers."""


def plan_replay(
    opened: OpenedStream, as_of_ns: int, engines: Engines, read: Reading = stored_publishes
) -> ReplayPlanning:
    """Plan one pass over an existing stream with `mode: replay`.

    A changed configuration acts at the instant of the pass, as an update does on a server: until then the limits of the
    last pass apply.

    Args:
        opened: the stream.
        as_of_ns: the pass's one instant, nanoseconds since the epoch.
        engines: the engines that read rows.
        read: gives what is stored.

    Raises:
        RefusedError: the table needs a feature that this version does not have.
        DamagedError: a file is damaged, or the record that the pass goes on from is missing.
    """
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot, runner(opened, engines))
    states = ReplayStates(opened.layout, inventory.counters)
    state = states.read()
    holds = holds_in_effect(opened, inventory.counters)
    config, settings = opened.config, replay_settings(opened.config)
    before = config if state is None else replayed_as(config, state.settings)
    stored, reads = read(opened, inventory, before)
    is_new = state is None
    if state is None:
        state = replace(first_state(stored.rows, max(config.first_seq, 1)), settings=settings)
    digests = digests_of(snapshot.table_id)
    resumed = resume(stored, state, replay_limits(before), as_of_ns, digests)
    if dict(state.settings) != settings:
        stored, more = read(opened, inventory, config)
        reads += more
        resumed = update(resumed, stored, replay_limits(config), as_of_ns, digests)
    plan = _plan(opened, inventory, as_of_ns, resumed.gone, holds, engines)
    plan = replace(plan, header=replace(plan.header, read=plan.header.read + reads))
    kept = _kept_by(holds, stored, resumed.gone)
    after = replace(resumed.kept(kept), settings=settings)
    changes = is_new or not plan.is_empty or dict(state.settings) != settings
    goes_on = NextReplay(after, states.number) if changes else None
    return ReplayPlanning(plan, snapshot, inventory, resumed.gone, goes_on)


def digests_of(table_id: str) -> Digests:
    """The digests of ids and subjects in the records of one table."""
    known = IdDigests(table_id)
    return lambda names: known.of_all(names).cast(pa.binary())


def _plan(
    opened: OpenedStream,
    inventory: Inventory,
    as_of_ns: int,
    gone: pa.Table,
    holds: LegalHolds,
    engines: Engines,
) -> Plan:
    spans = spans_of(inventory.files)
    decided = fold(spans, [*verdicts_of(spans, gone)])
    asks = StoredRows(opened, engines).of(all_remaining(inventory))
    vetoed = veto(decided, holds.vetoes, asks)
    plan = make_removal(inventory, opened.config.policy(), as_of_ns, vetoed)
    return under_holds(plan, holds, vetoed)


def _kept_by(holds: LegalHolds, stored: Publishes, gone: pa.Table) -> np.ndarray:
    """A mask of the messages that the server does not hold and that legal holds keep here."""
    at = pc.index_in(gone["seq"], value_set=stored.rows["seq"].combine_chunks())
    return any_kept(holds.vetoes, stored.rows.select(["seq", "subject", "ts_ns"]).take(at))
