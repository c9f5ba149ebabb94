"""A Delta table of very many files, each a real Parquet file of another writer, and a user's first steps with it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from benchmarks.data import write_config
from benchmarks.scale.step import Step, expect
from benchmarks.tasks import FIRST_TS_NS, STREAM
from retention import open_warehouse
from retention.core import message_rows
from retention.engines.select import EngineName
from retention.schemas.messages import FILE_COLUMNS, MESSAGES, PARTITION_COLUMNS

FILES, SEGMENT_FILES = 1_000_000, 250
MESSAGES_EACH = 10
"""Messages of a file, all with the file's time, each on one of ten subjects."""
STEP_NS = 10**9
"""The time between files: one per second."""
DUE = 0.1
"""The share of files with messages older than the limit."""
_COMMIT_FILES = 100_000
_MAX_AGE_NS = 30 * 86_400 * 10**9
_MARKED_SEQ, _MARKED_TS_NS = 0x5EA1_0000_5EA1_0000 >> 2, FIRST_TS_NS - 1
"""The first sequence and the time in the template of all files."""


@dataclass(frozen=True)
class ForeignFiles:
    """A number of files, 250 per segment, with ten messages each."""

    files: int
    """A multiple of ten."""

    @classmethod
    def of(cls, scale: float) -> ForeignFiles:
        """The work with a share of a million files."""
        return cls(int(FILES * scale) // 10 * 10)

    @property
    def due(self) -> int:
        """The number of completely due files."""
        return int(self.files * DUE)

    @property
    def instant(self) -> int:
        """The instant at which exactly these files are due."""
        return FIRST_TS_NS + self.due * STEP_NS - 1 + _MAX_AGE_NS

    def make(self, place: Path) -> None:
        """Write the files, and a table of them."""
        self.make_table(place, written)

    def make_table(
        self, place: Path, actions: Callable[[Path, range], Iterator[AddAction]]
    ) -> None:
        """Write a table with a checkpoint.

        Args:
            place: the warehouse.
            actions: the log's actions for the files with these numbers, in this directory of a table.
        """
        write_config(place, "max_age: 30d, segment_size: 1TiB, segment_span: off")
        opened = open_warehouse(place, engine="local").stream(STREAM).opened
        opened.store.create()
        table = Path(opened.root, "messages")
        for first in range(0, self.files, _COMMIT_FILES):
            some = range(first, min(first + _COMMIT_FILES, self.files))
            DeltaTable(table).create_write_transaction(
                list(actions(table, some)),
                "append",
                MESSAGES,
                partition_by=list(PARTITION_COLUMNS),
            )
        DeltaTable(table).create_checkpoint()

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The steps of a user with such a table: the first pass, and a look at the result."""
        stream = open_warehouse(place, engine=engine).stream(STREAM)
        state = Step(partial(stream.state, as_of=self.instant), self._check_state)
        return self.passes(place, engine) | {"state": state}

    def passes(self, place: Path, engine: EngineName) -> dict[str, Step]:
        """A plan, and the pass itself."""
        warehouse = open_warehouse(place, engine=engine)
        plan = partial(warehouse.plan, [STREAM], self.instant)
        apply = partial(warehouse.apply, [STREAM], as_of=self.instant)
        return {"plan": Step(plan, self._check_pass), "apply": Step(apply, self._check_pass)}

    def _check_pass(self, outcomes: Any) -> dict[str, Any]:
        [outcome] = outcomes
        if outcome.error is not None:
            raise outcome.error
        expect("messages that go", outcome.value.removed_messages, self.due * MESSAGES_EACH)
        return {"files": self.files, "files that go": self.due}

    def _check_state(self, state: Any) -> dict[str, Any]:
        left = self.files - self.due
        expect("messages", state.messages, left * MESSAGES_EACH)
        expect("first sequence", state.first_seq, self.due * MESSAGES_EACH + 1)
        expect("last sequence", state.last_seq, self.files * MESSAGES_EACH)
        expect("subjects", state.num_subjects, MESSAGES_EACH)
        return {"files": left}


def logged(numbers: range, length: int = 3_000) -> Iterator[AddAction]:
    """The log's actions for files, with statistics as written by deltalake.

    Args:
        numbers: the numbers of the files.
        length: the length of each file.
    """
    for number in numbers:
        first = number * MESSAGES_EACH + 1
        segment = first - number % SEGMENT_FILES * MESSAGES_EACH
        ts_ns = _time_of(number)
        bounds = {"minValues": {"seq": first, "ts_ns": ts_ns}}
        bounds["maxValues"] = {"seq": first + MESSAGES_EACH - 1, "ts_ns": ts_ns}
        nulls = {"nullCount": {"seq": 0, "ts_ns": 0, "size": 0, "subject": 0}}
        yield AddAction(
            path=f"partition=0/segment={segment}/part-{number:07d}.snappy.parquet",
            size=length,
            partition_values={"partition": "0", "segment": str(segment)},
            modification_time=ts_ns // 10**6,
            data_change=True,
            stats=json.dumps({"numRecords": MESSAGES_EACH} | bounds | nulls),
        )


def written(table: Path, numbers: range) -> Iterator[AddAction]:
    """Write files, and yield the log's action for each."""
    content, seqs, times = _template()
    for number, action in zip(numbers, logged(numbers, len(content)), strict=True):
        for offset, turn in seqs:
            struct.pack_into("<q", content, offset, number * MESSAGES_EACH + 1 + turn)
        for offset in times:
            struct.pack_into("<q", content, offset, _time_of(number))
        place = table / action.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        yield action


def _time_of(number: int) -> int:
    return FIRST_TS_NS + number * STEP_NS


def _template() -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    """A template file with marked numbers; positions and numbers of the sequences in it; positions of the time.

    Pages and statistics are neither encoded nor compressed, so numbers appear verbatim.
    """
    raw = pa.table(
        {
            "subject": [f"orders.{at}" for at in range(MESSAGES_EACH)],
            "headers": pa.nulls(MESSAGES_EACH, pa.binary()),
            "payload": [b"{}"] * MESSAGES_EACH,
            "ts_ns": np.full(MESSAGES_EACH, _MARKED_TS_NS),
        }
    )
    rows = message_rows.complete_rows(raw, "file")
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {
        "seq": pa.array(_MARKED_SEQ + np.arange(MESSAGES_EACH)),
        "time": pa.nulls(MESSAGES_EACH, FILE_COLUMNS.field("time").type),
    }
    sink = pa.BufferOutputStream()
    table = pa.table([columns[name] for name in FILE_COLUMNS.names], schema=FILE_COLUMNS)
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    content = bytearray(sink.getvalue().to_pybytes())
    seqs = [
        (offset, turn)
        for turn in range(MESSAGES_EACH)
        for offset in _offsets(content, _MARKED_SEQ + turn)
    ]
    return content, seqs, _offsets(content, _MARKED_TS_NS)


def _offsets(content: bytes | bytearray, number: int) -> list[int]:
    pattern, offsets, at = struct.pack("<q", number), list[int](), -1
    while (at := content.find(pattern, at + 1)) >= 0:
        offsets.append(at)
    return offsets
