"""Work beside the caller's: one piece at a time, its outcome in the caller's thread, and none left after the block."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from retention.core.labels import current_label, labelled
from retention.ingest.sync.beside import Beside, one_beside


def test_outcomes_come_in_order_before_the_next_work_begins_and_in_the_callers_thread() -> None:
    came: list[object] = []

    def then(worker: threading.Thread) -> None:
        came.extend([worker is threading.current_thread(), threading.main_thread() is worker])
        came.append(threading.current_thread() is threading.main_thread())

    def work() -> threading.Thread:
        came.append("works")
        return threading.current_thread()

    with one_beside() as beside:
        beside.begin(work, then)
        beside.begin(work, then)
    assert came == ["works", False, False, True] * 2


def test_the_caller_goes_on_while_the_work_does() -> None:
    gone_on = threading.Event()
    came: list[bool] = []
    with one_beside() as beside:
        beside.begin(lambda: gone_on.wait(60), came.append)
        gone_on.set()
    assert came == [True]


def test_an_outcome_is_handed_on_although_the_block_fails() -> None:
    came: list[int] = []

    def fail() -> None:
        with one_beside() as beside:
            beside.begin(lambda: 1, came.append)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert came == [1]


def _begun(beside: Beside) -> None:
    beside.begin(lambda: 2, lambda _outcome: None)


@pytest.mark.parametrize("notice", [Beside.settle, _begun, lambda _beside: None])
def test_an_error_of_the_work_is_raised_where_it_is_noticed(
    notice: Callable[[Beside], None],
) -> None:
    def fail() -> int:
        raise LookupError("work")

    came: list[int] = []

    def run() -> None:
        with one_beside() as beside:
            beside.begin(fail, came.append)
            notice(beside)

    with pytest.raises(LookupError, match="work"):
        run()
    assert not came


def test_a_signal_while_waiting_loses_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []
    with one_beside() as beside:
        beside.begin(lambda: 1, came.append)
        monkeypatch.setattr("retention.ingest.sync.beside.wait", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            beside.settle()
        monkeypatch.undo()
        assert not came
    assert came == [1]


def _interrupted(_works: object) -> None:
    raise KeyboardInterrupt


def test_work_has_the_callers_label() -> None:
    came: list[str] = []
    with labelled(run="r-1"), one_beside() as beside:
        beside.begin(lambda: current_label().run, came.append)
    assert came == ["r-1"]
