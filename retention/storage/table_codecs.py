"""Encodings of tables in sidecars, as Arrow or Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

import pyarrow as pa

from retention.storage import files
from retention.storage.checksum import parse_json, stripped, with_hash
from retention.storage.sidecar import SidecarLabel, SidecarRecord, Value
from retention.storage.tables import decode_stream, encode_stream, in_memory, in_shape

_LABEL = b"retention.sidecar"
_FEW_ROWS = 1 << 14
"""The rows up to which handing columns to threads costs more than reading them."""


@dataclass(frozen=True)
class ArrowCodec(Generic[Value]):
    """One Arrow stream and its hash, for tables that are read whole."""

    to_table: Callable[[Value], pa.Table]
    from_table: Callable[[Any, pa.Table], Value]
    """A function from the state and the result of `to_table` to the value."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write the stream, with the label in its schema."""
        sink.write(with_hash(encode_stream(_labelled(self.to_table(value), label))))

    def read(self, place: str) -> SidecarRecord[Value]:
        """Read the stream."""
        with _opened(place) as source:
            body, checksum = stripped(source.read())
            table = decode_stream(body)
        label = _label_of(table.schema)
        return SidecarRecord(label, self.from_table(label.state, table), checksum)


@dataclass(frozen=True)
class ParquetCodec:
    """One Parquet file with a checksum of each page, for tables of any length."""

    schema: pa.Schema

    def write(self, sink: Any, label: SidecarLabel, value: pa.Table) -> None:
        """Write a table of the schema, with the label in its metadata."""
        import pyarrow.parquet as pq

        # Paths are all different, so a dictionary of them is pure overhead.
        table = _labelled(value, label)
        pq.write_table(table, sink, use_dictionary=False, write_page_checksum=True)

    def read(self, place: str) -> SidecarRecord[pa.Table]:
        """Read a table with the schema's columns."""
        import pyarrow.parquet as pq

        with _opened(place) as source:
            opened = pq.ParquetFile(in_memory(source), page_checksum_verification=True)
            rows = opened.read(self.schema.names, use_threads=opened.metadata.num_rows > _FEW_ROWS)
            return SidecarRecord(_label_of(rows.schema), in_shape(rows, self.schema))


@contextmanager
def _opened(place: str) -> Iterator[pa.NativeFile]:
    """Open a file, and raise what Arrow finds wrong with it during the block as an error of `DOUBTS`."""
    try:
        with files.open_input(place) as source:
            yield source
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _labelled(table: pa.Table, label: SidecarLabel) -> pa.Table:
    return table.replace_schema_metadata({_LABEL: json.dumps(vars(label))})


def _label_of(schema: pa.Schema) -> SidecarLabel:
    """The label of a table; the first edition has none."""
    text = (schema.metadata or {}).get(_LABEL)
    return SidecarLabel() if text is None else SidecarLabel(**parse_json(text))
