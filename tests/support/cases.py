"""Common parts of case files judged by real servers: their lines, their messages, their warehouses."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.formats.nats.backup import RAW_ROWS
from tests.support.laying import stored_as

EVERYTHING = os.environ.get("RETENTION_CONFORMANCE") == "all"
"""Whether every engine runs every case on every format."""
FORMATS = ("delta", "parquet")


class Named(Protocol):
    """A case with the id of its test."""

    @property
    def id(self) -> str:
        """Its unique name."""
        ...


SomeCase = TypeVar("SomeCase", bound=Named)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The cases of a file as JSON values, in order."""
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
    """A warehouse of these streams with a stopped clock."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"warehouse": ".", "defaults": stored_as(table_format), "streams": streams}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_warehouse(
        path, engine="spark" if engine == "spark" else "local", clock=lambda: now_ns
    )


def shares(cases: Sequence[SomeCase]) -> dict[tuple[str, str], Sequence[SomeCase]]:
    """The cases by format and engine: every fifteenth on `local`, a quarter of these on `spark`, each on one format."""
    if EVERYTHING:
        return {(one, engine): cases for one in FORMATS for engine in ("local", "spark")}
    some_of_all = cases[::15]
    return {
        (format_, engine): some[at :: len(FORMATS)]
        for engine, some in (("local", some_of_all), ("spark", some_of_all[::4]))
        for at, format_ in enumerate(FORMATS)
    }


def matrix(share: Mapping[tuple[str, str], Sequence[SomeCase]]) -> list[Any]:
    """A parameter set (format, engine, case) for each case of the share."""
    return [
        pytest.param(format_, engine, case.id, marks=[pytest.mark.spark] * (engine == "spark"))
        for (format_, engine), cases in share.items()
        for case in cases
    ]


def judged_by(share: Mapping[tuple[str, str], Sequence[SomeCase]], engine: str) -> int:
    """The number of cases of an engine, on any format."""
    return len({case.id for (_, one), cases in share.items() if one == engine for case in cases})
