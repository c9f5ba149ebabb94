"""Bounds of the numbers of stored messages; within them, no total leaves 64 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import known_numbers
from retention.core.counters import Counters
from retention.core.spoken_commands import command, given_up
from retention.errors import ForeignRowsError
from retention.schemas.bounds import MAX_SEQ, MAX_SIZE, MAX_TABLE_BYTES
from retention.stores.layout import Layout


def seq_bounds(layout: Layout) -> str:
    """The permitted range of the stream's sequences, in words."""
    return f"sequences lie between {layout.first_seq} and 2^62"


def refuse_impossible(layout: Layout, files: pa.Table) -> None:
    """Refuse files with an impossible segment, sequence or size, as far as statistics tell.

    Args:
        layout: the stream's layout.
        files: rows of `LOGGED_FILES`, with `min_` and `max_` of `seq` and `size`, `messages` and `bytes` if known.

    Raises:
        ForeignRowsError: there is such a file, or all sizes together are too large.
    """
    for name, wrong in _checks(layout, files):
        path, value = (files[column].filter(wrong)[0].as_py() for column in ("path", name))
        _refuse(layout, path, name, value)
    if "bytes" in files.schema.names and files.num_rows:
        # As floats: the sum must not leave 64 bits before it is compared with its bound.
        sizes = files["bytes"].to_numpy().astype(np.float64)
        if sizes.sum() > MAX_TABLE_BYTES:
            largest = files.slice(int(np.argmax(sizes)), 1)
            raise ForeignRowsError(
                f"stream {layout.stream}: the sizes of its messages come to more than 2^62 bytes, most of them those "
                f"in {largest['path'][0]} ({largest['bytes'][0]}), and no sum beyond that is exact; nothing was "
                "changed; rewrite that file with the sizes that its messages have"
                f"{given_up(layout.stream, largest['path'][0].as_py())}"
            )


def impossible(layout: Layout, files: pa.Table) -> pa.ChunkedArray:
    """A mask of the files that `refuse_impossible` refuses for one of their own numbers."""
    mask = pa.chunked_array([np.zeros(files.num_rows, dtype=bool)])
    for _, wrong in _checks(layout, files):
        mask = pc.or_(mask, wrong)
    return mask


def refuse_counters(layout: Layout, counters: Counters) -> None:
    """Refuse counters that no sequence of the stream can explain.

    Raises:
        ForeignRowsError: there is such a counter.
    """
    for name, values in impossible_counters(counters).items():
        partition, value = next(iter(values.items()))
        raise ForeignRowsError(
            f"stream {layout.stream}: its log has {value} as the {name} of partition {partition}, and "
            f"{seq_bounds(layout)}: rows with impossible sequences were adopted once, or another program set that "
            f"counter; nothing was changed; {remedy(layout.stream)}"
        )


def refuse_floor(stream: str, next_seq: int) -> None:
    """Refuse the run history's next sequence if it is beyond every sequence.

    Raises:
        ForeignRowsError: it is beyond every sequence.
    """
    if next_seq > MAX_SEQ + 1:
        raise ForeignRowsError(
            f"stream {stream}: its run history has {next_seq} as the next sequence, and sequences end at 2^62: rows "
            f"with impossible sequences were taken in once; nothing was changed; {remedy(stream)}"
        )


def impossible_counters(counters: Counters) -> dict[str, dict[int, int]]:
    """The counters beyond every sequence: counter → partition → value."""
    named: dict[str, Mapping[int, int]] = {
        "next sequence": counters.next_seq,
        "open segment": counters.open_base,
    }
    beyond = {
        name: {part: value for part, value in values.items() if not 0 <= value <= MAX_SEQ + 1}
        for name, values in named.items()
    }
    return {name: values for name, values in beyond.items() if values}


def remedy(stream: str) -> str:
    """The remedy for impossible numbers in a stream, in words."""
    repair = command("repair sequences", stream, options="--yes")
    return f"{repair} takes such rows out and begins a new epoch of sequences"


def _checks(layout: Layout, files: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Each column with impossible values, with a mask of them; null is possible."""
    bounds = {
        "segment": (0, MAX_SEQ),
        "min_seq": (layout.first_seq, MAX_SEQ),
        "max_seq": (layout.first_seq, MAX_SEQ),
        "min_size": (0, MAX_SIZE),
        "max_size": (0, MAX_SIZE),
    }
    for name, (low, high) in bounds.items():
        if name in files.schema.names:
            column = files[name]
            ends = _ends(column)
            if ends and not low <= ends[0] <= ends[1] <= high:
                wrong = pc.or_(pc.less(column, low), pc.greater(column, high))
                yield name, pc.fill_null(wrong, fill_value=False)
    if "bytes" in files.schema.names:
        # As floats, in which null is NaN; also finds totals of sizes that left 64 bits.
        size, messages = (files[name].to_numpy().astype(float) for name in ("bytes", "messages"))
        impossible = (size < 0) | (size > messages * MAX_SIZE)
        if impossible.any():
            yield "bytes", pa.chunked_array([impossible])


def _ends(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The lowest and the highest value; None without any."""
    values = known_numbers(column)
    return (int(values.min()), int(values.max())) if len(values) else None


def _refuse(layout: Layout, path: str, name: str, value: int) -> NoReturn:
    what, bound = {
        "segment": (f"lies in segment {value}", seq_bounds(layout)),
        "min_seq": (f"holds sequence {value}", seq_bounds(layout)),
        "max_seq": (f"holds sequence {value}", seq_bounds(layout)),
        "min_size": (f"holds a message of size {value}", "sizes lie between 0 and 4 GiB"),
        "max_size": (f"holds a message of size {value}", "sizes lie between 0 and 4 GiB"),
        "bytes": (
            f"holds messages whose sizes come to {value}",
            "a size lies between 0 and 4 GiB, and all of a stream come to 2^62 at most",
        ),
    }[name]
    raise ForeignRowsError(
        f"stream {layout.stream}: {path} {what}, and {bound}; another writer appended it, nothing was changed; "
        f"{remedy(layout.stream)}"
    )
