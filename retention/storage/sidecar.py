"""Sidecars: disposable files beside a table; a doubtful one counts as absent, and its next user rebuilds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from retention.storage import files
from retention.storage.checksum import parse_json, stripped, verified, with_checksum, with_hash
from retention.storage.crash_points import Step, reached
from retention.storage.tables import decode_stream, encode_stream, in_memory, in_shape

Value = TypeVar("Value")

FIRST_EDITION = 1
_LABEL = b"retention.sidecar"
_CHECK = "check"
_FEW_ROWS = 1 << 14
"""The rows up to which handing columns to threads costs more than reading them."""
_DOUBTS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    pa.ArrowException,
)
"""Errors for a file that is absent, unreadable, torn, altered, or of another format."""


@dataclass(frozen=True)
class SidecarLabel:
    """The edition and the source state of a sidecar's value."""

    edition: int = FIRST_EDITION
    """The edition of the format and of the rules that compute the value; values of other editions do not count."""
    state: Any = None
    """The source of the value, as JSON: a table's version token with its seal, a policy; None if the location suffices.

    A version number alone is never enough: a table restored from a copy reaches the same number with other commits.
    """


@dataclass(frozen=True)
class SidecarRecord(Generic[Value]):
    """A sidecar's content, with its checksum verified."""

    label: SidecarLabel
    value: Value
    checksum: str = ""
    """The checksum of label and value, if the codec has a single one."""


class Codec(Protocol[Value]):
    """The encoding of a value and its label, with a checksum."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write a value to an open file."""
        ...

    def read(self, source: pa.NativeFile) -> SidecarRecord[Value]:
        """Read a record that `write` wrote; other bytes raise an error that `Sidecar` treats as doubt."""
        ...


@dataclass(frozen=True)
class Sidecar(Generic[Value]):
    """One file beside a table: its location, its encoding, and its conditions of validity.

    For a file that is absent, unreadable, torn, altered, of another edition or of another state, a reader gets `None`,
    never an error or a wrong value. A write replaces the whole file.
    """

    place: str
    codec: Codec[Value]
    step: Step
    """The crash point after a write."""
    edition: int = FIRST_EDITION

    def load(self, state: object = None) -> Value | None:
        """The value, if its source is exactly this state."""
        record = self.latest()
        return record.value if record is not None and record.label.state == state else None

    def latest(self) -> SidecarRecord[Value] | None:
        """The current record, of any state, for readers that compare the state themselves or update the value."""
        try:
            with files.open_input(self.place) as source:
                record = self.codec.read(source)
        except _DOUBTS:
            return None
        return record if record.label.edition == self.edition else None

    def save(self, value: Value, state: object = None) -> bool:
        """Replace the value, which only saves work; False if the storage refuses."""
        try:
            self.write(value, state)
        except OSError:
            return False
        return True

    def save_unsynced(self, value: Value, state: object = None) -> None:
        """Replace the value without an fsync, if the storage permits: a power failure may leave another or none."""
        with suppress(OSError):
            with files.create_unsynced(self.place) as sink:
                self.codec.write(sink, SidecarLabel(self.edition, state), value)
            reached(self.step)

    def write(self, value: Value, state: object = None) -> None:
        """Replace the value.

        Raises:
            StorageError: the storage refuses; the previous value remains.
        """
        with files.create(self.place) as sink:
            self.codec.write(sink, SidecarLabel(self.edition, state), value)
        reached(self.step)


@dataclass(frozen=True)
class JsonCodec(Generic[Value]):
    """One JSON object with a checksum of its whole content, for small values."""

    to_json: Callable[[Value], object]
    from_json: Callable[[Any, Any], Value]
    """A function from the state and the result of `to_json` to the value."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write the object as UTF-8."""
        sink.write(
            json.dumps(with_checksum({**vars(label), "value": self.to_json(value)})).encode()
        )

    def read(self, source: pa.NativeFile) -> SidecarRecord[Value]:
        """Read the object; one without a checksum is rejected."""
        document: dict[str, object] = parse_json(source.read())
        checksum = str(document[_CHECK])
        content = verified(document)
        label = SidecarLabel(content["edition"], content["state"])
        return SidecarRecord(label, self.from_json(label.state, content["value"]), checksum)


@dataclass(frozen=True)
class ArrowCodec(Generic[Value]):
    """One Arrow stream and its hash, for tables that are read whole."""

    to_table: Callable[[Value], pa.Table]
    from_table: Callable[[Any, pa.Table], Value]
    """A function from the state and the result of `to_table` to the value."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write the stream, with the label in its schema."""
        sink.write(with_hash(encode_stream(_labelled(self.to_table(value), label))))

    def read(self, source: pa.NativeFile) -> SidecarRecord[Value]:
        """Read the stream."""
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

    def read(self, source: pa.NativeFile) -> SidecarRecord[pa.Table]:
        """Read a table with the schema's columns."""
        import pyarrow.parquet as pq

        opened = pq.ParquetFile(in_memory(source), page_checksum_verification=True)
        rows = opened.read(self.schema.names, use_threads=opened.metadata.num_rows > _FEW_ROWS)
        return SidecarRecord(_label_of(rows.schema), in_shape(rows, self.schema))


def _labelled(table: pa.Table, label: SidecarLabel) -> pa.Table:
    return table.replace_schema_metadata({_LABEL: json.dumps(vars(label))})


def _label_of(schema: pa.Schema) -> SidecarLabel:
    """The label of a table; the first edition has none."""
    text = (schema.metadata or {}).get(_LABEL)
    return SidecarLabel() if text is None else SidecarLabel(**parse_json(text))
