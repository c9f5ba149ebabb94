"""Checks of a swap before its commit, for every table format: requirements, pins, updates, bounds, sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import highest, rows_of
from retention.core.counters import CLAIMS, DROPPED, HISTORY_HEAD, STAGING_CLAIMS, Counters
from retention.core.record_tables import first_outside
from retention.core.row_numbers import rows_at
from retention.core.table_requirements import PLAN_AGAIN, RowsCompared, TableState
from retention.core.wording import wrong_length
from retention.errors import (
    ConflictError,
    ForeignRowsError,
    RefusedError,
    StalePlanError,
    VerificationError,
)
from retention.ports import Swap
from retention.schemas.bounds import MAX_SEQ
from retention.storage import files
from retention.stores.checks.number_bounds import impossible_counters, remedy

_PINNED = ("file_bytes", "modified_ms")
_RANGE = ["path", "partition", "segment", "min_seq", "max_seq"]


def check(stream: str, swap: Swap, live: pa.Table, counters: Counters) -> None:
    """Check a swap against the table that it is about to change.

    Args:
        stream: the stream's name, for messages.
        swap: the requested swap.
        live: all live files: `LOGGED_FILES` with min_seq and max_seq (null if unknown).
        counters: the effective counters.

    Raises:
        StalePlanError: a requirement no longer holds, a pinned file was removed or changed, or an added path is
        already live.
        ConflictError: a counter would fall, or the batch is already committed.
        ForeignRowsError: a remaining file or a counter has impossible sequences.
        RefusedError: the swap would assign or restore impossible sequences.
        VerificationError: the swap contradicts itself, or would duplicate a sequence.
    """
    _check_names(stream, swap)
    _refuse_dropped(stream, swap, live, counters)
    stays, taken = _parted(swap, live)
    state = TableState(stream, counters, stays, swap.sets)
    for requirement in swap.requirements:
        requirement.check(state)
    _check_pins(stream, swap, taken)
    for update in swap.updates:
        update.check(state)
    _check_bounds(swap, state)
    if swap.add.num_rows:
        _check_segments(stream, swap)
    if swap.add.num_rows and live.num_rows:
        again = live.filter(pc.is_in(live["path"], value_set=swap.add["path"].combine_chunks()))
        if again.num_rows:
            raise StalePlanError(
                f"stream {stream}: {again['path'][0].as_py()} is in the table already; {PLAN_AGAIN}"
            )
        _check_ranges(stream, swap, taken, stays)


def refuse_below(stream: str, swap: Swap, counters: Counters) -> None:
    """Refuse a swap whose files might meet others, where those are not looked at.

    Raises:
        ConflictError: an added file begins below the next sequence of its partition.
        VerificationError: the swap removes files.
    """
    if swap.remove.num_rows:
        raise VerificationError(
            f"stream {stream}: a swap that only adds files would remove some; nothing was committed; this is a defect "
            "of the program, report it"
        )
    for row in swap.add.select(["path", "partition", "min_seq"]).to_pylist():
        next_seq = counters.next_seq.get(row["partition"], 0)
        if row["min_seq"] < next_seq:
            raise ConflictError(
                f"stream {stream}: {row['path']} begins with sequence {row['min_seq']}, and the next is {next_seq}; "
                "nothing was changed; try again"
            )


def _refuse_dropped(stream: str, swap: Swap, live: pa.Table, counters: Counters) -> None:
    """Refuse to change a dropped stream, except to restore it, to begin another table or to claim dead files.

    Another writer's files in it were never dropped; a table with such files is live.

    Raises:
        ConflictError: it was dropped since the swap was prepared.
    """
    if not counters.dropped_ns or live.num_rows or DROPPED in swap.sets:
        return
    if swap.add.num_rows or not swap.sets.keys() <= {CLAIMS, STAGING_CLAIMS, HISTORY_HEAD}:
        raise ConflictError(
            f"stream {stream}: it was dropped meanwhile; nothing was changed; try again, which begins another table"
        )


def check_staged(swap: Swap, locations: Sequence[str]) -> None:
    """Check the files that a swap adds against storage.

    Args:
        swap: the requested swap.
        locations: the locations of its added files, in order.

    Raises:
        VerificationError: a file is missing, or its length differs from its statistics.
    """
    lengths = files.lengths(locations)
    for location, length, expected in zip(
        locations, lengths, swap.add["file_bytes"].to_pylist(), strict=True
    ):
        if length != expected:
            raise VerificationError(
                f"{location}: the file that was to be committed {wrong_length(length, expected)}; nothing was "
                "committed; run again"
            )


def _check_names(stream: str, swap: Swap) -> None:
    chunks = [*swap.remove["path"].chunks, *swap.add["path"].chunks]
    names = pa.chunked_array(chunks, pa.string()).combine_chunks()
    counters = [name for update in swap.updates for name in update.counters]
    if len(set(counters)) != len(counters):
        raise VerificationError(
            f"stream {stream}: a swap sets a counter twice; nothing was committed; this is a defect of the program, "
            "report it"
        )
    if len(names.unique()) != len(names):
        raise VerificationError(
            f"stream {stream}: a swap names a file twice; nothing was committed; this is a defect of "
            "the program, report it"
        )
    outside = first_outside(names)
    if outside is not None:
        raise VerificationError(
            f"stream {stream}: a swap names {outside}, outside the table's directory; nothing was "
            "committed; restore the record that it comes from, or plan again"
        )


def _check_pins(stream: str, swap: Swap, taken: pa.Table) -> None:
    """Refuse if one of the files to remove is gone or changed.

    Args:
        stream: the stream's name, for messages.
        swap: the requested swap.
        taken: the live files that it removes.
    """
    pinned = swap.remove
    if all(taken[name].equals(pinned[name]) for name in ("path", *_PINNED)):
        return
    at = pc.index_in(pinned["path"], value_set=taken["path"].combine_chunks())
    if at.null_count:
        path = pinned["path"].filter(at.is_null())[0].as_py()
        raise StalePlanError(f"stream {stream}: {path} is no longer in the table; {PLAN_AGAIN}")
    for name in _PINNED:
        changed = pc.not_equal(taken[name].take(at), pinned[name])
        if pc.any(changed, min_count=0).as_py():
            path = pinned["path"].filter(changed)[0].as_py()
            raise StalePlanError(
                f"stream {stream}: {path} has another {name} than planned; {PLAN_AGAIN}"
            )


def _parted(swap: Swap, live: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The live files that a swap leaves, and those that it removes."""
    if not swap.remove.num_rows:
        return live, live.slice(0, 0)
    goes = rows_of(live["path"], swap.remove["path"]) >= 0
    return rows_at(live, np.flatnonzero(~goes)), rows_at(live, np.flatnonzero(goes))


def _check_bounds(swap: Swap, state: TableState) -> None:
    """Refuse to leave or restore impossible sequences; updates check their own bounds."""
    stream = state.stream
    again = highest(swap.add["max_seq"])
    if again is not None and again > MAX_SEQ:
        raise RefusedError(
            f"stream {stream}: sequence {again} would come back, and sequences end at 2^62; nothing was committed; "
            "what has it stays out of the table"
        )
    stays = state.stays
    wrong = []
    if any((highest(stays[name]) or 0) > MAX_SEQ for name in ("max_seq", "segment")):
        doubtful = pc.or_kleene(_beyond(stays["max_seq"]), _beyond(stays["segment"]))
        wrong = stays.filter(doubtful)["path"].to_pylist()
    wrong += [
        f"its log ({name} {next(iter(values.values()))})"
        for name, values in impossible_counters(state.in_epoch).items()
    ]
    if wrong:
        raise ForeignRowsError(
            f"stream {stream}: {wrong[0]} counts beyond 2^62, where sequences end; nothing was changed; "
            f"{remedy(stream)}"
        )


def _beyond(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.greater(values, MAX_SEQ)


def _check_segments(stream: str, swap: Swap) -> None:
    """Refuse added rows outside their segment, or at or above the next sequence."""
    next_seq = swap.next_seq
    for row in swap.add.select(_RANGE).to_pylist():
        above = next_seq.get(row["partition"], row["max_seq"] + 1)
        if not row["segment"] <= row["min_seq"] <= row["max_seq"] < above:
            raise VerificationError(
                f"stream {stream}: {row['path']} would hold sequences {row['min_seq']} to "
                f"{row['max_seq']}, outside {row['segment']} to {above - 1}; nothing was committed; this "
                "is a defect of the program, report it"
            )


def _check_ranges(stream: str, swap: Swap, taken: pa.Table, stays: pa.Table) -> None:
    """Refuse added rows within the range of another file, unless the rows of both were compared."""
    tables = swap.add, _uncompared(swap, stays), taken
    for partition in swap.add["partition"].unique().to_pylist():
        added, rest, replaced = (_of_partition(table.select(_RANGE), partition) for table in tables)
        for row in overlapping(added, rest, replaced):
            # A writer that assigned sequences before a rival's commit must assign them again.
            kind = ConflictError if swap.assigns_sequences else VerificationError
            raise kind(
                f"stream {stream}: {row['path']} holds sequences {row['min_seq']} to {row['max_seq']}, and "
                "a file of the table has rows among them; a sequence may not stand twice, nothing was "
                "committed; plan again"
            )


def _uncompared(swap: Swap, stays: pa.Table) -> pa.Table:
    """The remaining files without a comparison of their rows with the added rows."""
    for requirement in swap.requirements:
        if isinstance(requirement, RowsCompared):
            stays = stays.filter(pc.invert(pc.is_in(stays["path"], value_set=requirement.paths)))
    return stays


def _of_partition(table: pa.Table, partition: int) -> pa.Table:
    return table.filter(pc.equal(table["partition"], partition))


def overlapping(added: pa.Table, rest: pa.Table, replaced: pa.Table) -> Iterator[dict[str, Any]]:
    """Added files with a range that meets a remaining file, except those within the range of a file they replace.

    With remaining files 1 to 4 and 8 to 12, an added file 5 to 7 meets none, and 7 to 9 meets the second.

    Args:
        added: `partition`, `segment`, `min_seq` and `max_seq` of files of one partition.
        rest: the same columns of the remaining files, null if unknown.
        replaced: the same columns of the files that the added ones replace.
    """
    if rest["max_seq"].null_count:
        rest = rest.filter(pc.is_valid(rest["max_seq"]))
    if not rest.num_rows:
        return
    low, high = rest["min_seq"].to_numpy(), rest["max_seq"].to_numpy()
    order = np.argsort(low)
    reach = np.maximum.accumulate(high[order])
    first, last = added["min_seq"].to_numpy(), added["max_seq"].to_numpy()
    # Count the files that begin at or before an added file's end; the farthest-reaching of them decides.
    before = np.searchsorted(low[order], last, side="right")
    meets = (before > 0) & (reach[np.maximum(before - 1, 0)] >= first)
    for at in np.flatnonzero(meets):
        row = added.slice(int(at), 1).to_pylist()[0]
        inside = pc.and_(
            pc.equal(replaced["segment"], row["segment"]),
            pc.and_(
                pc.less_equal(replaced["min_seq"], row["min_seq"]),
                pc.greater_equal(replaced["max_seq"], row["max_seq"]),
            ),
        )
        if not pc.any(inside, min_count=0).as_py():
            yield row
