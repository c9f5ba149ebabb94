from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from retention.core.table_policy import RowPolicy, TableColumns, TableLimits, TablePolicy
from retention.core.units import DAY, SECOND
from retention.rules.tables.sql import statements
from retention.rules.tables.ticks import TimeColumn, TimeColumns
from tests.support.laws import law
from tests.support.table_worlds import (
    AS_OF_NS,
    TIMES,
    Row,
    TableWorld,
    as_table,
    removed,
    table_worlds,
    with_total_order,
)


def remaining(rows: Sequence[Row], world: TableWorld) -> set[tuple[int, int]]:
    """The rows that the statements leave in DuckDB."""
    table = as_table(rows)
    database().register("given", table)
    database().execute("CREATE OR REPLACE TABLE events AS FROM given")
    for statement in statements("events", world.policy, TIMES, AS_OF_NS):
        database().execute(statement.replace("`", '"').replace("struct(", "row("))
    kept = database().execute("SELECT file, row FROM events")
    return set(kept.fetchall())


@cache
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect().execute("SET TimeZone = 'UTC'; SET threads = 1")


@law
@given(table_worlds().filter(lambda world: world.rows), st.randoms(use_true_random=False))
def test_statements_leave_what_a_pass_leaves_where_time_and_order_are_total(
    world: TableWorld, random: object
) -> None:
    total = with_total_order(world, random)
    gone = removed(total)
    left = {(row.file, row.row) for row in total.rows} - gone.keys()
    assert remaining(total.rows, total) == left


def test_names_and_values_are_written_for_spark() -> None:
    where = (
        (("at", "a`b"), ("it's \\", None)),
        (("day",), (date(2026, 5, 1),)),
        (("flag",), (True,)),
        (("price",), (Decimal("1.50"),)),
        (("since",), (datetime(2026, 5, 1, tzinfo=UTC),)),
    )
    limits = TableLimits(max_bytes=5, expires=True)
    policy = TablePolicy(
        TableColumns(expires_at=("until",)), limits, (RowPolicy(where, TableLimits(), frozenset()),)
    )
    times = TimeColumns(expires_at=TimeColumn("date"))
    assert statements("lake.events", policy, times, 20_574 * DAY) == [
        "DELETE FROM lake.events WHERE CASE WHEN "
        r"(`at`.`a``b` IN ('it\'s \\') OR `at`.`a``b` IS NULL) AND `day` IN (DATE '2026-05-01') "
        "AND `flag` IN (TRUE) AND `price` IN (1.50BD) "
        "AND `since` IN (TIMESTAMP '2026-05-01 00:00:00+00:00') "
        "THEN FALSE ELSE `until` <= DATE '2026-04-30' END",
        "-- max_bytes removes whole files, which no statement can name",
    ]


def test_local_times_that_a_clock_skipped_are_due_later() -> None:
    policy = TablePolicy(TableColumns(time=("at",)), TableLimits(max_age_ns=0))
    times = TimeColumns(TimeColumn("timestamp_ntz", "Europe/Berlin"))
    instant = int(datetime(2026, 3, 29, 1, 30, tzinfo=UTC).timestamp()) * SECOND
    assert statements("events", policy, times, instant) == [
        "DELETE FROM events WHERE (`at` <= TIMESTAMP_NTZ '2026-03-29 03:30:00' AND NOT `at` BETWEEN "
        "TIMESTAMP_NTZ '2026-03-29 02:30:00.000001' AND TIMESTAMP_NTZ '2026-03-29 02:59:59.999999')"
    ]
