"""What must hold before a swap is committed, whatever the table format: pins, counters, sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Counters
from retention.errors import (
    ConflictError,
    ForeignRowsError,
    RefusedError,
    StalePlanError,
    VerificationError,
)
from retention.ports import Swap
from retention.storage import files
from retention.stores.checks.number_bounds import impossible_counters, remedy
from retention.stores.layout import leaving
from schemas.bounds import MAX_SEQ

_PIN = ["path", "file_bytes", "modified_ms"]
_AGAIN = "nothing was changed; plan again"


def check(stream: str, swap: Swap, live: pa.Table, counters: Counters) -> None:
    """Hold a swap against the table that it is about to change.

    Args:
        stream: the stream's name, for messages.
        swap: what is asked.
        live: all live files: `LOGGED_FILES` with min_seq and max_seq (null where nobody knows them).
        counters: the effective ones.

    Raises:
        StalePlanError: a pinned file is gone or changed, or an added path is live already.
        ConflictError: a counter would fall, or a batch is there already.
        ForeignRowsError: what stays has, or is counted to, sequences that no message can have.
        RefusedError: it would give out such sequences, or bring them back.
        VerificationError: the swap contradicts itself, or would put a sequence there twice.
    """
    _check_names(stream, swap)
    _check_epoch(stream, swap, live, counters)
    _check_pins(stream, swap, live)
    _check_counters(stream, swap, counters)
    _check_bounds(stream, swap, live, counters)
    if swap.add.num_rows:
        again = live.filter(pc.is_in(live["path"], value_set=swap.add["path"].combine_chunks()))
        if again.num_rows:
            raise StalePlanError(
                f"stream {stream}: {again['path'][0].as_py()} is in the table already; {_AGAIN}"
            )
        _check_sequences(stream, swap, live)


def check_staged(swap: Swap, locations: Sequence[str]) -> None:
    """Hold the files that a swap adds against what is on the disk.

    Args:
        swap: what is asked.
        locations: where its added files lie, in order.

    Raises:
        VerificationError: a file is missing or has another length than its statistics say.
    """
    found = files.lengths(locations)
    for location, length, expected in zip(
        locations, found, swap.add["file_bytes"].to_pylist(), strict=True
    ):
        if length != expected:
            state = "is missing" if length is None else f"has {length} bytes, not {expected}"
            raise VerificationError(
                f"{location}: the file that was to be committed {state}; nothing was committed; run again"
            )


def _check_names(stream: str, swap: Swap) -> None:
    chunks = [*swap.remove["path"].chunks, *swap.add["path"].chunks]
    names = pa.chunked_array(chunks, pa.string()).combine_chunks()
    if len(names.unique()) != len(names):
        raise VerificationError(
            f"stream {stream}: a swap names a file twice; nothing was committed; this is a defect of "
            "the program, report it"
        )
    outside = names.filter(leaving(names))
    if len(outside):
        raise VerificationError(
            f"stream {stream}: a swap names {outside[0].as_py()}, outside the table's directory; nothing was "
            "committed; restore the record that it comes from, or plan again"
        )


def _check_pins(stream: str, swap: Swap, live: pa.Table) -> None:
    if not swap.remove.num_rows:
        return
    pinned = swap.remove.select(_PIN).sort_by("path")
    found = live.select(_PIN).filter(
        pc.is_in(live["path"], value_set=pinned["path"].combine_chunks())
    )
    found = found.sort_by("path")
    if found.num_rows != pinned.num_rows:
        gone = pc.invert(pc.is_in(pinned["path"], value_set=found["path"].combine_chunks()))
        path = pinned["path"].filter(gone)[0].as_py()
        raise StalePlanError(f"stream {stream}: {path} is not in the table any more; {_AGAIN}")
    for name in _PIN[1:]:
        changed = pc.not_equal(found[name], pinned[name])
        if pc.any(changed).as_py():
            path = pinned["path"].filter(changed)[0].as_py()
            raise StalePlanError(
                f"stream {stream}: {path} has another {name} than planned; {_AGAIN}"
            )


def _check_epoch(stream: str, swap: Swap, live: pa.Table, counters: Counters) -> None:
    """A swap acts in the epoch that it was made in; where it sets another, what stays is below the next sequences."""
    if swap.epoch is not None and swap.epoch[0] != counters.epoch:
        raise StalePlanError(f"stream {stream}: it was purged meanwhile; {_AGAIN}")
    if swap.sets_epoch is None:
        return
    stays = _staying(swap, live)
    for partition in stays["partition"].unique().to_pylist():
        there = _of_partition(stays, partition)
        is_below = pc.less(there["max_seq"], swap.next_seq.get(partition, 0))
        beyond = there["path"].filter(pc.invert(pc.fill_null(is_below, fill_value=False)))
        if len(beyond):
            raise StalePlanError(
                f"stream {stream}: {beyond[0].as_py()} came meanwhile, and offsets cannot begin again beside it; "
                f"{_AGAIN}"
            )


def _staying(swap: Swap, live: pa.Table) -> pa.Table:
    goes = pc.is_in(live["path"], value_set=swap.remove["path"].combine_chunks())
    return live.filter(pc.invert(goes))


def _check_counters(stream: str, swap: Swap, counters: Counters) -> None:
    here = Counters() if swap.sets_epoch is not None else counters
    for name, wanted, current in (
        ("next sequence", swap.next_seq, here.next_seq),
        ("open base", swap.open_base, here.open_base),
    ):
        for partition, value in wanted.items():
            if value < current.get(partition, 0):
                raise ConflictError(
                    f"stream {stream}: the {name} of partition {partition} is {current[partition]} "
                    f"already, a commit would set it to {value}; nothing was changed; try again"
                )
    if swap.consumers is not None and swap.consumers[0] != counters.consumers:
        raise StalePlanError(
            f"stream {stream}: a consumer was created, edited or deleted meanwhile; {_AGAIN}"
        )
    if swap.released is not None and swap.released[0] != counters.released:
        raise StalePlanError(
            f"stream {stream}: another run recorded meanwhile what is released; {_AGAIN}"
        )
    for writer, batch in swap.batches.items():
        last = here.batches.get(writer)
        if last is not None and batch <= last:
            raise ConflictError(
                f"stream {stream}: batch {last} of writer {writer} is there already, so batch {batch} "
                "was not written again"
            )


def _check_bounds(stream: str, swap: Swap, live: pa.Table, counters: Counters) -> None:
    """No commit leaves, counts to or gives out sequences that no message can have."""
    highest = max([*swap.next_seq.values(), *swap.open_base.values()], default=0)
    if highest > MAX_SEQ + 1:
        raise RefusedError(
            f"stream {stream}: the next sequence would be {highest}, and sequences end at 2^62: all up to there are "
            "given out; nothing was committed; go on in a new stream"
        )
    again = pc.max(swap.add["max_seq"]).as_py()
    if again is not None and again > MAX_SEQ:
        raise RefusedError(
            f"stream {stream}: sequence {again} would come back, and sequences end at 2^62; nothing was committed; "
            "what has it stays out of the table"
        )
    doubtful = live.filter(pc.or_kleene(_beyond(live["max_seq"]), _beyond(live["segment"])))
    wrong = _staying(swap, doubtful)["path"].to_pylist()
    if swap.sets_epoch is None:
        wrong += [
            f"its log ({name} {next(iter(values.values()))})"
            for name, values in impossible_counters(counters).items()
        ]
    if wrong:
        raise ForeignRowsError(
            f"stream {stream}: {wrong[0]} counts beyond 2^62, where sequences end; nothing was changed; "
            f"{remedy(stream)}"
        )


def _beyond(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.greater(values, MAX_SEQ)


def _check_sequences(stream: str, swap: Swap, live: pa.Table) -> None:
    """Added rows lie in their segment, below the next sequence, and where no other file has rows."""
    for row in swap.add.select(["path", "partition", "segment", "min_seq", "max_seq"]).to_pylist():
        above = swap.next_seq.get(row["partition"], row["max_seq"] + 1)
        if not row["segment"] <= row["min_seq"] <= row["max_seq"] < above:
            raise VerificationError(
                f"stream {stream}: {row['path']} would hold sequences {row['min_seq']} to "
                f"{row['max_seq']}, outside {row['segment']} to {above - 1}; nothing was committed; this "
                "is a defect of the program, report it"
            )
    if swap.compared:
        return
    removed = pc.is_in(live["path"], value_set=swap.remove["path"].combine_chunks())
    rest = _staying(swap, live)
    for partition in swap.add["partition"].unique().to_pylist():
        added, replaced = (
            _of_partition(swap.add, partition),
            _of_partition(live.filter(removed), partition),
        )
        for row in overlapping(added, _of_partition(rest, partition), replaced):
            # What assigned its sequences before a rival's rows came must assign them again.
            kind = ConflictError if swap.assigns_sequences else VerificationError
            raise kind(
                f"stream {stream}: {row['path']} holds sequences {row['min_seq']} to {row['max_seq']}, and "
                "a file of the table has rows among them; a sequence may not stand twice, nothing was "
                "committed; plan again"
            )


def _of_partition(table: pa.Table, partition: int) -> pa.Table:
    return table.filter(pc.equal(table["partition"], partition))


def overlapping(added: pa.Table, rest: pa.Table, replaced: pa.Table) -> Iterator[dict[str, Any]]:
    """Added files whose range meets a remaining file, but for those in the range of a file that they replace.

    Args:
        added: `partition`, `segment`, `min_seq` and `max_seq` of files of one partition.
        rest: the same, null where nobody knows them.
        replaced: the same of the files that the added ones take the place of.
    """
    rest = rest.filter(pc.is_valid(rest["max_seq"])).sort_by("min_seq")
    if not rest.num_rows:
        return
    reach = np.maximum.accumulate(rest["max_seq"].to_numpy())
    first, last = added["min_seq"].to_numpy(), added["max_seq"].to_numpy()
    # Files that begin at or before an added one's end; the farthest-reaching of them decides.
    before = np.searchsorted(rest["min_seq"].to_numpy(), last, side="right")
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
