"""A replay of a stored stream: its messages are read, and published again to a server that exists in rules alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config.changed import replayed_stream
from retention.context.context import OpenedStream
from retention.core.policy import describe
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.planners.table import runner
from retention.replay.limits import refuse_unanswerable, replay_limits
from retention.replay.publishes import READ_COLUMNS, publishes_of
from retention.replay.result import Replay, ReplayRequest
from retention.rules.replay.fates import states_at
from retention.rules.replay.replay import replay
from retention.schemas.messages import FILE_COLUMNS


def replay_stream(opened: OpenedStream, engines: Engines, request: ReplayRequest) -> Replay:
    """Replay the messages of a stream under some limits; nothing is written.

    Narrow columns and header blocks of all messages are in memory, payloads never.

    Raises:
        UsageError: a setting is not one that a replay knows, or not valid; or the stream was never written to.
        RefusedError: what such a stream holds depends on more than publishes and limits.
        DamagedError: a file is damaged.
    """
    if opened.config.topic is not None:
        refuse_unanswerable(opened.config)
    config = replayed_stream(opened.config, request.settings)
    limits = replay_limits(config)
    stored = _stored(opened, engines)
    until_ns = request.instants[-1]
    fates = replay(publishes_of(stored, opened.config.storage, config), limits, until_ns)
    seqs = stored["seq"].to_numpy()
    first = int(seqs[0]) if len(seqs) else max(config.first_seq, 1)
    return Replay(
        opened.name,
        request.settings,
        tuple(describe(config.policy())),
        until_ns,
        fates,
        tuple(states_at(fates, request.instants, first)),
        _missing(seqs),
    )


def _stored(opened: OpenedStream, engines: Engines) -> pa.Table:
    """The columns of all messages that a replay reads, by sequence."""
    if not opened.store.exists():
        raise UsageError(
            f"{opened.name}: it holds nothing to replay; write to it first, or restore it"
        )
    inventory = opened.store.inventory(opened.store.snapshot(), runner(opened, engines))
    empty = pa.schema([FILE_COLUMNS.field(name) for name in READ_COLUMNS]).empty_table()
    files = opened.store.data_files(inventory.files)
    parts = [read_columns(file, READ_COLUMNS)[0].cast(empty.schema) for file in files]
    stored = pa.concat_tables([empty, *parts])
    seqs = stored["seq"].to_numpy()
    return stored if (np.diff(seqs) > 0).all() else stored.sort_by("seq")


def _missing(seqs: np.ndarray) -> int:
    return int(seqs[-1] - seqs[0] + 1 - len(seqs)) if len(seqs) else 0
