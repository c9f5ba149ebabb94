"""A replay of a stored stream: its messages are read, and published again to a server that exists in rules alone."""

from __future__ import annotations

from retention.config.changed import replayed_stream
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.core.policy import describe
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.planners.table import runner
from retention.replay.limits import replay_limits
from retention.replay.result import Replay, ReplayRequest
from retention.replay.stored import stored_publishes
from retention.rules.replay.fates import states_at
from retention.rules.replay.replay import replay


def replay_stream(opened: OpenedStream, engines: Engines, request: ReplayRequest) -> Replay:
    """Replay the messages of a stream under some limits; nothing is written.

    The narrow columns of all messages are in memory, and the header blocks of one file; payloads are not read.

    Raises:
        UsageError: a setting is not one that a replay knows, or not valid; or the stream was never written to.
        RefusedError: what such a stream holds depends on more than publishes and limits.
        DamagedError: a file is damaged.
    """
    config = replayed_stream(opened.config, request.settings)
    limits = replay_limits(config)
    inventory = _inventory(opened, engines)
    publishes, _ = stored_publishes(opened, inventory, config)
    until_ns = request.instants[-1]
    fates = replay(publishes, limits, until_ns)
    lowest, following = max(config.first_seq, 1), next_seq(opened, inventory)
    seqs = publishes.rows["seq"].to_numpy()
    return Replay(
        opened.name,
        request.settings,
        tuple(describe(config.policy())),
        until_ns,
        fates,
        tuple(states_at(fates, request.instants, int(seqs[0]) if len(seqs) else following)),
        following - lowest - len(seqs),
    )


def _inventory(opened: OpenedStream, engines: Engines) -> Inventory:
    if not opened.table.exists():
        raise UsageError(
            f"{opened.name}: it holds nothing to replay; write to it first, or restore it"
        )
    return opened.store.inventory(opened.store.snapshot(), runner(opened, engines))
