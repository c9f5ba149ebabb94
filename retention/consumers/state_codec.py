"""A consumer's state in few bytes: each column as differences, in an Arrow stream of one row, compressed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.consumers.state import (
    LASTS,
    PENDING,
    REDELIVERED,
    UNSEEN,
    ConsumerState,
    DeliveryPosition,
)
from retention.core.wording import counted
from retention.errors import DamagedError

_POSITION = pa.struct([("consumer_seq", pa.int64()), ("stream_seq", pa.int64())])
_TABLES = {"pending": PENDING, "redelivered": REDELIVERED, "unseen": UNSEEN, "lasts": LASTS}
_PACKED = pa.schema(
    [
        ("delivered", _POSITION),
        ("ack_floor", _POSITION),
        *((name, pa.list_(pa.struct(list(shape)))) for name, shape in _TABLES.items()),
        ("until", pa.int64()),
        ("last_active_ns", pa.int64()),
    ]
)
_LEVEL = 3
"""Lowest level of zstd that detects repeated differences."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=_LEVEL))


def encode_state(state: ConsumerState) -> bytes:
    """Encode a state as an Arrow stream; equal states have equal bytes.

    Consecutive sequences and equal times have one repeated difference, which compresses to almost nothing.
    """
    columns = [
        pa.array([vars(state.delivered)], _POSITION),
        pa.array([vars(state.ack_floor)], _POSITION),
        *(_as_steps(getattr(state, name), shape) for name, shape in _TABLES.items()),
        pa.array([state.until], pa.int64()),
        pa.array([state.last_active_ns], pa.int64()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _PACKED, options=_OPTIONS) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_PACKED))
    return bytes(sink.getvalue())


def decode_state(content: bytes) -> ConsumerState:
    """Decode a state that `encode_state` encoded.

    Raises:
        DamagedError: the bytes are not such a stream.
    """
    try:
        table = pa.ipc.open_stream(content).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"the consumer's state is not an Arrow stream: {error}") from error
    if table.schema != _PACKED or table.num_rows != 1:
        raise DamagedError(
            f"the consumer's state has {counted(table.num_rows, 'row')} of {', '.join(table.schema.names)};"
            " it must have one row of the shape that this version writes"
        )
    row = {name: table[name][0] for name in _PACKED.names}
    return ConsumerState(
        delivered=DeliveryPosition(**row["delivered"].as_py()),
        ack_floor=DeliveryPosition(**row["ack_floor"].as_py()),
        until=row["until"].as_py(),
        last_active_ns=row["last_active_ns"].as_py(),
        **{name: _from_steps(row[name].values, shape) for name, shape in _TABLES.items()},
    )


def _as_steps(table: pa.Table, shape: pa.Schema) -> pa.Array:
    """Turn a table into a list array of one element, numbers as differences from the one before: 5, 6, 9 is 5, 1, 3."""
    columns = [pa.array(np.diff(table[name].to_numpy(), prepend=0)) for name in shape.names]
    rows = pa.StructArray.from_arrays(columns, fields=list(shape))
    offsets = pa.array(np.array([0, len(rows)], dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, rows)


def _from_steps(rows: pa.Array, shape: pa.Schema) -> pa.Table:
    columns = [np.cumsum(column.to_numpy()) for column in rows.flatten()]
    return pa.table(columns, schema=shape)
