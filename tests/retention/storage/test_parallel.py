from __future__ import annotations

import threading
import time

import pytest

from retention.storage.parallel import in_threads


def test_results_come_in_the_order_of_the_things() -> None:
    assert list(in_threads(lambda one: one * one, range(50), 4)) == [n * n for n in range(50)]


def test_one_thing_alone_is_done_by_who_asks() -> None:
    def whose(_: int) -> int:
        return threading.get_ident()

    here = threading.get_ident()
    assert list(in_threads(whose, [1], 4)) == [here]
    assert here not in in_threads(whose, [1, 2], 4)
    assert list(in_threads(whose, [], 4)) == []


def test_what_is_raised_comes_out_in_its_place_and_the_rest_is_not_begun() -> None:
    begun: list[int] = []

    def third_fails(number: int) -> int:
        begun.append(number)
        if number == 2:
            raise ValueError(number)
        if number > 2:
            # All of them would take a minute; even on a busy machine the failure is raised earlier.
            time.sleep(0.01)
        return number

    done = in_threads(third_fails, range(10_000), 2)
    assert [next(done), next(done)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(done)
    assert len(begun) < 10_000
