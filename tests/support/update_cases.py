"""Cases judged by a real server's STREAM.UPDATE: loading, shift to one instant, import, and comparison."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.api.warehouse import Warehouse
from retention.formats.nats.backup import RAW_ROWS, write_backup
from retention.ingest.import_nats import import_nats_backup
from tests.support.cases import lines_of, rows_of, warehouse_with
from tests.support.nats_oracle import state_of

FILE = Path(__file__).parents[1] / "conformance" / "jetstream-update.jsonl"
COMPARED = ["seq", "subject", "ts_ns", "headers", "payload"]
_NAMES_AND_SUBJECTS = ("name", "subjects")


@dataclass(frozen=True)
class Case:
    """One stream before an update, the update, and the server's messages after it."""

    id: str
    as_of_ns: int
    config: dict[str, Any]
    last_seq: int
    rows: pa.Table
    """The stored messages; shape `RAW_ROWS`."""
    expect: dict[str, Any]

    @property
    def uses_ttl_or_markers(self) -> bool:
        return bool(self.config["allow_msg_ttl"] or self.config["subject_delete_marker_ttl"])

    def at(self, as_of_ns: int) -> Case:
        """The same case at another instant; only time differences matter."""
        shifted = pc.add(self.rows["ts_ns"], as_of_ns - self.as_of_ns)
        rows = self.rows.set_column(2, RAW_ROWS.field("ts_ns"), shifted)
        return Case(self.id, as_of_ns, self.config, self.last_seq, rows, self.expect)

    def survivors(self) -> list[dict[str, Any]]:
        """The kept rows, then the written markers; shape `COMPARED`."""
        kept = set(self.expect["kept"])
        stayed = [row for row in self.rows.to_pylist() if row["seq"] in kept]
        return stayed + [
            {
                "seq": marker["seq"],
                "subject": marker["subject"],
                "ts_ns": self.as_of_ns,
                "headers": base64.b64decode(marker["header_b64"]),
                "payload": b"",
            }
            for marker in self.expect["markers"]
        ]


def load_cases() -> list[Case]:
    """All cases of the file, in order."""
    return [_case(said) for said in lines_of(FILE)]


def warehouse_of(folder: Path, cases: Sequence[Case], format_: str, engine: str) -> Warehouse:
    """A warehouse with streams named like the cases; its clock is stopped at their latest instant."""
    streams = [_settings(case) for case in cases]
    now_ns = max(case.as_of_ns for case in cases)
    return warehouse_with(folder, streams, format_, engine, now_ns)


def bring_in(warehouse: Warehouse, cases: Iterable[Case], folder: Path) -> None:
    """Write each case as a backup and import it."""
    for case in cases:
        path = folder / f"{case.id}.backup"
        state = state_of(case.rows, case.last_seq, case.config["storage"])
        write_backup(path, state, {}, [case.rows])
        import_nats_backup(warehouse.stream(case.id).opened, path)


def left_in(warehouse: Warehouse, name: str) -> dict[str, Any]:
    """The content of a stream: its numbers, and every message exactly."""
    stream = warehouse.stream(name)
    state = stream.state(as_of=0)
    rows = [row for table in stream.messages() for row in table.select(COMPARED).to_pylist()]
    numbers = ("messages", "bytes", "first_seq", "last_seq")
    return {name: getattr(state, name) for name in numbers} | {"rows": rows}


def expected(case: Case) -> dict[str, Any]:
    """The expected content of a stream after the pass, in the shape of `left_in`."""
    numbers = ("messages", "bytes", "first_seq", "last_seq")
    return {name: case.expect[name] for name in numbers} | {"rows": case.survivors()}


def _settings(case: Case) -> dict[str, Any]:
    kept = {name: case.config[name] for name in case.config if name not in _NAMES_AND_SUBJECTS}
    return {"name": case.id, **kept}


def _case(said: dict[str, Any]) -> Case:
    return Case(
        id=said["id"],
        as_of_ns=said["as_of_ns"],
        config=said["config"],
        last_seq=said["state_before"]["last_seq"],
        rows=rows_of(said["messages"]),
        expect=said["expect"],
    )
