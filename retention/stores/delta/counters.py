"""The counters of a Delta table: all application transactions of a version, read from its log in one go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.counter_names import NEXT_SEQ, counters_of, is_in_epoch, name_of
from retention.core.inventory import EPOCH, Counters
from retention.errors import BusyError, DamagedError
from retention.storage import files
from retention.stores.delta import log as delta_history
from retention.stores.layout import Layout
from schemas.bounds import MAX_SEQ

_DIGITS = 20
_KIND = "txn"
_OF_SEVERAL = re.compile(r"\d+\.checkpoint\.\d+\.(\d+)\.parquet")


def app_id(name: str, epoch: int) -> str:
    """The name of a counter's transaction; its version counts under that name for good, so each epoch has its own."""
    return f"{_of_epoch(epoch)}{name}" if is_in_epoch(name) else name


def _of_epoch(epoch: int) -> str:
    """What the names of the counters of an epoch begin with."""
    return f"{EPOCH}/{epoch}/" if epoch else ""


def counters(transactions: Mapping[str, int]) -> Counters:
    """The counters that transactions keep, as `app_id` names them."""
    here = _of_epoch(transactions.get(EPOCH, 0))
    in_epoch = {
        name.removeprefix(here): version
        for name, version in transactions.items()
        if name.startswith(here) and is_in_epoch(name.removeprefix(here))
    }
    others = {name: version for name, version in transactions.items() if not is_in_epoch(name)}
    return counters_of(others | in_epoch)


def transactions(layout: Layout, version: int) -> dict[str, int]:
    """The last version of every application transaction up to a version of the table (Delta protocol, `txn`).

    deltalake can be asked for one at a time, and replays the log for each.

    Args:
        layout: the stream's.
        version: one that was opened, so that its log is known to be whole.

    Raises:
        BusyError: an entry is gone since the table was opened.
        DamagedError: an entry cannot be read.
    """
    found: dict[str, int] = {}
    start = 0
    for checkpointed, names in _checkpoints(layout, version):
        kept = _of_checkpoint([layout.live(f"_delta_log/{name}") for name in names])
        if kept is not None:
            found, start = kept, checkpointed + 1
            break
    wanted = range(start, version + 1)
    for number, entry in zip(wanted, delta_history.read_entries(layout, wanted), strict=True):
        found |= _of_entry(layout, number, entry)
    return found


def last_counted(layout: Layout, version: int, epoch: int) -> dict[int, int]:
    """Partition → the highest next sequence that entries set in an epoch and that a message can be given.

    Args:
        layout: the stream's.
        version: one that was opened; later entries do not count.
        epoch: the one that it is in.

    Raises:
        DamagedError: an entry cannot be read.
    """
    highest: dict[int, int] = {}
    counted = app_id(name_of(NEXT_SEQ, ""), epoch)
    there = [one for one in delta_history.versions(layout)[0] if one <= version]
    for number, entry in zip(there, delta_history.read_entries(layout, there), strict=True):
        for name, value in _of_entry(layout, number, entry).items():
            partition = name.removeprefix(counted)
            if name.startswith(counted) and partition.isdigit() and value <= MAX_SEQ + 1:
                highest[int(partition)] = max(value, highest.get(int(partition), 0))
    return highest


def _checkpoints(layout: Layout, version: int) -> Iterator[tuple[int, list[str]]]:
    """Whole checkpoints of versions up to this one, the newest first, and the files that each consists of."""
    known: dict[int, list[str]] = {}
    for name in files.names(layout.live("_delta_log")):
        digits, _, kind = name.partition(".")
        if len(digits) == _DIGITS and digits.isdigit() and kind.startswith("checkpoint."):
            known.setdefault(int(digits), []).append(name)
    for number in sorted((one for one in known if one <= version), reverse=True):
        for parts, group in groupby(sorted(known[number], key=_parts), _parts):
            names = sorted(group)
            if len(names) >= parts:
                yield number, names[:parts]


def _parts(name: str) -> int:
    """Of how many files a checkpoint consists that has one of this name."""
    several = _OF_SEVERAL.fullmatch(name)
    return int(several[1]) if several else 1


def _of_checkpoint(places: Sequence[str]) -> dict[str, int] | None:
    """The transactions of a checkpoint, None if it cannot be read."""
    found: dict[str, int] = {}
    for place in places:
        try:
            found |= _of_rows(place) if place.endswith(".parquet") else _of_lines(place)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return None
    return found


def _of_rows(place: str) -> dict[str, int]:
    with files.open_input(place) as source:
        opened = pq.ParquetFile(source)
        if _KIND not in opened.schema_arrow.names:
            return {}
        said = opened.read([f"{_KIND}.appId", f"{_KIND}.version"])[_KIND].drop_null()
    return {row["appId"]: row["version"] for row in said.to_pylist()}


def _of_lines(place: str) -> dict[str, int]:
    content = files.read_bytes(place)
    if content is None:
        raise FileNotFoundError(place)
    return _said(content)


def _of_entry(layout: Layout, version: int, entry: bytes | None) -> dict[str, int]:
    place = delta_history.place_of(layout, version)
    if entry is None:
        raise BusyError(
            f"{place}: this entry of the log is gone since the table of stream {layout.stream} was opened, as when a "
            "table is made anew; nothing was changed; try again"
        )
    try:
        return _said(entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{place}: this entry of the log of stream {layout.stream} cannot be read ({error!r}); nothing was "
            "changed; restore it from a copy"
        ) from error


def _said(lines: bytes) -> dict[str, int]:
    """The transactions among actions, one a line."""
    said = (json.loads(line).get(_KIND) for line in _lines_with(lines, f'"{_KIND}"'.encode()))
    return {one["appId"]: int(one["version"]) for one in said if one is not None}


def _lines_with(content: bytes, word: bytes) -> Iterator[bytes]:
    """The few lines of many in which a word stands."""
    at = content.find(word)
    while at >= 0:
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        yield content[content.rfind(b"\n", 0, at) + 1 : end]
        at = content.find(word, end)
