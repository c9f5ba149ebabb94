"""Records of the states from which passes go on with their replays; the log names the one that counts."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.counters import Counters
from retention.core.json_object import JsonObject
from retention.core.spoken_commands import command
from retention.errors import DamagedError
from retention.rules.replay.state import ReplayState
from retention.schemas.replay import AHEAD, GONE, REMEMBERED, SHIFTS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout

_TABLES = {"gone": GONE, "ahead": AHEAD, "ids": REMEMBERED, "shifts": SHIFTS}
_VALUES = [field.name for field in fields(ReplayState) if field.name not in _TABLES]
_DIGITS = 20
_RANDOM_BITS = 30
_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")


@dataclass(frozen=True)
class RecordedState:
    """A state, and the run that committed it."""

    state: ReplayState | None
    """None: the next pass begins anew."""
    run: str = ""
    """The run that committed the state."""
    before: int = 0
    """The number of the record from which that run went on; 0: it began anew."""
    epoch: int = 0
    """The epoch of the table."""


class ReplayStates:
    """Reads and writes `_retention/replay/`: one record for each pass that went on with the replay.

    Only the record that the newest commit names counts, and the undo of a pass needs the one before. A record's name
    has its number, and when it was written. Only the holder of the maintenance lease writes and deletes records.
    """

    def __init__(self, layout: Layout, counters: Counters) -> None:
        self._layout = layout
        self._directory = layout.engine_path("replay")
        self._epoch = counters.epoch
        self.number = counters.replay
        """The number of the record that counts; 0: there is none."""

    def read(self) -> ReplayState | None:
        """The state from which the next pass goes on; None: it begins anew.

        Raises:
            DamagedError: the record is missing, or cannot be read.
        """
        if not self.number:
            return None
        recorded = self.record(self.number)
        return recorded.state if recorded.epoch == self._epoch else None

    def record(self, number: int) -> RecordedState:
        """The record with a number; 0 is that of no pass.

        Raises:
            DamagedError: it is missing, or cannot be read.
        """
        if not number:
            return RecordedState(None, epoch=self._epoch)
        place = self._place(number)
        if place is None:
            raise self._damaged(f"{self._directory}, number {number}", "is missing")
        try:
            return _read(place)
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise self._damaged(place, f"cannot be read ({error})") from error

    def _damaged(self, record: str, why: str) -> DamagedError:
        again = command("repair replay", self._layout.stream, options="--yes")
        return DamagedError(
            f"{record}: this record of the replay of stream {self._layout.stream} {why}; nothing was removed; "
            f"restore it from a copy, or {again} lets the next pass replay what is stored from the beginning"
        )

    def has(self, number: int) -> bool:
        """Whether the record with a number exists."""
        return any(name.startswith(_beginning(number)) for name in self._names())

    def keep(self, recorded: RecordedState, now_ns: int, grace_ns: int) -> int:
        """Write the next record, for a commit to name; returns its number.

        Records that were replaced longer ago than the grace period are deleted: no run before them can be undone.
        """
        # Rising, and never a number that a killed run used.
        number = ((self.number >> _RANDOM_BITS) + 1 << _RANDOM_BITS) + secrets.randbits(
            _RANDOM_BITS
        )
        place = self._named(number, now_ns)
        _write(place, replace(recorded, epoch=self._epoch))
        reached(Step.REPLAY_KEPT)
        self._tidy(now_ns - grace_ns)
        return number

    def forget(self, digests: pa.Array) -> int:
        """Take ids out of every record, by their digests; returns their number.

        A record without its last id compares no expected one any more: no message is removed on a guess.
        """
        forgotten, erased = 0, digests.cast(pa.binary())
        for name in self._names():
            place = files.join(self._directory, name)
            recorded = _read(place)
            if recorded.state is None:
                continue
            state, ids = recorded.state, recorded.state.ids
            left = ids.filter(pc.invert(pc.is_in(ids["digest"], value_set=erased)))
            after = replace(state, ids=left)
            if pc.is_in(pa.scalar(state.last_id), value_set=erased).as_py():
                after = replace(after, last_id=b"", is_complete=False)
            if after.last_id != state.last_id or left.num_rows < ids.num_rows:
                _write(place, replace(recorded, state=after))
                forgotten += ids.num_rows - left.num_rows
        return forgotten

    def _tidy(self, before_ns: int) -> None:
        """Delete the records that were replaced before an instant, except the one that counts."""
        written = sorted((int(_written(name)), name) for name in self._names())
        spent = [
            name
            for (_, name), (replaced_ns, _) in pairwise(written)
            if replaced_ns < before_ns and not name.startswith(_beginning(self.number))
        ]
        if spent:
            files.delete(files.join(self._directory, name) for name in spent)
            reached(Step.REPLAY_TIDIED)

    def _place(self, number: int) -> str | None:
        """The file of the record with a number; None: it is missing."""
        beginning = _beginning(number)
        name = next((name for name in self._names() if name.startswith(beginning)), None)
        return None if name is None else files.join(self._directory, name)

    def _named(self, number: int, now_ns: int) -> str:
        name = f"{number:0{_DIGITS}d}-{max(now_ns, 0):0{_DIGITS}d}.parquet"
        return files.join(self._directory, name)

    def _names(self) -> list[str]:
        return [name for name in files.names(self._directory) if _NAME.fullmatch(name)]


def _beginning(number: int) -> str:
    """The beginning of the name of the record with a number."""
    return f"{number:0{_DIGITS}d}-"


def _written(name: str) -> str:
    return name.partition("-")[2].partition(".")[0]


def _write(place: str, recorded: RecordedState) -> None:
    """Write a record: one row with a document, and a list of rows for each of the state's tables."""
    document: JsonObject = {"run": recorded.run, "before": recorded.before, "epoch": recorded.epoch}
    tables = {name: schema.empty_table() for name, schema in _TABLES.items()}
    if recorded.state is not None:
        values = {name: getattr(recorded.state, name) for name in _VALUES}
        document["state"] = values | {"last_id": recorded.state.last_id.hex()}
        tables = {name: getattr(recorded.state, name) for name in _TABLES}
    columns = {"document": pa.array([json.dumps(document)])}
    for name, table in tables.items():
        rows = table.cast(_TABLES[name]).to_struct_array()
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    with files.create(place) as sink:
        pq.write_table(pa.table(columns), sink, compression="zstd", write_page_checksum=True)


def _read(place: str) -> RecordedState:
    with files.open_input(place) as source:
        table = pq.read_table(source, page_checksum_verification=True)
    document = json.loads(table["document"][0].as_py())
    values = document.get("state")
    state = None
    if values is not None:
        tables = {name: _rows(table[name], schema) for name, schema in _TABLES.items()}
        state = ReplayState(**values | tables | {"last_id": bytes.fromhex(values["last_id"])})
    return RecordedState(state, document["run"], document["before"], document["epoch"])


def _rows(column: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    rows = column.combine_chunks().flatten()
    return pa.table(rows.flatten(), names=[field.name for field in rows.type]).cast(schema)
