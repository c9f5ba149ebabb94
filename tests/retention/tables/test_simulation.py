from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from retention.api.table import Table
from retention.api.warehouse import open_warehouse
from retention.apply.guards import Guards
from retention.engines.local import LocalEngine
from retention.errors import UsageError
from retention.tables.access import access_of
from retention.tables.apply import apply_now
from retention.tables.bounded_files import BoundedFiles
from retention.tables.opened import OpenedTable
from retention.tables.simulation import bounded_pass
from tests.retention.tables.worlds import TICK_US, laid
from tests.support.laws import law_on_disk
from tests.support.table_worlds import AS_OF_NS, TableWorld, table_worlds

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
DAY_NS = 86_400 * 10**9

moments = st.lists(st.integers(AS_OF_NS // 2, 2 * AS_OF_NS), min_size=1, max_size=3).map(sorted)


@law_on_disk
@given(table_worlds().filter(lambda world: world.rows), moments)
def test_bounds_of_an_instant_contain_what_passes_until_then_removed(
    world: TableWorld, passes: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = laid(world, Path(folder))
        files = files_of(opened)
        removed = 0
        for ticks in passes:
            at_ns = ticks * TICK_US
            bounds = bounded_pass(files, opened.policy, at_ns)
            at = replace(opened, clock=partial(int, at_ns))
            report = apply_now(at, at_ns, lambda size: LocalEngine(), Guards())
            removed += report.removed_rows
            assert bounds.removed.lower <= removed <= bounds.removed.upper
            assert bounds.stored == len(world.rows)


def files_of(opened: OpenedTable) -> BoundedFiles:
    files = BoundedFiles.of(opened, access_of(opened).read(opened))
    assert files is not None
    return files


@pytest.fixture
def events(tmp_path: Path) -> Table:
    """A table of ten files, each with 24 rows of one day."""
    for day in range(10, 0, -1):
        times = [START - timedelta(days=day) + timedelta(hours=hour) for hour in range(24)]
        rows = {"at": pa.array(times, pa.timestamp("us", "UTC")), "user": ["a", "b", "c"] * 8}
        write_deltalake(str(tmp_path / "events"), pa.table(rows), mode="append")
    config = tmp_path / "retention.yaml"
    config.write_text(
        "warehouse: wh\ntables: [{name: events, location: events, time: at, key: [user], max_age: 30d}]\n"
    )
    return open_warehouse(config, clock=lambda: int(START.timestamp()) * 10**9).table("events")


def test_limits_stand_side_by_side_from_the_log_and_from_rows(events: Table) -> None:
    simulation = events.simulate(
        {"keys": {"max_rows_per_key": 5}}, ["now", "now+23d"], max_age="5d"
    )
    configured, keys, changed = simulation.policies
    assert [each.kept.upper for each in configured.passes] == [240, 168]
    assert (keys.passes[0].kept.lower, keys.passes[0].kept.upper) == (0, 240)
    assert changed.passes[0].kept.lower <= 119 <= changed.passes[0].kept.upper
    assert (changed.cost.pieces["dropped"].lower, changed.cost.pieces["rewritten"].upper) == (5, 1)
    exact = events.simulate({"keys": {"max_rows_per_key": 5}}, ["now"], exact=True, max_age="5d")
    assert [policy.passes[0].kept.lower for policy in exact.policies] == [240, 15, 119]
    assert list(exact.to_pandas()["kept_rows.upper"]) == [240, 15, 119]


def test_rows_to_come_are_assumed_as_they_came(events: Table) -> None:
    (policy,) = events.simulate(at=["now", "now+100d"], growth="history").policies
    now, later = policy.passes
    assert now.stored == 240
    assert 2600 <= later.stored <= 2680
    assert later.kept.lower <= 30 * 24 <= later.kept.upper <= 35 * 24


def test_what_cannot_be_simulated_is_refused(events: Table) -> None:
    with pytest.raises(UsageError, match="did you mean max_rows"):
        events.simulate(max_row=3)
    with pytest.raises(UsageError, match="cannot be read"):
        events.simulate(exact=True, growth="5/day")
