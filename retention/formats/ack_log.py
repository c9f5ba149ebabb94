"""Logs of acks, JSON lines or Parquet: what was published under replies, and what was delivered with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, parquet

from retention.errors import UsageError

LOG = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("reply", pa.string())])
"""One row per line: an ack has the `subject` that it was published to and its `data` (none: empty), a delivery the
`reply` that the message came with."""

_TEXT = pa.schema([LOG.field("subject"), pa.field("data", pa.string()), LOG.field("reply")])


def read_ack_log(path: Path) -> pa.Table:
    """A log in its order, shape `LOG`: Parquet if its name ends so, else JSON lines.

    A line of JSON is an object with `subject` and perhaps `data`, a text, for an ack, or with `reply` for a delivery.
    A Parquet file has columns of these names, `data` binary or text; those that it lacks are empty.

    Raises:
        UsageError: the file cannot be read as that; the message says why.
    """
    try:
        log = _parquet(path) if path.suffix == ".parquet" else _json_lines(path)
        return log.cast(LOG)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"{path} cannot be read as a log of acks ({error}); a line needs subject and data for an"
            " ack, or reply for a delivery, and nothing else"
        ) from error


def replies_and_bodies(log: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The reply of each line of a log of shape `LOG`, and its body: null where it is a delivery.

    Raises:
        UsageError: a line has both a subject and a reply, or neither, or a delivery has data.
    """
    is_ack = pc.is_valid(log["subject"])
    is_delivery = pc.is_valid(log["reply"])
    is_clear = pc.xor(is_ack, is_delivery)
    has_place = pc.or_(is_ack, pc.is_null(log["data"]))
    wrong = pc.index(pc.and_(is_clear, has_place), False).as_py()
    if wrong >= 0:
        raise UsageError(
            f"line {wrong + 1} of the log is {log.slice(wrong, 1).to_pylist()[0]}; it must have either"
            " subject, and perhaps data, for an ack, or reply alone for a delivery"
        )
    bodies = pc.if_else(is_ack, pc.fill_null(log["data"], b""), None)
    return pc.coalesce(log["subject"], log["reply"]), bodies


def _json_lines(path: Path) -> pa.Table:
    if not path.stat().st_size:
        return LOG.empty_table()
    options = json.ParseOptions(explicit_schema=_TEXT, unexpected_field_behavior="error")
    return json.read_json(path, parse_options=options)


def _parquet(path: Path) -> pa.Table:
    stored = parquet.read_table(path, partitioning=None)
    columns = [
        stored[name] if name in stored.column_names else pa.nulls(stored.num_rows, field.type)
        for name, field in zip(LOG.names, LOG, strict=True)
    ]
    return pa.table(columns, names=LOG.names)
