from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from retention.errors import Terminated
from retention.storage.signals import end_between_commits, handlers_kept, uninterrupted


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    end_between_commits()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_ends_at_once_what_is_no_commit(
    number: signal.Signals, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        signal.raise_signal(number)


def test_a_signal_waits_for_the_end_of_a_commit() -> None:
    reached = []

    def commit() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            with uninterrupted():
                reached.append("inner")
            reached.append("outer")

    with pytest.raises(Terminated):
        commit()
    assert reached == ["inner", "outer"]
    with uninterrupted():
        pass


def test_a_second_signal_does_not_wait() -> None:
    def commit() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the commit went on")

    with pytest.raises(KeyboardInterrupt):
        commit()
    with uninterrupted():
        pass


def test_a_signal_waits_for_the_commit_of_another_thread() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def commit() -> None:
        with uninterrupted():
            begun.set()
            may_end.wait(10)
            ended.set()

    def wait_for_it() -> None:
        signal.raise_signal(signal.SIGTERM)
        may_end.set()
        thread.join(10)

    thread = threading.Thread(target=commit)
    thread.start()
    begun.wait(10)
    with pytest.raises(Terminated):
        wait_for_it()
    assert ended.is_set()


def test_handlers_of_others_do_not_stay() -> None:
    with handlers_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)


def test_without_handlers_those_of_others_stay() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with handlers_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_outside_the_main_thread_no_handler_is_touched() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with handlers_kept():
                pass
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
