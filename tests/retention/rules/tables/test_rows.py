from __future__ import annotations

from hypothesis import given

from retention.rules.tables.rows import RowRules, dead_rows
from tests.support.laws import law
from tests.support.table_worlds import AS_OF_NS, TIMES, TableWorld, lost, removed, table_worlds


@law
@given(table_worlds())
def test_rows_are_decided_as_by_a_walk_in_plain_python(world: TableWorld) -> None:
    rules = RowRules(world.policy, TIMES, AS_OF_NS)
    rows, _ = rules.expire(world.narrow(range(len(world.files))))
    rows = rules.cut_keys(rows)
    rows, _ = rules.cut_counts(rows, {})
    is_by_file = world.policy.columns.size is None
    assert lost(dead_rows(rows)) == {
        row: rule
        for row, rule in removed(world).items()
        if not (is_by_file and rule == "max_bytes")
    }
