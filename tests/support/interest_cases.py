"""Cases that a real server judged by its consumers' states: read, brought in with their consumers, and compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.formats.nats_backup import RAW_ROWS, write_backup
from retention.warehouse import Warehouse, open_warehouse
from retention.writing.imports import import_nats_backup
from tests.support.nats_oracle import state_of

FILE = Path(__file__).parents[1] / "conformance" / "jetstream-interest.jsonl"


@dataclass(frozen=True)
class Case:
    """One stream, its consumers, and what some consumer needs of it."""

    id: str
    as_of_ns: int
    config: dict[str, Any]
    rows: pa.Table
    """What was stored; shape `RAW_ROWS`."""
    consumers: dict[str, dict[str, Any]]
    """Name → `config` and `state`, as in a backup."""
    needed: frozenset[int]
    matched_by_none: frozenset[int]

    def kept(self, unmatched: str) -> list[int]:
        """The sequences that must be left."""
        also = self.matched_by_none if unmatched == "keep" else frozenset()
        return sorted(self.needed | also)


def load_cases() -> list[Case]:
    """All cases of the file, in its order."""
    with FILE.open(encoding="utf-8") as lines:
        return [_case(json.loads(line)) for line in lines]


def warehouse_of(
    folder: Path, cases: Sequence[Case], format_: str, engine: str, unmatched: str
) -> Warehouse:
    """A warehouse whose streams are called as the cases; its clock stands at the latest instant of any."""
    folder.mkdir(parents=True, exist_ok=True)
    streams = [{**case.config, "name": case.id, "unmatched": unmatched} for case in cases]
    config = {"warehouse": ".", "defaults": {"format": format_}, "streams": streams}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    now = max(case.as_of_ns for case in cases)
    return open_warehouse(path, engine="spark" if engine == "spark" else "local", clock=lambda: now)


def bring_in(warehouse: Warehouse, cases: Iterable[Case], folder: Path) -> None:
    """Write each case as a backup, consumers and all, and import it."""
    for case in cases:
        path = folder / f"{case.id}.backup"
        last_seq = max(case.rows["seq"].to_pylist())
        state = state_of(case.rows, last_seq, case.config["storage"])
        write_backup(path, state, case.consumers, [case.rows])
        import_nats_backup(warehouse.stream(case.id).opened, path)


def left_in(warehouse: Warehouse, name: str) -> list[int]:
    """The sequences that a stream holds."""
    return [seq for table in warehouse.stream(name).messages() for seq in table["seq"].to_pylist()]


def _case(said: dict[str, Any]) -> Case:
    rows = [
        {
            "seq": message["seq"],
            "subject": message["subject"],
            "ts_ns": message["ts_ns"],
            "headers": base64.b64decode(message["header_b64"]) or None,
            "payload": base64.b64decode(message["payload_b64"]),
        }
        for message in said["messages"]
    ]
    return Case(
        id=said["id"],
        as_of_ns=said["as_of_ns"],
        config=said["config"],
        rows=pa.Table.from_pylist(rows, schema=RAW_ROWS),
        consumers={one["config"]["durable_name"]: one for one in said["consumers"]},
        needed=frozenset(said["expect"]["needed"]),
        matched_by_none=frozenset(said["expect"]["matched_by_no_consumer"]),
    )
