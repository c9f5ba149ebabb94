"""One value of a key with its revision, and values encoded as bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa

from retention.core import kv
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.payload_preview import preview
from retention.core.units import SECOND, format_instant
from retention.errors import UsageError

Value: TypeAlias = bytes | str | Mapping[str, Any] | Sequence[Any] | int | float | bool | None
"""Bytes; text, kept in UTF-8; or a JSON value, kept as JSON."""

COLUMNS = ("seq", "subject", "ts_ns", "headers", "payload")
"""The columns of a message that an entry is made from."""


@dataclass(frozen=True)
class Entry(Displayed):
    """A value of a key, or a deletion of it."""

    bucket: str
    key: str
    value: bytes
    """Empty where the key is deleted or purged."""
    revision: int
    """The sequence of its message, which `update`, `delete` and `purge` can require to be the last one."""
    created_ns: int
    """The instant at which it was stored, nanoseconds since the epoch."""
    operation: str = kv.PUT
    """`put`, `delete` or `purge`."""
    delta: int = 0
    """In a watch: the number of further entries so far."""

    @property
    def is_deletion(self) -> bool:
        """Whether it marks the key as having no value."""
        return self.operation != kv.PUT

    @property
    def text(self) -> str:
        """The value as text.

        Raises:
            UsageError: it is not UTF-8.
        """
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self._named} is not UTF-8 text ({error.reason}); read `value`"
            ) from error

    def json(self) -> Any:
        """The value decoded from JSON.

        Raises:
            UsageError: it is not JSON.
        """
        try:
            return json.loads(self.value)
        except ValueError as error:
            raise UsageError(f"{self._named} is not JSON ({error}); read `value`") from error

    @property
    def created(self) -> datetime:
        """The instant at which it was stored, truncated to microseconds, UTC."""
        seconds, nanoseconds = divmod(self.created_ns, SECOND)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1_000)

    def display_fields(self) -> Mapping[str, Any]:
        """Its fields, of which `delta` is only about a watch."""
        names = ("bucket", "key", "value", "revision", "created_ns", "operation")
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> JsonObject:
        """The entry as JSON values; `value` if the value is text, `value_b64` always."""
        values: dict[str, object] = {
            "bucket": self.bucket,
            "key": self.key,
            "revision": self.revision,
            "created_ns": self.created_ns,
            "operation": self.operation,
            "delta": self.delta,
            "value_b64": b64encode(self.value).decode(),
        }
        try:
            return values | {"value": self.value.decode()}
        except UnicodeDecodeError:
            return values

    def __str__(self) -> str:
        shown = preview(self.value) if self.operation == kv.PUT else self.operation
        return f"{self.key}@{self.revision}: {shown} ({format_instant(self.created_ns)})"

    @property
    def _named(self) -> str:
        return f"bucket {self.bucket}: the value of {self.key!r} at revision {self.revision}"


def entries_of(bucket: str, prefix: str, rows: pa.Table) -> Iterator[Entry]:
    """The entries in messages, in order.

    Args:
        bucket: the bucket's name.
        prefix: the prefix of keys in the messages' subjects.
        rows: the columns `COLUMNS`.
    """
    operations = kv.operations(rows["headers"]).to_pylist()
    for row, operation in zip(rows.select(COLUMNS).to_pylist(), operations, strict=True):
        key = row["subject"].removeprefix(prefix)
        value = row["payload"] or b""
        yield Entry(bucket, key, value, row["seq"], row["ts_ns"], operation)


def octets_of(value: Value) -> bytes:
    """The bytes in which a value is stored.

    Raises:
        UsageError: JSON, or UTF-8, cannot represent it.
    """
    if isinstance(value, bytes):
        return value
    try:
        text = (
            value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False, allow_nan=False)
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a value of type {type(value).__name__} cannot be stored ({error}): give bytes, text, or a JSON value"
        ) from error
