"""Log entries: actions as JSON objects, one a line, and the actions that remove or change a live file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from retention.delta import stats_json
from retention.errors import DamagedError
from retention.storage.checksum import parse_json

Action = dict[str, Any]
"""One action: its kind → its fields, those unknown to this program included."""

ENGINE = "lake-retention"
"""The program that entries of ours name."""
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""The key of a field's metadata with its name in files, statistics and partition values."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
UNPARSED = (b'{"add":', b'{"remove":', b'{"cdc":')
"""The beginnings of the lines of file actions, as all known writers have them."""
_CARRIED = (
    "partitionValues",
    "size",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)


@dataclass(frozen=True)
class SplitEntry:
    """An entry with its file actions not parsed, and all its other actions."""

    content: bytes
    lines: int
    """The number of actions."""
    longest: int
    """The length of the longest line in bytes."""
    others: list[Action]


def split(content: bytes, place: str) -> SplitEntry:
    """Parse an entry except for its file actions, which may be many; files of the change feed are left out.

    Raises:
        DamagedError: a line is not an action, or there is none.
    """
    others: list[Action] = []
    start = lines = longest = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        if content.startswith(UNPARSED, start):
            lines += 1
        elif line := content[start:end].strip():
            lines += 1
            others.append(_parsed(line, place))
        longest, start = max(longest, end - start), end + 1
    if not lines:
        raise damaged_entry(place, "it is empty, and what it committed is lost")
    return SplitEntry(content, lines, longest, others)


def parse(content: bytes, place: str) -> list[Action]:
    """All actions of an entry.

    Raises:
        DamagedError: a line is not an action.
    """
    return [_parsed(line, place) for line in content.split(b"\n") if line.strip()]


def encode(actions: Iterable[Action]) -> bytes:
    """The entry of given actions."""
    return b"".join(_ENCODER.encode(action).encode() + b"\n" for action in actions)


def commit_info(actions: Sequence[Action]) -> Mapping[str, Any]:
    """The fields of an entry's `commitInfo`; empty if it has none."""
    return next((fields for action in actions if (fields := action.get("commitInfo"))), {})


def partition_names(actions: Iterable[Action]) -> set[str]:
    """The physical names of the partition columns of every `metaData` among actions."""
    names: set[str] = set()
    for metadata in (action["metaData"] for action in actions if action.get("metaData")):
        partitions = set(metadata.get("partitionColumns") or ())
        fields = json.loads(metadata["schemaString"])["fields"] if partitions else ()
        names |= {
            (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"])
            for field in fields
            if field["name"] in partitions
        }
    return names


def vector_id(vector: Mapping[str, Any] | None) -> str:
    """The identity of a deletion vector within its table, by the Delta protocol; empty for a file without one.

    >>> vector_id({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4})
    'uab^-aqEH.-t@S}K{vb[*k^@4'
    """
    if not vector:
        return ""
    offset = vector.get("offset")
    at = "" if offset is None else f"@{offset}"
    return f"{vector['storageType']}{vector['pathOrInlineDv']}{at}"


def escaped(path: str) -> str:
    """A path relative to the table as a log has it: percent signs of the name on disk are escaped themselves.

    >>> escaped("day=a%3Ab c/é.parquet")
    'day=a%253Ab%20c/%C3%A9.parquet'
    """
    return quote(path, safe="/=:@!$&'()*+,;~-._")


def remove_of(add: Mapping[str, Any], now_ms: int, *, data_change: bool = True) -> Action:
    """The action that removes a live file; it must carry the file's vector, without which it removes nothing.

    Args:
        add: the fields of the file's `add`.
        now_ms: the start of VACUUM's retention, milliseconds since the epoch.
        data_change: whether readers of changes see it.
    """
    carried = {name: add[name] for name in _CARRIED if add.get(name) is not None}
    return {
        "remove": {
            "path": add["path"],
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            **carried,
        }
    }


def with_vector(add: Mapping[str, Any], vector: Mapping[str, Any], now_ms: int) -> Action:
    """The action that adds a live file with another vector; its statistics become bounds of more than its rows.

    Args:
        add: the fields of the file's `add`.
        vector: the new vector's descriptor.
        now_ms: the wall clock, milliseconds since the epoch.
    """
    fields = {**add, "dataChange": True, "modificationTime": now_ms, "deletionVector": dict(vector)}
    if add.get("stats"):
        statistics = {**stats_json.parse(add["stats"]), "tightBounds": False}
        fields["stats"] = stats_json.encode(statistics)
    return {"add": fields}


def _parsed(line: bytes, place: str) -> Action:
    try:
        action = parse_json(line)
    except ValueError as error:
        raise damaged_entry(place, str(error)) from error
    if not isinstance(action, dict):
        raise damaged_entry(place, f"{line[:40]!r} is no action")
    return action


def damaged_entry(place: str, reason: str) -> DamagedError:
    """The error of an entry that cannot be read."""
    return DamagedError(
        f"{place}: this entry of the table's log cannot be read ({reason}); nothing was changed; restore it from a copy"
    )
