"""The streams selected by a call of a warehouse in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse
from retention.core.units import DAY
from tests.support.sandboxes import NOW, ORDERS, lines, opened

CALLS: dict[str, Callable[..., Any]] = {
    "plan": Warehouse.plan,
    "apply": Warehouse.apply,
    "mirror": Warehouse.mirror,
    "compact": lambda warehouse, *names: warehouse.compact(*names).apply(),
    "reclaim": lambda warehouse, *names: warehouse.reclaim(*names).plan,
    "reclaim_leftovers": lambda warehouse, *names: warehouse.reclaim_leftovers(*names).plan,
    "history": Warehouse.history,
    "history_export": lambda warehouse, *names: warehouse.history_export(*names).to_pylist(),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A warehouse with a stream after a pass with removals, and with more due messages."""
    made = opened(tmp_path, ORDERS | {"max_age": "1d", "compact": {}})
    made.stream("ORDERS").publish(lines(3, first_ns=NOW - 9 * DAY))
    made.apply()
    made.stream("ORDERS").publish(lines(3, first_ns=NOW - 9 * DAY))
    return made


@pytest.mark.parametrize("name", CALLS)
def test_a_list_without_names_is_nobody_and_no_list_is_all(warehouse: Warehouse, name: str) -> None:
    call, before = CALLS[name], warehouse.stream("ORDERS").state().messages
    assert list(call(warehouse, [])) == []
    assert list(call(warehouse, iter(()))) == []
    assert warehouse.stream("ORDERS").state().messages == before == 3
    if name != "mirror":
        assert list(call(warehouse)) != []
        assert list(call(warehouse, None)) != []
