"""Encoding of causes: a Parquet table of the files that a plan was made from, and JSON values for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.prefix import TailTotals
from retention.core.spans import Array
from retention.plan.cause import Cause
from retention.plan.cause_files import CauseFiles, Remaining
from retention.plan.consumer_snapshot import ConsumerSnapshot, pins_as_json, pins_from_json
from retention.plan.loaded_ranges import loaded_ranges
from retention.rules import RULES
from retention.rules.jetstream.interest import Interest
from retention.rules.jetstream.protection import Protection
from retention.schemas.plan import CAUSE_FILES, REMOVED_RANGES, SAVED_CAUSE
from retention.stores.offset_table import offsets_as_json, offsets_from_json

_LISTS = {
    "rules": "rule",
    "first_seqs": "first_seq",
    "last_seqs": "last_seq",
    "counts": "messages",
    "sizes": "bytes",
}
"""Column of a saved cause → column of its ranges."""
_OF_FILE = [*CAUSE_FILES.names, "remaining_messages", "remaining_bytes"]
_MOST_SEQUENCES = 2**26
"""More sequences than a consumer ever has pending; a document with more is damaged."""


def cause_tables(cause: Cause, written: pa.Array) -> Iterator[pa.Table]:
    """The files of a cause, in pieces of shape `SAVED_CAUSE`.

    Args:
        cause: the cause of a plan.
        written: paths of files with ranges in the plan itself; these ranges are not written twice.
    """
    files = cause.files.select(CAUSE_FILES.names).cast(CAUSE_FILES)
    known = pc.is_in(files["path"], value_set=written).to_numpy()
    remaining, nothing = cause.remaining, pa.nulls(files.num_rows, pa.int64())
    for name in ("messages", "bytes"):
        left = nothing if remaining is None else pa.array(getattr(remaining, name))
        files = files.append_column(f"remaining_{name}", left)
    start = 0
    for parts in cause.parts.only(~known).tables():
        end = parts["file"][-1].as_py() + 1
        yield _with_lists(files.slice(start, end - start), parts, start)
        start = end
    yield _with_lists(files.slice(start), REMOVED_RANGES.empty_table(), start)


def _with_lists(files: pa.Table, parts: pa.Table, start: int) -> pa.Table:
    """Files from row number `start` on, with their ranges as lists; shape `SAVED_CAUSE`."""
    numbers = np.arange(start, start + files.num_rows + 1)
    offsets = pa.array(np.searchsorted(parts["file"].to_numpy(), numbers), pa.int32())
    lists = [
        pa.ListArray.from_arrays(offsets, parts[name].combine_chunks()) for name in _LISTS.values()
    ]
    return pa.table([*files.columns, *lists], schema=SAVED_CAUSE)


def cause_as_json(cause: Cause) -> dict[str, object]:
    """All of a cause except its files, as JSON values."""
    return {
        "next_seq": _named(cause.next_seq),
        "open_base": _named(cause.open_base),
        "tail": vars(cause.tail).copy(),
        "next_due_ns": cause.next_due_ns,
        "scan_end": cause.scan_end,
        "refused": _ranges(np.array(sorted(cause.refused), dtype=np.int64)),
        "consumers": [_interest_as_json(interest) for interest in cause.consumers.interests],
        "pins": pins_as_json(cause.consumers.pins),
        "expired": pins_as_json(cause.consumers.expired),
        "protection": None if cause.protection is None else _protection_as_json(cause.protection),
        "offsets": None if cause.offsets is None else offsets_as_json(cause.offsets),
    }


def cause_from(read_files: Callable[[], CauseFiles], values: Mapping[str, Any]) -> Cause:
    """The cause from `cause_as_json` values; its files are read on demand."""
    protection, offsets = values["protection"], values["offsets"]
    return Cause(
        read_files=read_files,
        next_seq=_numbered(values["next_seq"]),
        open_base=_numbered(values["open_base"]),
        tail=TailTotals(**values["tail"]),
        next_due_ns=values["next_due_ns"],
        scan_end=values["scan_end"],
        refused=frozenset(_seqs(values["refused"]).tolist()),
        consumers=ConsumerSnapshot(
            tuple(_interest_from_json(entry) for entry in values["consumers"]),
            pins_from_json(values["pins"]) or (),
            pins_from_json(values["expired"]) or (),
        ),
        protection=None if protection is None else _protection_from_json(protection),
        offsets=None if offsets is None else offsets_from_json(offsets),
    )


def cause_files(tables: Iterable[pa.Table]) -> CauseFiles:
    """Read the tables of `cause_tables`, in pieces of any size.

    Raises:
        ValueError: a table has values that no cause has.
    """
    files = [SAVED_CAUSE.empty_table().select(_OF_FILE)]

    def ranges() -> Iterator[pa.Table]:
        before = 0
        for table in tables:
            yield _parts(table, before)
            before += table.num_rows
            files.append(table.select(_OF_FILE))

    parts = loaded_ranges(ranges())
    together = pa.concat_tables(files)
    return CauseFiles(together.select(CAUSE_FILES.names), _remaining(together), parts)


def _remaining(table: pa.Table) -> Remaining | None:
    columns = [table[f"remaining_{name}"] for name in ("messages", "bytes")]
    missing = {column.null_count for column in columns}
    if missing == {table.num_rows}:
        return None
    if missing != {0}:
        raise ValueError("remaining_messages or remaining_bytes is missing in a row")
    return Remaining(*(column.to_numpy() for column in columns))


def _parts(table: pa.Table, before: int) -> pa.Table:
    """Ranges that rules remove from a cause's files, from its list columns; shape `REMOVED_RANGES`.

    Args:
        table: some of the files, shape `SAVED_CAUSE`.
        before: the number of files before them.
    """
    lengths = {name: pc.list_value_length(table[name]).to_numpy() for name in _LISTS}
    if any((lengths[name] != lengths["rules"]).any() for name in _LISTS):
        raise ValueError("rules, first_seqs, last_seqs, counts and sizes differ in number")
    columns = {shape: pc.list_flatten(table[name]) for name, shape in _LISTS.items()}
    if any(column.null_count for column in columns.values()):
        raise ValueError("a range of sequences lacks a number")
    rules = columns["rule"].to_numpy()
    if ((rules < 0) | (rules >= len(RULES))).any():
        raise ValueError("rules names an unknown rule")
    if pc.any(pc.greater(columns["first_seq"], columns["last_seq"])).as_py():
        raise ValueError("a first sequence is above its last")
    files = np.repeat(np.arange(before, before + table.num_rows), lengths["rules"])
    return pa.table({"file": files} | columns).select(REMOVED_RANGES.names).cast(REMOVED_RANGES)


def _interest_as_json(interest: Interest) -> dict[str, object]:
    return {
        "consumer": interest.consumer,
        "ack_floor": interest.ack_floor,
        "delivered": interest.delivered,
        "filters": list(interest.filters),
        "explicit": interest.explicit,
        "pending": _ranges(interest.pending),
        "redelivered": _ranges(interest.redelivered),
    }


def _interest_from_json(values: Mapping[str, Any]) -> Interest:
    seqs = {name: _seqs(values[name]) for name in ("pending", "redelivered")}
    return Interest(**{**values, "filters": tuple(values["filters"]), **seqs})


def _protection_as_json(protection: Protection) -> dict[str, object]:
    return {
        "interests": [_interest_as_json(interest) for interest in protection.interests],
        "after_ns": protection.after_ns,
        "from_seq": protection.from_seq,
    }


def _protection_from_json(values: Mapping[str, Any]) -> Protection:
    interests = tuple(_interest_from_json(entry) for entry in values["interests"])
    return Protection(interests, values["after_ns"], values["from_seq"])


def _named(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): int(number) for partition, number in numbers.items()}


def _numbered(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): number for partition, number in numbers.items()}


def _ranges(seqs: Array) -> list[list[int]]:
    """Ascending sequences as ranges, both ends inclusive: 4, 5, 6, 9 are [4, 6] and [9, 9]."""
    if not len(seqs):
        return []
    starts = np.append(0, np.flatnonzero(np.diff(seqs) != 1) + 1)
    ends = np.append(starts[1:], len(seqs)) - 1
    pairs: list[list[int]] = np.stack([seqs[starts], seqs[ends]], axis=1).tolist()
    return pairs


def _seqs(ranges: list[list[int]]) -> Array:
    """Ascending sequences from `_ranges` values: [4, 6] and [9, 9] are 4, 5, 6, 9.

    Raises:
        ValueError: the sequences exceed the maximum number.
    """
    if sum(last - first + 1 for first, last in ranges) > _MOST_SEQUENCES:
        raise ValueError(f"ranges name more than {_MOST_SEQUENCES:,} sequences")
    parts = [np.arange(first, last + 1, dtype=np.int64) for first, last in ranges]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
