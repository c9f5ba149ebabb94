"""What a stream holds now, in the broker's terms, and how far it is behind its policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.engines.choice import Engines
from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.estimate import bounds_of
from retention.passes.guards import refuse_unbuilt
from retention.passes.planning import decide
from retention.passes.position import FIRST_SEQ, locate
from retention.segments import Inventory


@dataclass(frozen=True)
class Lag:
    """What a pass now would let go at least; metadata alone says so."""

    messages: int
    bytes: int


@dataclass(frozen=True)
class State:
    """A stream's numbers; an empty one has `first_seq` = `last_seq` + 1, as the server reports it."""

    stream: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts_ns: int | None
    """Of the lowest sequence; None in an empty stream."""
    last_ts_ns: int | None
    num_subjects: int
    segments: int
    lag: Lag | None
    """None where the stream's policy needs a rule that this version does not carry out."""
    format: str
    version: int
    """Of the table; -1 if there is none yet."""

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values, with the keys of the command contract."""
        return asdict(self)


def state_of(opened: OpenedStream, as_of_ns: int) -> State:
    """Count what a stream holds, from metadata and subject digests.

    Raises:
        DamagedError: the log, or a file that had to be read, is damaged.
        ForeignRowsError: rows of other writers break the storage rules.
    """
    if not opened.store.exists():
        return _empty(opened)
    position = locate(opened)
    files = position.inventory.files
    first, last = _ends(files)
    return State(
        stream=opened.name,
        messages=_total(files["messages"]),
        bytes=_total(files["bytes"]),
        first_seq=position.next_seq if first is None else first["min_seq"],
        last_seq=position.next_seq - 1,
        first_ts_ns=None if first is None else first["first_ts_ns"],
        last_ts_ns=None if last is None else last["last_ts_ns"],
        num_subjects=_subjects(opened, files),
        segments=files.group_by(["partition", "segment"]).aggregate([]).num_rows,
        lag=_lag(opened, position.inventory, as_of_ns),
        format=opened.config.format,
        version=position.snapshot.version,
    )


def _empty(opened: OpenedStream) -> State:
    first_seq = opened.config.first_seq or FIRST_SEQ
    return State(
        stream=opened.name,
        messages=0,
        bytes=0,
        first_seq=first_seq,
        last_seq=first_seq - 1,
        first_ts_ns=None,
        last_ts_ns=None,
        num_subjects=0,
        segments=0,
        lag=Lag(0, 0),
        format=opened.config.format,
        version=-1,
    )


def _ends(files: pa.Table) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The statistics of the files with the lowest and the highest sequence."""
    if not files.num_rows:
        return None, None
    lowest = pc.index(files["min_seq"], pc.min(files["min_seq"])).as_py()
    highest = pc.index(files["max_seq"], pc.max(files["max_seq"])).as_py()
    return files.slice(lowest, 1).to_pylist()[0], files.slice(highest, 1).to_pylist()[0]


def _subjects(opened: OpenedStream, files: pa.Table) -> int:
    return int(pc.count_distinct(opened.store.subject_counts(files)["subject"]).as_py())


def _lag(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> Lag | None:
    policy = opened.config.policy()
    try:
        refuse_unbuilt(opened.name, policy)
    except RefusedError:
        return None
    with Engines("local") as engines:
        decided = decide(opened, inventory, policy, as_of_ns, engines)
    bounds = bounds_of(inventory, policy, as_of_ns, decided)
    return Lag(bounds.removed_messages.lower, bounds.removed_bytes.lower)


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
