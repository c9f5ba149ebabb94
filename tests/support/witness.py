"""Comparison of everything written to a stream, the states seen by readers, and the remaining messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention.api.warehouse import Warehouse, open_warehouse
from tests.support.laying import held

KEPT = 100
LIMITS: Mapping[str, Any] = {"max_msgs": KEPT, "segment_size": 3_000}
"""Limits under which every version is a gapless run of sequences, at least `KEPT` long once that many were written."""


@dataclass
class Seen:
    """The states seen by one reader; each must be valid, and not older than the previous one."""

    low: int = 0
    high: int = 0
    states: int = 0
    messages: dict[int, str] = field(default_factory=dict)

    def state(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Check one state: no duplicate, no gap, no fewer messages than the limit keeps, no older state."""
        found = sorted(rows)
        seqs = [seq for seq, _ in found]
        low, high = seqs[0], seqs[-1]
        assert seqs == list(range(low, high + 1)), f"gaps or repeats between {low} and {high}"
        assert len(seqs) >= min(KEPT, high), f"{len(seqs)} messages up to {high}"
        assert (low, high) >= (self.low, self.high), f"{low}-{high} after {self.low}-{self.high}"
        assert high >= self.high, f"up to {high} after {self.high}"
        self.low, self.high, self.states = low, high, self.states + 1
        for seq, payload in found:
            before = self.messages.setdefault(seq, payload.decode())
            assert before == payload.decode(), f"{seq} was {before}, is {payload!r}"


def opened_at(folder: Path) -> Warehouse:
    return open_warehouse(folder / "retention.yaml", engine="local")


def pairs(rows: pa.Table) -> list[tuple[int, bytes]]:
    """Sequence and payload of each row."""
    return list(zip(rows["seq"].to_pylist(), rows["payload"].to_pylist(), strict=True))


def ever_appended(folder: Path) -> list[tuple[int, bytes]]:
    """The messages added by every commit without removals, from the files, which the grace keeps."""
    stream = folder / "streams" / "ORDERS"
    found: list[tuple[int, bytes]] = []
    for entry in _entries(stream):
        if entry["remove"]:
            continue
        for path in entry["add"]:
            places = (stream / "messages", stream / "_retention" / "trash")
            (place,) = [place / path for place in places if (place / path).exists()]
            found += pairs(pq.ParquetFile(place).read(["seq", "payload"]))
    return found


def _entries(stream: Path) -> Iterator[dict[str, list[str]]]:
    """The paths removed and added by each commit, in either format."""
    for place in sorted((stream / "messages" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in place.read_text().splitlines()]
        yield {
            kind: [action[kind]["path"] for action in actions if kind in action]
            for kind in ("remove", "add")
        }
    for place in sorted((stream / "_retention" / "log").glob("*.json")):
        entry = json.loads(place.read_text())
        yield {"remove": entry["remove"], "add": [row["path"] for row in entry["add"]]}


def settle(
    folder: Path, sent: Iterable[str], results: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Compare everything written, answered, removed and read; returns the numbers.

    Args:
        folder: the warehouse.
        sent: the payloads of all messages given to a writer that answered.
        results: the answers of the workers.
    """
    ever = sorted(ever_appended(folder))
    truth = {seq: payload.decode() for seq, payload in ever}
    assert [seq for seq, _ in ever] == list(range(1, len(ever) + 1)), "a gap or a repeat"
    assert Counter(truth.values()) == Counter(sent), "lost or doubled"
    for result in results.values():
        for said in ("acks", "messages"):
            for seq, payload in result.pop(said, {}).items():
                assert truth[int(seq)] == payload
    warehouse = opened_at(folder)
    left = pairs(held(warehouse))
    removed = sum(record["removed_messages"] for record in warehouse.history(["ORDERS"]))
    assert left == ever[removed:], "not exactly what retention left"
    assert removed == sum(result.get("removed", 0) for result in results.values())
    assert len(left) >= KEPT
    assert removed, "nothing was ever due"
    return {"messages": len(ever), "removed": removed, **results}
