"""A replay of a stored stream: its messages are read, and published again to a server that exists in rules alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config import StreamConfig
from retention.config.changed import replayed_stream
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.core.policy import describe
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.planners.table import runner
from retention.replay.limits import replay_limits
from retention.replay.publishes import READ_COLUMNS, publishes_of
from retention.replay.result import Replay, ReplayRequest
from retention.rules.replay.fates import states_at
from retention.rules.replay.publishes import PUBLISHES, Expectation, Publishes
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
    publishes = _publishes(opened, inventory, config)
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
    if not opened.store.exists():
        raise UsageError(
            f"{opened.name}: it holds nothing to replay; write to it first, or restore it"
        )
    return opened.store.inventory(opened.store.snapshot(), runner(opened, engines))


def _publishes(opened: OpenedStream, inventory: Inventory, config: StreamConfig) -> Publishes:
    """All messages as publishes; the header blocks of one file at a time are in memory."""
    parts, expectations = [PUBLISHES.empty_table()], dict[int, Expectation]()
    for file in opened.store.data_files(inventory.files):
        stored, _ = read_columns(file, READ_COLUMNS)
        part = publishes_of(stored, opened.config.storage, config)
        parts.append(part.rows)
        expectations |= part.expectations
    rows = pa.concat_tables(parts)
    rises = (np.diff(rows["seq"].to_numpy()) > 0).all()
    return Publishes(rows if rises else rows.sort_by("seq"), expectations)
