"""The stores under the contract."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from retention.ports import TableStore
from retention.storage import files
from retention.stores import StoreSettings, stream_table
from tests.contract.streams import foreign_rows, rows
from tests.support.buckets import BUCKET, ObjectPath, object_store

FORMATS = ("delta", "parquet")
STORES = (*FORMATS, "delta-s3")
NOW_NS = 1_800_000_000 * 10**9


@dataclass
class Stage:
    """A stream's directory, and access to it from outside."""

    format: str
    root: Any
    """A `Path`, or its counterpart on an object store."""
    now_ns: int = NOW_NS
    settings: dict[str, Any] = field(default_factory=dict)

    def open(self, **settings: Any) -> TableStore:
        """The stream's store, opened as by another process."""
        chosen = StoreSettings(format=self.format, **{**self.settings, **settings})
        return stream_table(str(self.root), "ORDERS", chosen, lambda: self.now_ns).store()

    @property
    def table(self) -> str:
        """The location of the messages for other programs."""
        return str(self.root / "messages")

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options for other programs."""
        return files.storage_options() if files.is_remote(str(self.root)) else None

    def foreign(self, seqs: range, segment: int, **columns: Any) -> None:
        """Another writer appends rows."""
        if self.format == "delta":
            table = foreign_rows(seqs, segment, **columns)
            write_deltalake(self.table, table, mode="append", storage_options=self.options)
            return
        folder = self.root / "messages" / "partition=0" / f"segment={segment}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"mirror-{seqs.start}-{len(list(folder.iterdir()))}.parquet"
        pq.write_table(rows(seqs, **columns), folder / name)


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """The environment for the object store of the test run, set in this process.

    It is set only once, because native threads of earlier tests may read the environment at any
    time, and crash if it changes.
    """
    with object_store() as environment:
        os.environ.update(environment)
        yield environment


@pytest.fixture
def bucket(server: dict[str, str]) -> str:
    """An empty prefix on the object store."""
    del server
    return f"s3://{BUCKET}/{next(_numbers)}"


_numbers = itertools.count(1)


@pytest.fixture(params=FORMATS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """An empty location for a stream."""
    if request.param == "delta-s3":
        prefix = request.getfixturevalue("bucket")
        return Stage("delta", ObjectPath(f"{prefix}/streams/ORDERS"))
    return Stage(request.param, tmp_path / "streams" / "ORDERS")


@pytest.fixture
def store(stage: Stage) -> TableStore:
    """A stream just created."""
    made = stage.open()
    made.create()
    return made


@pytest.fixture
def delta(tmp_path: Path) -> Callable[..., Stage]:
    """A function that creates the location of a Delta stream."""
    return lambda: Stage("delta", tmp_path / "streams" / "ORDERS")
