"""Messages of a topic as users read them: their location, and their user headers with types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.payload_preview import preview
from retention.core.units import format_instant
from retention.formats.iggy import user_headers
from retention.formats.printed_lines import message_lines
from retention.inspect.messages import Selection, read_messages
from retention.schemas.messages import MESSAGES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

HEAD = ("Partition", "Offset", "Time", "Size", "Payload", "User headers")
_SHOWN = ("partition", "seq", "ts_ns", "size", "payload", "headers")


@dataclass(frozen=True)
class TopicMessages:
    """Some messages of a topic."""

    topic: str
    table: pa.Table
    """Shape `MESSAGES`, in order of partition and offset."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_pandas(self) -> pd.DataFrame:
        """The messages' columns, and `user_headers`: a list of typed keys and values, None for an invalid block."""
        frame = self.table.to_pandas()
        frame["user_headers"] = [
            typed_headers(block) for block in self.table["headers"].to_pylist()
        ]
        return frame


def newest_messages(opened: OpenedStream, wanted: Selection) -> TopicMessages:
    """Read the wanted messages into one table.

    Raises:
        UsageError, DamagedError: as `read_messages`.
    """
    tables = (table.cast(MESSAGES) for table in read_messages(opened, wanted))
    return TopicMessages(opened.name, pa.concat_tables([MESSAGES.empty_table(), *tables]))


def typed_headers(block: bytes | None) -> list[dict[str, str]] | None:
    """A message's user headers, in their order: `key_kind, key, value_kind, value`; bytes are hexadecimal.

    Returns:
        An empty list for a message without any; None for an invalid block.
    """
    try:
        pairs = user_headers.parse(block or b"")
    except ValueError:
        return None
    return [
        {"key_kind": key.kind, "key": key.text, "value_kind": value.kind, "value": value.text}
        for key, value in pairs
    ]


def headers_text(block: bytes | None) -> str:
    """A message's user headers in one line, such as `source=web, tries=3 (uint8)`; text needs no type."""
    headers = typed_headers(block)
    if headers is None:
        return f"{len(block or b''):,} B that are no user headers"
    return ", ".join(
        f"{_with_kind(header['key'], header['key_kind'])}={_with_kind(header['value'], header['value_kind'])}"
        for header in headers
    )


def topic_rows(table: pa.Table) -> Iterator[tuple[str, ...]]:
    """Messages with the columns of `HEAD`."""
    for row in table.select(_SHOWN).to_pylist():
        yield (
            str(row["partition"]),
            f"{row['seq']:,}",
            format_instant(row["ts_ns"]),
            f"{row['size']:,} B",
            preview(row["payload"]),
            headers_text(row["headers"]),
        )


def topic_text(tables: Iterable[pa.Table]) -> Iterator[str]:
    """Messages as text, one line each."""
    for table in tables:
        for partition, offset, time, size, payload, headers in topic_rows(table):
            line = f"{partition:>4}  {offset:>10}  {time:<30}  {size}  {payload}"
            yield f"{line}  {headers}".rstrip()


def topic_lines(table: pa.Table) -> Iterator[str]:
    """The lines of `message_lines` with `user_headers`, as from `typed_headers`."""
    blocks = table["headers"].to_pylist()
    for line, block in zip(message_lines(table), blocks, strict=True):
        fields: dict[str, object] = json.loads(line)
        yield json.dumps(fields | {"user_headers": typed_headers(block)}, ensure_ascii=False)


def _with_kind(text: str, kind: str) -> str:
    shown = "".join(character if character.isprintable() else "·" for character in text)
    return shown if kind == "string" else f"{shown} ({kind})"
