"""What files of cases that real servers judged have in common: their lines, their messages, their warehouses."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pytest

from retention.formats.nats_backup import RAW_ROWS
from retention.warehouse import Warehouse, open_warehouse


class Named(Protocol):
    """A case, as far as its test is called after it."""

    @property
    def id(self) -> str:
        """Its name, which no other case has."""
        ...


SomeCase = TypeVar("SomeCase", bound=Named)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The cases of a file as it says them, in its order."""
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def rows_of(messages: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The messages of a case, shape `RAW_ROWS`."""
    rows = [
        {
            "seq": message["seq"],
            "subject": message["subject"],
            "ts_ns": message["ts_ns"],
            "headers": base64.b64decode(message["header_b64"]) or None,
            "payload": base64.b64decode(message["payload_b64"]),
        }
        for message in messages
    ]
    return pa.Table.from_pylist(rows, schema=RAW_ROWS)


def warehouse_with(
    folder: Path, streams: Sequence[Mapping[str, Any]], table_format: str, engine: str, now_ns: int
) -> Warehouse:
    """A warehouse of these streams whose clock stands."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"warehouse": ".", "defaults": {"format": table_format}, "streams": streams}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_warehouse(
        path, engine="spark" if engine == "spark" else "local", clock=lambda: now_ns
    )


def matrix(share: Mapping[str, Sequence[SomeCase]]) -> list[Any]:
    """A parameter set (format, engine, case) for each case that an engine judges, on either format."""
    return [
        pytest.param(format_, engine, case.id, marks=[pytest.mark.spark] * (engine == "spark"))
        for engine, cases in share.items()
        for format_ in ("delta", "parquet")
        for case in cases
    ]
