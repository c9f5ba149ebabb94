"""The files of a Delta log, and the beginnings of their lines; no other module of the stores relies on them.

Tables are directories here: a stream's `Layout.messages`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote

from retention.core.vector_paths import VectorPlace
from retention.storage import files

LAST_CHECKPOINT = "_last_checkpoint"
"""The name of the file in a log that names the newest checkpoint."""
_DIRECTORY = "_delta_log"
_DIGITS = 20
_TXN = "txn"
_SIDECAR = "sidecar"
_INFO = b'{"commitInfo"'
_PATHS = re.compile(rb'"path"\s*:\s*"((?:[^"\\]|\\.)*)"')
_OF_SEVERAL = re.compile(r"(\d+\.checkpoint\.)(\d+)\.(\d+)\.parquet")


def log_directory(table: str) -> str:
    """The directory of a table's log."""
    return files.join(table, _DIRECTORY)


def is_in_log(path: str) -> bool:
    """Whether a relative path is a log file of a table in its base directory or below."""
    return f"/{_DIRECTORY}/" in f"/{path}"


def is_table(directory: str) -> bool:
    """Whether a directory has a Delta log, of any table."""
    return _DIRECTORY in files.directories(directory)


def is_checkpoint(table: str, place: str) -> bool:
    """Whether a file is a part of a checkpoint of a table's log."""
    return (
        place.startswith(f"{log_directory(table)}/") and ".checkpoint" in place.rpartition("/")[2]
    )


def log_names(table: str) -> list[str]:
    """The names of all files of a table's log, sorted; none if there is no table."""
    return files.names(log_directory(table))


def log_times(table: str) -> tuple[dict[int, int], dict[int, int]]:
    """Version → modification time of its entry, and of the last part of its checkpoint; nanoseconds."""
    entries: dict[int, int] = {}
    checkpoints: dict[int, int] = {}
    for name, at_ms in files.times(log_directory(table)).items():
        number, _, kind = name.partition(".")
        if len(number) == _DIGITS and number.isdigit():
            if kind == "json":
                entries[int(number)] = at_ms * 1_000_000
            elif kind.startswith("checkpoint."):
                version = int(number)
                checkpoints[version] = max(at_ms * 1_000_000, checkpoints.get(version, 0))
    return entries, checkpoints


def log_places(table: str, before: int) -> list[str]:
    """The locations of the entries and checkpoints of all versions before one, oldest first."""
    names = (name for name in log_names(table) if name[:_DIGITS].isdigit())
    return [
        files.join(log_directory(table), name) for name in names if int(name[:_DIGITS]) < before
    ]


def paths_in(entry: bytes) -> set[str]:
    """Every path in an entry, decoded, in any kind of action, and those of vectors; the rest is not parsed."""
    paths = {
        unquote(json.loads(b'"' + text + b'"') if b"\\" in text else text.decode())
        for text in _PATHS.findall(entry)
    }
    if b'"deletionVector"' not in entry:
        return paths
    from retention.delta.vectors import stored_place

    vectors = (fields.get("deletionVector") for _, fields in file_actions(entry))
    places = (stored_place(vector) for vector in vectors if vector)
    return paths | {VectorPlace(*place).path for place in places if place}


def log_files(table: str) -> tuple[list[int], dict[int, list[str]]]:
    """The versions with an entry, ascending; and version → file names of its checkpoint."""
    entries: list[int] = []
    checkpoints: dict[int, list[str]] = {}
    for name in log_names(table):
        number, _, kind = name.partition(".")
        if len(number) == _DIGITS and number.isdigit():
            if kind == "json":
                entries.append(int(number))
            elif kind.startswith("checkpoint."):
                checkpoints.setdefault(int(number), []).append(name)
    return entries, checkpoints


def entry_place(table: str, version: int) -> str:
    """The location of a version's entry."""
    return files.join(log_directory(table), f"{version:0{_DIGITS}d}.json")


def read_entry(table: str, version: int) -> bytes | None:
    """The entry of a version: JSON actions, one per line; None if there is none."""
    return files.read_unchanging(entry_place(table, version))


def actions(entry: bytes) -> Iterator[tuple[str, Any]]:
    """The kind and fields of each action of an entry, in order.

    Raises:
        ValueError: a line is not an action.
    """
    for line in entry.splitlines():
        [(kind, fields)] = json.loads(line).items()
        yield kind, fields


def file_actions(entry: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The actions `add` and `remove` of an entry; other lines are not parsed."""
    yield from _starting(entry, "add", "remove")


def commit_info(entry: bytes) -> dict[str, Any]:
    """The `commitInfo` of an entry: its program and operation; empty if it has none."""
    lines = (line for line in _lines_with(entry, _INFO) if line.startswith(_INFO))
    return next((dict(fields) for line in lines for _, fields in actions(line)), {})


def transactions(entry: bytes) -> dict[str, int]:
    """The version of every application transaction of an entry, by `appId`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the entry cannot be read.
    """
    records = (json.loads(line).get(_TXN) for line in _lines_with(entry, f'"{_TXN}"'.encode()))
    return {fields["appId"]: int(fields["version"]) for fields in records if fields is not None}


def whole_checkpoints(table: str, version: int) -> Iterator[tuple[int, list[str]]]:
    """Complete checkpoints up to a version: version and file locations of each, newest first."""
    _, known = log_files(table)
    for number in sorted((number for number in known if number <= version), reverse=True):
        for parts, group in groupby(sorted(known[number], key=_parts), _parts):
            names = sorted(group)
            if len(names) >= parts:
                yield number, [files.join(log_directory(table), name) for name in names[:parts]]


def _parts(name: str) -> int:
    """The number of files in the checkpoint of a file name."""
    several = _OF_SEVERAL.fullmatch(name)
    return int(several[3]) if several else 1


def missing_part(names: Sequence[str]) -> str | None:
    """The name of the first missing part of a multi-part checkpoint; None if complete or a single file."""
    several = [match for match in map(_OF_SEVERAL.fullmatch, names) if match]
    if not several or len(several) < len(names):
        return None
    head, number, count = several[0].groups()
    wanted = (f"{head}{part:0{len(number)}d}.{count}.parquet" for part in range(1, int(count) + 1))
    return next((name for name in wanted if name not in names), None)


def sidecars_of(place: str) -> list[str]:
    """The paths of a V2 checkpoint's sidecar files, as the checkpoint states them (Delta protocol, `sidecar`).

    Raises:
        OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException: the checkpoint cannot be read.
    """
    import pyarrow.parquet as pq

    if not place.endswith(".parquet"):
        content = files.read_bytes(place) or b""
        return [fields["path"] for kind, fields in actions(content) if kind == _SIDECAR]
    with files.open_input(place) as source:
        opened = pq.ParquetFile(source)
        if _SIDECAR not in opened.schema_arrow.names:
            return []
        rows = opened.read([f"{_SIDECAR}.path"])[_SIDECAR].drop_null()
    return [row["path"] for row in rows.to_pylist()]


def _starting(entry: bytes, *kinds: str) -> Iterator[tuple[str, Any]]:
    """The actions of given kinds, recognized by the first characters of their lines."""
    heads = tuple(f'{{"{kind}"'.encode() for kind in kinds)
    for line in entry.splitlines():
        if line.startswith(heads):
            yield from actions(line)


def _lines_with(content: bytes, word: bytes) -> Iterator[bytes]:
    """The lines that contain a word, without splitting the others."""
    at = content.find(word)
    while at >= 0:
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        yield content[content.rfind(b"\n", 0, at) + 1 : end]
        at = content.find(word, end)
