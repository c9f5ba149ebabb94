"""The inventory cache: its answers without opening the table equal the table's, after any later changes."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import example, given
from hypothesis import strategies as st

from retention.core.inventory import Inventory
from retention.datafile import parquet
from retention.errors import ForeignRowsError
from retention.ports import IncrementalInventory
from retention.stores import StoreSettings, stream_table
from retention.stores.delta.actions import add_action, remove_action
from retention.stores.delta.store import DeltaStore
from retention.stores.layout import Layout
from retention.stores.sidecar import inventory_cache
from retention.stores.sidecar.stats_cache import StatisticsCache
from tests.support.delta_tables import write_next
from tests.support.laws import law_on_disk

NOW = 1_800_000_000 * 10**9
EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_cache, "BLOCK_FILES", 3)
    monkeypatch.setattr(inventory_cache, "_GARBAGE_BYTES", 20_000)


def stats(base: int, first: int, last: int, name: str = "") -> dict[str, Any]:
    path = f"partition=0/segment={base}/{name or f'{first:032x}'}.parquet"
    numbers = dict.fromkeys(("min_ts_ns", "max_ts_ns", "first_ts_ns", "last_ts_ns"), NOW + first)
    counts = dict.fromkeys(("never", "deadlines", "markers"), 0)
    row = {
        "path": path,
        "partition": 0,
        "segment": base,
        "file_bytes": 1_000,
        "modified_ms": NOW // 10**6,
        "messages": last - first + 1,
        "bytes": 9 * (last - first + 1),
        "min_seq": first,
        "max_seq": last,
        "min_deadline_ns": None,
        "max_deadline_ns": None,
        "in_time_order": True,
    }
    return row | numbers | counts


@dataclass
class Table:
    """A table without files: only its log and their statistics."""

    root: Path
    store: DeltaStore = field(init=False)
    rows: list[dict[str, Any]] = field(default_factory=list)
    gone: list[dict[str, Any]] = field(default_factory=list)
    bases: list[int] = field(default_factory=lambda: [1])
    next_seq: int = 1
    used: int = 0

    def __post_init__(self) -> None:
        opened = stream_table(str(self.root), "BIG", StoreSettings(), lambda: NOW).store()
        assert isinstance(opened, DeltaStore)
        self.store = opened
        self.store.create()
        self.append(4)

    def commit(self, remove: list[dict[str, Any]], add: list[dict[str, Any]]) -> None:
        """A commit of another process: in the log, and in the cache."""
        at_ms = NOW // 10**6
        actions = [{"commitInfo": {"operation": "WRITE", "txnId": uuid.uuid4().hex}}]
        actions += [remove_action(row, None, data_change=True, at_ms=at_ms) for row in remove]
        actions += [add_action(row, None, data_change=True) for row in add]
        write_next(self.root / "messages", actions)
        cache = StatisticsCache(Layout(str(self.root), "BIG"), lambda: NOW)
        cache.add(parquet.stats_table(add))
        names = {row["path"] for row in remove}
        self.gone += remove
        self.rows = [row for row in self.rows if row["path"] not in names] + add

    def append(self, count: int) -> None:
        """Add files at the end, some of them in a new segment."""
        new = []
        for number in range(count):
            if number % 3 == 0:
                self.bases.append(self.next_seq)
            new.append(stats(self.bases[-1], self.next_seq, self.next_seq + 1))
            self.next_seq += 2
        self.commit([], new)

    def remove(self, at: int, count: int) -> None:
        """Remove some files at any position."""
        self.commit(self.sorted()[at : at + count], [])

    def rewrite(self, at: int) -> None:
        """Replace a file by one with fewer messages."""
        old = self.sorted()[at % len(self.rows)]
        self.used += 1
        self.commit(
            [old],
            [stats(old["segment"], old["min_seq"], old["min_seq"], f"{self.used + 2**64:032x}")],
        )

    def undo(self) -> None:
        """Restore the last removed files, if they have no replacement or copy."""
        taken = {row["min_seq"] for row in self.rows}
        back = {row["min_seq"]: row for row in self.gone[-2:] if row["min_seq"] not in taken}
        self.gone = self.gone[:-2]
        if back:
            self.commit([], list(back.values()))

    def sorted(self) -> list[dict[str, Any]]:
        """The live files in order."""
        return sorted(self.rows, key=lambda row: row["min_seq"])

    def full(self) -> Inventory:
        """The inventory of the opened table."""
        return self.store.inventory(self.store.snapshot())

    def ahead(self) -> IncrementalInventory | None:
        """The inventory without opening the table."""
        token = self.store.version_token()
        assert token is not None
        return self.store.incremental_inventory(token)

    def keep(self) -> None:
        """Store the cache, like a pass that opened the table."""
        token = self.store.version_token()
        assert token is not None
        self.store.cache_inventory(self.full(), token)


def head_of(
    incremental: IncrementalInventory | None, files: int = EVERYTHING
) -> tuple[Inventory, tuple[int, int, int]]:
    assert incremental is not None
    head = incremental.head(files)
    assert head is not None
    return head.inventory, (head.later.segments, head.later.messages, head.later.bytes)


def same(table: Table) -> None:
    """Check that the cached inventory equals the table's, and that each head is a prefix of it."""
    incremental, whole = table.ahead(), table.full()
    found, later = head_of(incremental)
    assert (
        found.files.equals(whole.files.combine_chunks())
        or found.files.to_pylist() == whole.files.to_pylist()
    )
    assert later == (0, 0, 0)
    assert (found.version, found.table_id) == (whole.version, whole.table_id)
    assert found.counters.next_seq.get(0, 0) >= whole.counters.next_seq.get(0, 0)
    head, (segments, messages, size) = head_of(incremental, 1)
    count = head.files.num_rows
    rest = whole.files.slice(count)
    assert head.files.to_pylist() == whole.files.slice(0, count).to_pylist()
    assert segments == len(set(rest["segment"].to_pylist()))
    assert messages == sum(rest["messages"].to_pylist())
    assert size == sum(rest["bytes"].to_pylist())
    assert not set(head.files["segment"].to_pylist()) & set(rest["segment"].to_pylist())


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 7)),
    st.tuples(st.just("remove"), st.integers(0, 12), st.integers(1, 5)),
    st.tuples(st.just("rewrite"), st.integers(0, 30)),
    st.tuples(st.just("undo")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("look")),
)


@pytest.mark.slow
@law_on_disk
@given(steps=st.lists(STEPS, max_size=14))
@example(steps=[("rewrite", 0), ("remove", 0, 1), ("undo",)])
def test_the_ledger_says_what_the_table_says(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        table.keep()
        for name, *arguments in steps:
            if name == "look":
                assert table.ahead() is not None
            elif name == "checkpoint":
                DeltaTable(f"{table.root}/messages").create_checkpoint()
            elif table.rows or name in ("append", "undo"):
                getattr(table, name)(*arguments)
        same(table)


def test_nothing_is_said_before_anything_is_kept(tmp_path: Path) -> None:
    assert Table(tmp_path).ahead() is None


def test_a_table_that_changed_its_properties_has_to_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    DeltaTable(f"{tmp_path}/messages").alter.set_table_properties({"delta.appendOnly": "true"})
    assert table.ahead() is None


def test_another_table_of_the_same_length_has_to_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    newest = max((tmp_path / "messages" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes() + b"\n")
    assert table.ahead() is None


def test_an_entry_replaced_behind_the_mark_makes_the_table_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    table.append(1)
    token = table.store.version_token()
    assert token is not None
    newest = max((tmp_path / "messages" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes().replace(b'"size": 1000', b'"size": 1001'))
    assert not token.tells(table.store.snapshot())
    assert table.store.incremental_inventory(token) is None


def test_entries_that_are_gone_make_the_table_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    table.append(1)
    gone = max((tmp_path / "messages" / "_delta_log").glob("*.json"))
    table.append(1)
    gone.unlink()
    assert table.ahead() is None


def test_removing_what_the_ledger_does_not_know_makes_the_table_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    table.commit([stats(1, 1, 1, "f" * 32)], [])
    assert table.ahead() is None


def test_removing_what_is_gone_already_makes_the_table_be_opened(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.keep()
    gone = table.sorted()[0]
    table.commit([gone], [])
    assert table.ahead() is not None
    table.keep()
    twice = table.sorted()[0]
    table.commit([twice], [])
    table.commit([twice], [stats(1, 1, 2, "f" * 32)])
    assert table.ahead() is None


def test_rows_that_reach_into_the_next_segment_are_refused_by_name(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.append(9)
    table.keep()
    first = table.sorted()[0]
    table.commit([], [stats(first["segment"], first["min_seq"], EVERYTHING, "e" * 32)])
    assert table.ahead() is None
    with pytest.raises(ForeignRowsError, match="next base"):
        table.full()


@pytest.mark.parametrize("kind", ["*.blocks", "ledger.json"])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_flipped_bit_loses_the_ledger_and_nothing_else(
    tmp_path: Path, kind: str, at: float
) -> None:
    table = Table(tmp_path)
    table.append(9)
    table.keep()
    [hurt] = (tmp_path / "_retention" / "ledger").glob(kind)
    content = bytearray(hurt.read_bytes())
    content[int(len(content) * at)] ^= 0x10
    hurt.write_bytes(bytes(content))
    incremental = table.ahead()
    assert incremental is None or incremental.head(EVERYTHING) is None
    table.keep()
    same(table)


@pytest.mark.slow
def test_packs_that_no_block_lies_in_are_deleted_and_garbage_does_not_pile_up(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    table.append(30)
    table.keep()
    for number in range(40):
        table.rewrite(number)
        assert table.ahead() is not None
    packs = list((tmp_path / "_retention" / "ledger").glob("*.blocks"))
    total = sum(pack.stat().st_size for pack in packs)
    kept = inventory_cache.InventoryCacheFiles(Layout(str(tmp_path), "BIG")).load()
    assert kept is not None
    live = sum(block.length for block in kept.blocks)
    assert total <= 2 * live + 20_000 + max(pack.stat().st_size for pack in packs)
    same(table)
