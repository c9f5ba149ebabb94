from __future__ import annotations

import errno
from threading import Barrier, get_ident

import pytest

from retention.core.outcomes import (
    Outcome,
    act_concurrently,
    act_sequentially,
    exit_code,
    exit_code_of,
    failure_entry,
    sentence_of,
)
from retention.core.policy import UNLIMITED
from retention.errors import BusyError, RefusedError, StalePlanError, UsageError
from retention.plan.plan import empty_plan
from retention.storage.errors import storage_error
from retention.views.json_entries import failed_entry, plan_entry, report_entry


def act(name: str) -> str:
    if name == "busy":
        raise BusyError("busy: another run is at work; try again")
    if name == "odd":
        raise KeyError("what\nelse")
    return name.upper()


def test_each_is_done_whatever_happens_to_the_others() -> None:
    seen: list[str] = []
    clock = iter(range(0, 10**12, 10**9)).__next__
    outcomes = act_sequentially(
        ["a", "busy", "odd", "b"], act, clock, lambda one: seen.append(one.stream)
    )
    assert [outcome.value for outcome in outcomes] == ["A", None, None, "B"]
    assert seen == ["a", "busy", "odd", "b"]
    assert {outcome.seconds for outcome in outcomes} == {1.0}


def test_streams_done_side_by_side_come_in_order_and_overlap() -> None:
    both = Barrier(2, timeout=30)
    seen: list[str] = []

    def wait(name: str) -> str:
        if name in "ab":
            both.wait()
        return act(name)

    names = ["a", "busy", "b", "odd", "a"]
    outcomes = act_concurrently(names, wait, lambda: 0, 2, lambda one: seen.append(one.stream))
    assert [outcome.value for outcome in outcomes] == ["A", None, "B", None]
    assert [type(outcome.error) for outcome in outcomes[1::2]] == [BusyError, KeyError]
    assert seen == ["a", "busy", "b", "odd"]


def test_one_stream_at_a_time_needs_no_thread_and_is_told_before_the_next() -> None:
    done: list[str] = []

    def note(name: str) -> int:
        done.append(f"do {name}")
        return get_ident()

    def tell(outcome: Outcome[int]) -> None:
        done.append(f"tell {outcome.stream}")

    outcomes = act_concurrently(["a", "b", "a"], note, lambda: 0, 1, tell)
    assert [outcome.value for outcome in outcomes] == [get_ident()] * 2
    assert done == ["do a", "tell a", "do b", "tell b"]


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([None], 0),
        ([None, None], 0),
        ([UsageError("u")], 2),
        ([RefusedError("r")], 4),
        ([BusyError("b")], 75),
        ([ValueError("v")], 1),
        ([None, BusyError("b")], 75),
        ([None, BusyError("b"), StalePlanError("moved")], 75),
        ([None, RefusedError("r")], 5),
        ([BusyError("b"), BusyError("b"), RefusedError("r")], 5),
        ([UsageError("u"), BusyError("b")], 5),
        ([], 0),
    ],
)
def test_one_stream_has_its_own_exit_code_and_several_share_five_or_seventy_five(
    errors: list[Exception | None], code: int
) -> None:
    assert exit_code([Outcome(str(at), error=error) for at, error in enumerate(errors)]) == code


def test_two_steps_on_one_stream_have_the_exit_code_of_the_first_that_failed() -> None:
    errors = [None, BusyError("b"), ValueError("v")]
    steps: list[Outcome[None]] = [Outcome("s", error=error) for error in errors]
    assert exit_code(steps) == BusyError.exit_code


def test_an_unexpected_error_is_one_line_with_its_type() -> None:
    assert sentence_of(ValueError("first\nsecond")) == (
        "unexpected ValueError: first; --debug shows where it came from"
    )


def test_a_sentence_begins_with_the_stream_once() -> None:
    assert Outcome("s", error=UsageError("s: wrong")).sentence == "s: wrong"
    assert Outcome("s", error=UsageError("wrong")).sentence == "s: wrong"
    assert Outcome("s", 1).sentence == ""
    assert failure_entry(Outcome("s", 1)) == {"stream": "s"}


def test_a_failed_stream_has_the_keys_of_one_that_is_done() -> None:
    entry = failed_entry(Outcome("s", error=BusyError("s: busy")))
    assert entry["error"] == {"exit_code": 75, "message": "s: busy"}
    assert report_entry(Outcome("s", error=BusyError("s: busy"))) == entry
    unplanned = plan_entry(Outcome("s", error=BusyError("s: busy")))
    planned = plan_entry(Outcome("s", empty_plan("s", 0, UNLIMITED)))
    assert unplanned.keys() - {"error"} == planned.keys()
    assert unplanned.items() >= {key: entry[key] for key in ("error", "stream")}.items()


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EACCES, 2), (errno.EPERM, 2), (errno.EROFS, 2), (errno.ENOSPC, 1), (errno.EIO, 1)],
)
def test_a_missing_right_is_no_surprise(number: int, code: int) -> None:
    raw = OSError(number, "no", "/srv/lake")
    for error in (raw, storage_error("/srv/lake", raw)):
        assert exit_code_of(error) == code
        assert sentence_of(error).startswith("/srv/lake: ")
