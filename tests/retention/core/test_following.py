from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from retention.core import following
from retention.core.following import act_until_signal
from retention.core.outcomes import Outcome
from retention.errors import RefusedError, Terminated
from retention.storage.signals import Stop, end_between_commits, uninterrupted
from tests.support.sandboxes import NOW

NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of a command, and afterwards those of before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    end_between_commits()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def until_asked(name: str, stop: Stop) -> str:
    try:
        while True:
            stop.sleep(0.01)
    except Terminated:
        return f"{name} ended"


def send(number: int, when: threading.Event) -> None:
    def sending() -> None:
        when.wait()
        os.kill(os.getpid(), number)

    threading.Thread(target=sending).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_and_outcomes_are_in_order(number: int) -> None:
    begun = threading.Barrier(len(NAMES))
    ready = threading.Event()

    def act(name: str, stop: Stop) -> str:
        begun.wait()
        ready.set()
        return until_asked(name, stop)

    send(number, ready)
    done = act_until_signal(NAMES, act, lambda: NOW)
    assert [outcome.value for outcome in done] == ["a ended", "b ended", "c ended"]


def test_a_failure_is_told_before_the_end_and_stops_no_other() -> None:
    told: list[str] = []
    ready = threading.Event()

    def act(name: str, stop: Stop) -> str:
        if name == "b":
            raise RefusedError("it is another stream")
        return until_asked(name, stop)

    def watch(outcome: Outcome[str]) -> None:
        told.append(outcome.sentence)
        ready.set()

    send(signal.SIGTERM, ready)
    done = act_until_signal(NAMES, act, lambda: NOW, watch)
    assert told[0] == "b: it is another stream"
    assert [outcome.exit_code for outcome in done] == [0, 4, 0]


def test_commits_that_overlap_for_ever_keep_no_signal_waiting() -> None:
    ready, gate = threading.Event(), threading.Semaphore(1)

    def act(name: str, stop: Stop) -> str:
        for _ in range(5_000):
            if stop.is_asked:
                return name
            with uninterrupted():
                ready.set()
                gate.release()
                gate.acquire()
                time.sleep(0.001)
        raise AssertionError("nothing asked for the end")

    send(signal.SIGTERM, ready)
    done = act_until_signal(NAMES, act, lambda: NOW)
    assert [outcome.value for outcome in done] == [*NAMES]


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_stream_that_had_not_begun_ends_with_the_signal(
    number: int, kind: type[BaseException]
) -> None:
    ready = threading.Event()

    def act(_name: str, stop: Stop) -> None:
        ready.set()
        stop.sleep(60)

    send(number, ready)
    with pytest.raises(kind):
        act_until_signal(NAMES, act, lambda: NOW)


def test_a_stream_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ENDS_WITHIN_S", 0.2)
    ready, end = threading.Event(), threading.Event()

    def act(_name: str, _stop: Stop) -> None:
        ready.set()
        end.wait()

    send(signal.SIGTERM, ready)
    with pytest.raises(Terminated):
        act_until_signal(NAMES, act, lambda: NOW)
    end.set()


def test_a_second_signal_ends_it_at_once() -> None:
    ready, end = threading.Event(), threading.Event()

    def act(_name: str, stop: Stop) -> None:
        ready.set()
        while not stop.is_asked:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        end.wait()

    send(signal.SIGTERM, ready)
    with pytest.raises(KeyboardInterrupt):
        act_until_signal(["a"], act, lambda: NOW)
    end.set()
