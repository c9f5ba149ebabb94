"""Interest of a stream's consumers, stored or listed: the messages that each wants; contradictions are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.config.checks.workqueue import overlapping_consumers
from retention.consumers.ack_gaps import Numbers
from retention.consumers.expiry import has_expired
from retention.consumers.state import contradictions
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.context.subject_counts import counts_in_pieces
from retention.core.inventory import Inventory
from retention.datafile.parquet import read_columns
from retention.errors import RefusedError
from retention.interest.reconcile import reconcile
from retention.plan.consumer_snapshot import ConsumerSnapshot, Pin
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable


def consumer_snapshot_of(
    opened: OpenedStream, inventory: Inventory, as_of_ns: int
) -> ConsumerSnapshot:
    """Take a snapshot of the interest of a stream's consumers; empty where its policy does not consult consumers.

    Args:
        opened: the stream.
        inventory: the stream's files, read before the consumers: the commit detects any later edit.
        as_of_ns: the pass's instant: consumers that have expired by then have no interest.

    Raises:
        RefusedError: consumers contradict themselves, the stream, or one another.
        DamagedError: a consumer's record cannot be read.
    """
    if not opened.config.policy().asks_consumers:
        return ConsumerSnapshot()
    records = consumers_of(opened, inventory)
    expired = [record for record in records if is_expired(opened, record, as_of_ns)]
    over = {record.consumer for record in expired}
    records = [record for record in records if record.consumer not in over]
    last_seq = next_seq(opened, inventory) - 1
    _refuse_inconsistent(opened, records, last_seq)
    return ConsumerSnapshot(
        tuple(interest_of(record, opened.config.subjects) for record in records),
        pins_of(records),
        pins_of(expired),
    )


def is_expired(opened: OpenedStream, record: ConsumerRecord, as_of_ns: int) -> bool:
    """Whether a consumer was unused for too long.

    A consumer that the configuration lists never expires, and none does where `retention` is `limits`.
    """
    if opened.config.retention == "limits":
        return False
    listed = any(consumer.name == record.consumer for consumer in opened.config.consumers)
    return not listed and has_expired(record.config, record.state, as_of_ns)


def pins_of(records: Iterable[ConsumerRecord]) -> tuple[Pin, ...]:
    """Pin the revisions of consumers, for a plan."""
    return tuple(Pin(record.consumer, record.revision, record.version) for record in records)


def consumers_of(opened: OpenedStream, inventory: Inventory) -> list[ConsumerRecord]:
    """A stream's consumers sorted by name: the stored ones, and those in its configuration as listed there.

    Raises:
        DamagedError: a consumer's record cannot be read, or all of them are lost.
        RefusedError: a listed consumer cannot be created or updated as listed.
    """
    table = ConsumerTable(opened.root, inventory.counters.generation)
    table.refuse_lost(inventory.counters)
    records = table.live(inventory.counters)
    by_name = {record.consumer: record for record in records}
    for name, change in reconcile(opened, opened.config.consumers, inventory, records).items():
        by_name[name] = change(by_name.get(name) or table.read(name))
    return [record for _, record in sorted(by_name.items())]


def interest_of(record: ConsumerRecord, subjects: tuple[str, ...]) -> Interest:
    """Derive a consumer's interest from its configuration and state.

    Args:
        record: the consumer.
        subjects: the stream's subjects: a consumer whose filters are the same wants every message.
    """
    filters = filters_of(record.config)
    state = record.state
    return Interest(
        consumer=record.consumer,
        ack_floor=state.ack_floor.stream_seq,
        delivered=state.delivered.stream_seq,
        filters=() if set(filters) == set(subjects) else filters,
        explicit=record.config.get("ack_policy") == "explicit",
        pending=state.pending["seq"].to_numpy(),
        redelivered=state.redelivered["seq"].to_numpy(),
    )


def _refuse_inconsistent(
    opened: OpenedStream, records: Sequence[ConsumerRecord], last_seq: int
) -> None:
    """Refuse to remove anything while the needs of consumers are uncertain.

    Args:
        opened: the stream.
        records: its consumers.
        last_seq: the last sequence that the stream assigned.

    Raises:
        RefusedError: naming the first consumer, and the remedy.
    """
    why = next(_wrong(opened, records, last_seq), None)
    if why is not None:
        raise RefusedError(f"{opened.name}: {why}")


def _wrong(opened: OpenedStream, records: Sequence[ConsumerRecord], last_seq: int) -> Iterator[str]:
    for record in records:
        faults = contradictions(record.state, last_seq)
        if faults:
            yield (
                f"the state of consumer {record.consumer} is impossible: {'; '.join(faults)}; the messages that it "
                "needs are unknown, so nothing was removed; import its state from the broker again, or delete that "
                "consumer"
            )
        for wanted in filter(has_wildcard_look_alike, filters_of(record.config)):
            yield (
                f"filter {wanted!r} of consumer {record.consumer} has a token that begins with a wildcard and is not "
                "one, which servers match inconsistently; the messages that it needs are unknown, so nothing was "
                "removed; give it other filters, or delete it"
            )
    filters = {
        record.consumer: filters_of(record.config)
        for record in records
        if not (record.config.get("direct") or record.config.get("sourcing"))
    }
    both = overlapping_consumers(filters) if opened.config.retention == "workqueue" else None
    if both is not None:
        yield (
            f"consumers {both[0]} and {both[1]} of a work queue take the same messages, but each is for only one "
            "(error code 10100); nothing was removed; give them filters that do not overlap, or delete one"
        )


def matching_seqs(opened: OpenedStream, inventory: Inventory, interest: Interest) -> Numbers | None:
    """The stored sequences above a consumer's ack floor that it wants, ascending; None: it wants all of them.

    Files without a subject that it wants are not opened.

    Raises:
        DamagedError: a file cannot be read.
    """
    if not interest.filters:
        return None
    open_ended = inventory.files.filter(pc.greater(inventory.files["max_seq"], interest.ack_floor))
    numbers = [
        pc.unique(counts["file"].filter(pa.array(interest.matches(counts["subject"]))))
        for counts in counts_in_pieces(opened.store, open_ended)
    ]
    wanted = open_ended.take(pa.chunked_array(numbers, pa.int64()))
    parts = [np.zeros(0, dtype=np.int64)]
    for file in opened.store.data_files(wanted):
        rows, _ = read_columns(file, ("seq", "subject"))
        parts.append(rows["seq"].to_numpy()[interest.matches(rows["subject"])])
    seqs = np.concatenate(parts)
    return np.sort(seqs[seqs > interest.ack_floor])
