"""The stores that keep the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from retention.ports import Store
from retention.stores import StoreSettings, open_store
from tests.contract.streams import foreign_rows, rows

FORMATS = ("delta", "parquet")
NOW_NS = 1_800_000_000 * 10**9


@dataclass
class Stage:
    """A stream's directory and ways to look at it from outside."""

    format: str
    root: Path
    now_ns: int = NOW_NS
    settings: dict[str, Any] = field(default_factory=dict)

    def open(self, **settings: Any) -> Store:
        """The stream's store, as another process would open it."""
        chosen = StoreSettings(format=self.format, **{**self.settings, **settings})
        return open_store(str(self.root), "ORDERS", chosen, lambda: self.now_ns)

    def foreign(self, seqs: range, segment: int, **columns: Any) -> None:
        """Another writer appends rows."""
        if self.format == "delta":
            write_deltalake(
                self.root / "messages", foreign_rows(seqs, segment, **columns), mode="append"
            )
            return
        folder = self.root / "messages" / "partition=0" / f"segment={segment}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"mirror-{seqs.start}-{len(list(folder.iterdir()))}.parquet"
        pq.write_table(rows(seqs, **columns), folder / name)


@pytest.fixture(params=FORMATS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """An empty place for a stream."""
    return Stage(request.param, tmp_path / "streams" / "ORDERS")


@pytest.fixture
def store(stage: Stage) -> Store:
    """A stream just created."""
    made = stage.open()
    made.create()
    return made


@pytest.fixture
def delta(tmp_path: Path) -> Callable[..., Stage]:
    """Makes the place of a Delta stream."""
    return lambda: Stage("delta", tmp_path / "streams" / "ORDERS")
