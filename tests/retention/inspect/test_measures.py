"""The measures of an idle stream are cached, and always equal those of a new measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.units import DAY, SECOND
from retention.inspect import measures
from retention.inspect.lag import look
from retention.inspect.measures import LONGEST_KEPT_NS, Measures, measure
from tests.support.sandboxes import NOW, configured, lines

FORMATS = ("delta", "parquet")


def warehouse_of(
    folder: Path, clock: Callable[[], int] = lambda: NOW, **settings: Any
) -> Warehouse:
    listed = {"name": "S", "subjects": ["s.>"], **settings}
    return open_warehouse(configured(folder, listed, engine="local"), clock=clock)


def kept_and_new(warehouse: Warehouse, as_of_ns: int) -> tuple[Measures, Measures]:
    """The measures with the cache, and without it."""
    opened = warehouse.stream("S").opened
    kept = measure(opened, as_of_ns)
    Path(opened.root, "_retention", "measures.json").unlink(missing_ok=True)
    return kept, measure(opened, as_of_ns)


@pytest.mark.parametrize("format_", FORMATS)
def test_measures_are_those_of_a_new_look_whatever_has_happened(
    tmp_path: Path, format_: str
) -> None:
    clock = [NOW]
    warehouse = warehouse_of(tmp_path, lambda: clock[0], max_age="30d", grace="1d", format=format_)
    stream = warehouse.stream("S")
    stream.publish(lines(48, "s.a", NOW - 29 * DAY))

    def check(at: int = NOW) -> Measures:
        kept, new = kept_and_new(warehouse, at)
        assert kept == new
        return kept

    assert check().lag_seconds == 0
    assert check(NOW + DAY - 1).lag_seconds == 0
    assert check(NOW + 4 * DAY).lag_seconds == 3 * DAY / SECOND
    stream.publish(lines(2, "s.b", NOW - 31 * DAY))
    assert check().messages == 50
    clock[0] = NOW + 4 * DAY
    assert [outcome.error for outcome in warehouse.apply(["S"])] == [None]
    assert check(NOW + 4 * DAY).waiting_bytes > 0
    clock[0] = NOW + 10 * DAY
    assert check(NOW + 10 * DAY).due_bytes > 0


@pytest.mark.parametrize("setting", [{"max_age": "5d"}, {"compact": {"min_segment": 0}}])
def test_measures_under_other_settings_are_not_kept_ones(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    warehouse = warehouse_of(tmp_path, max_age="30d", segment_span="1h")
    warehouse.stream("S").publish(lines(48, "s.a", NOW - 29 * DAY))
    before = measure(warehouse.stream("S").opened, NOW)
    warehouse = warehouse_of(tmp_path, **{"max_age": "30d", "segment_span": "1h"} | setting)
    kept, new = kept_and_new(warehouse, NOW)
    assert kept == new
    assert kept != before


@pytest.mark.parametrize("format_", FORMATS)
def test_a_stream_at_rest_is_looked_at_once_a_week(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = warehouse_of(tmp_path, max_age="30d", format=format_)
    warehouse.stream("S").publish(lines(3, "s.a", NOW - DAY))
    looks: list[int] = []

    def counted(opened: Any, as_of_ns: int) -> Any:
        looks.append(as_of_ns)
        return look(opened, as_of_ns)

    monkeypatch.setattr(measures, "look", counted)
    instants = [NOW, NOW + DAY, NOW + LONGEST_KEPT_NS, NOW + LONGEST_KEPT_NS + DAY, NOW]
    values = [measure(warehouse.stream("S").opened, at) for at in instants]
    assert looks == [NOW, NOW + LONGEST_KEPT_NS, NOW]
    assert set(values) == {values[0]}
