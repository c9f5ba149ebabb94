"""Ways to get a Spark session, each tested in a fresh process.

`session_ways.py active MODULE ARGUMENT…` runs the `main` of a module during an active session of
the caller, and checks that the session is left running; `session_ways.py threads ACT CONFIG` does
one act of the Python API in a thread, then in a second thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from retention import open_warehouse
from retention.engines.spark.session import active_session, session

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse


def main() -> int:
    """Run the program.

    Returns:
        Its exit code.
    """
    way, name, *arguments = sys.argv[1:]
    return _active(name, arguments) if way == "active" else _threads(ACTS[name], arguments[0])


def _active(module: str, arguments: list[str]) -> int:
    with session("the caller's") as spark:
        sys.argv = [module, *arguments]
        try:
            code = import_module(module).main()
        except SystemExit as ended:
            code = ended.code
        assert spark.range(3).count() == 3, "the caller's session was stopped"
    return int(code or 0)


def _plan(warehouse: Warehouse) -> None:
    [outcome] = warehouse.plan()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.removed_messages


def _apply(warehouse: Warehouse) -> None:
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence


def _stream_plan(warehouse: Warehouse) -> None:
    assert warehouse.stream("ORDERS").plan().plan.removed_messages


def _purge(warehouse: Warehouse) -> None:
    warehouse.stream("ORDERS").purge("orders.a", keep=1).apply()


def _fold(warehouse: Warehouse) -> None:
    warehouse.stream("ORDERS").consumers.fold("acks.jsonl")


ACTS: dict[str, Callable[[Warehouse], None]] = {
    "plan": _plan,
    "stream plan": _stream_plan,
    "purge": _purge,
    "apply": _apply,
    "fold": _fold,
}


def _threads(act: Callable[[Warehouse], None], config: str) -> int:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            act(open_warehouse(config, engine="spark"))
        except BaseException as error:
            failed.append(error)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    if failed:
        raise failed[0]
    assert active_session() is None, "a session that was started for the work runs on"
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
