from __future__ import annotations

from pathlib import Path

from retention.api.warehouse import Warehouse
from retention.plan.extent import Extent, extent_of
from tests.support.sandboxes import ORDERS, lines, opened

LONG_AGO = 1_600_000_000 * 10**9
OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}


def measured(warehouse: Warehouse, stream: str) -> Extent | None:
    [outcome] = warehouse.plan([stream])
    assert outcome.value is not None
    return extent_of(outcome.value)


def test_files_that_go_whole_are_measured_exactly(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    assert measured(warehouse, "ORDERS") is None
    stream = warehouse.stream("ORDERS")
    for start in (0, 100):
        stream.publish(lines(3, first_ns=LONG_AGO + start))
    state = stream.state()
    assert state.first_ts_ns is not None
    assert state.last_ts_ns is not None
    exact = Extent(1, 6, state.first_ts_ns, state.last_ts_ns, is_exact=True)
    assert measured(warehouse, "ORDERS") == exact


def test_of_a_part_of_a_file_no_time_beyond_the_files_is_said(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, OTHER)
    stream = warehouse.stream("OTHER")
    stream.publish(lines(5, "other.a", first_ns=LONG_AGO))
    extent = measured(warehouse, "OTHER")
    assert extent is not None
    assert (extent.first_seq, extent.last_seq, extent.is_exact) == (1, 2, False)
    assert extent.newest_ns == stream.state().last_ts_ns
