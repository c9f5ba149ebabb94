"""Reconciliation of consumers with a list of configurations: the records to change, and the start of each new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.consumers.configured import listed_consumers
from retention.consumers.expiry import mark_used
from retention.consumers.state import ConsumerState, new_state, with_lasts
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.core.subjects import matching_mask
from retention.datafile.parquet import read_columns
from retention.errors import RefusedError
from retention.stores.consumer_table import Change, ConsumerRecord


def reconcile(
    opened: OpenedStream,
    listed: Sequence[ConsumerConfig],
    inventory: Inventory,
    records: Sequence[ConsumerRecord],
) -> dict[str, Change]:
    """Plan the change of each listed consumer's record, by name; unlisted consumers are unchanged.

    Args:
        opened: the stream.
        listed: the wanted configurations.
        inventory: the stream's files, from which a new consumer's start is computed.
        records: the existing consumers.

    Raises:
        RefusedError: a listed consumer cannot be created beside the existing ones, or cannot be updated as listed.
    """
    if not listed:
        return {}
    stored = {record.consumer: _stored(opened, record) for record in records}
    now_ns = opened.clock()
    target = opened.config.model_copy(update={"consumers": tuple(listed)})
    return {
        name: partial(_become, wanted, partial(_state_at_start, opened, inventory, wanted), now_ns)
        for name, wanted in listed_consumers(target, stored).items()
    }


def with_config(record: ConsumerRecord, config: Mapping[str, object]) -> ConsumerRecord:
    """A consumer's record with a new configuration, as an edit that is not counted yet."""
    return replace(record, revision=record.revision + 1, counted=False, config=config)


def _become(
    wanted: ConsumerConfig,
    start: Callable[[], ConsumerState],
    now_ns: int,
    current: ConsumerRecord | None,
) -> ConsumerRecord:
    config = wanted.as_json()
    if current is None or current.deleted:
        revision = 1 if current is None else current.revision + 1
        folded = {} if current is None else current.folded
        state = mark_used(config, start(), now_ns)
        return ConsumerRecord(
            wanted.name, config, state, revision=revision, counted=False, folded=folded
        )
    known = ConsumerConfig(**current.config)
    if known.as_json() == config:
        return current
    return replace(with_config(current, config), state=mark_used(config, current.state, now_ns))


def _stored(opened: OpenedStream, record: ConsumerRecord) -> ConsumerConfig:
    try:
        return with_server_defaults(ConsumerConfig(**record.config), opened.config)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise RefusedError(
            f"{opened.name}: consumer {record.consumer} has a configuration that cannot be read ({wrong['msg']}: "
            f"{'.'.join(map(str, wrong['loc']))}), so that no consumer can be listed beside it; nothing was changed; "
            "remove the list from the configuration, or delete that consumer"
        ) from error


def _state_at_start(
    opened: OpenedStream, inventory: Inventory, consumer: ConsumerConfig
) -> ConsumerState:
    """The state of a new consumer: it needs nothing below its start sequence.

    Raises:
        DamagedError: a file with required times or subjects cannot be read.
    """
    after = next_seq(opened, inventory)
    first_seq = int(pc.min(inventory.files["min_seq"]).as_py() or after)
    lasts: list[int] = []
    match consumer.deliver_policy:
        case "all":
            start = first_seq
        case "new":
            start = after
        case "by_start_sequence":
            start = consumer.opt_start_seq
        case "by_start_time":
            start = _first_since(opened, inventory, consumer.opt_start_time or 0, after)
        case "last":
            start = max(_last_seqs(opened, inventory, consumer), default=after - 1)
        case "last_per_subject":
            lasts = _last_seqs(opened, inventory, consumer)
            start = min(lasts, default=first_seq)
    state = new_state(min(max(start, first_seq), after))
    return with_lasts(state, lasts, after - 1) if lasts else state


def _last_seqs(opened: OpenedStream, inventory: Inventory, consumer: ConsumerConfig) -> list[int]:
    """The last sequence of each subject that a consumer wants."""
    counts = opened.store.subject_counts(inventory.files)
    if consumer.filters:
        counts = counts.filter(matching_mask(counts["subject"], consumer.filters))
    lasts = counts.group_by("subject").aggregate([("last_seq", "max")])
    seqs: list[int] = lasts["last_seq_max"].to_pylist()
    return seqs


def _first_since(opened: OpenedStream, inventory: Inventory, since_ns: int, after: int) -> int:
    """The sequence of the first message that is not older than an instant; `after` if there is none."""
    young = inventory.files.filter(pc.greater_equal(inventory.files["max_ts_ns"], since_ns))
    young = young.sort_by("min_seq")
    first = after
    for number, low in enumerate(young["min_seq"].to_pylist()):
        if low >= first:
            break
        [file] = opened.store.data_files(young.slice(number, 1))
        first = min(first, _first_young(read_columns(file, ("seq", "ts_ns"))[0], since_ns))
    return first


def _first_young(rows: pa.Table, since_ns: int) -> int:
    return int(rows["seq"].to_numpy()[np.argmax(rows["ts_ns"].to_numpy() >= since_ns)])
