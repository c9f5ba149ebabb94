"""Cases judged by a real server from its consumers' states: loading, import with consumers, and comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.api.warehouse import Warehouse
from retention.formats.nats.backup import write_backup
from retention.ingest.import_nats import import_nats_backup
from tests.support.cases import lines_of, rows_of, warehouse_with
from tests.support.nats_oracle import state_of

FILE = Path(__file__).parents[1] / "conformance" / "jetstream-interest.jsonl"


@dataclass(frozen=True)
class Case:
    """One stream, its consumers, and the messages that some consumer needs."""

    id: str
    as_of_ns: int
    config: dict[str, Any]
    rows: pa.Table
    """The stored messages; shape `RAW_ROWS`."""
    consumers: dict[str, dict[str, Any]]
    """Name → `config` and `state`, as in a backup."""
    needed: frozenset[int]
    matched_by_none: frozenset[int]

    def kept(self, unmatched: str) -> list[int]:
        """The sequences that must be kept."""
        also = self.matched_by_none if unmatched == "keep" else frozenset()
        return sorted(self.needed | also)


def load_cases() -> list[Case]:
    """All cases of the file, in order."""
    return [_case(said) for said in lines_of(FILE)]


def warehouse_of(
    folder: Path, cases: Sequence[Case], format_: str, engine: str, unmatched: str
) -> Warehouse:
    """A warehouse with streams named like the cases; its clock is stopped at their latest instant."""
    streams = [{**case.config, "name": case.id, "unmatched": unmatched} for case in cases]
    now_ns = max(case.as_of_ns for case in cases)
    return warehouse_with(folder, streams, format_, engine, now_ns)


def bring_in(warehouse: Warehouse, cases: Iterable[Case], folder: Path) -> None:
    """Write each case as a backup with its consumers, and import it."""
    for case in cases:
        path = folder / f"{case.id}.backup"
        last_seq = max(case.rows["seq"].to_pylist())
        state = state_of(case.rows, last_seq, case.config["storage"])
        write_backup(path, state, case.consumers, [case.rows])
        import_nats_backup(warehouse.stream(case.id).opened, path)


def left_in(warehouse: Warehouse, name: str) -> list[int]:
    """The sequences of a stream."""
    return [seq for table in warehouse.stream(name).messages() for seq in table["seq"].to_pylist()]


def _case(said: dict[str, Any]) -> Case:
    return Case(
        id=said["id"],
        as_of_ns=said["as_of_ns"],
        config=said["config"],
        rows=rows_of(said["messages"]),
        consumers={one["config"]["durable_name"]: one for one in said["consumers"]},
        needed=frozenset(said["expect"]["needed"]),
        matched_by_none=frozenset(said["expect"]["matched_by_no_consumer"]),
    )
