"""A batch of a stream that is followed is waited for from the one before, and longer while the server has more."""

from __future__ import annotations

import pytest

from retention.nats.pull import Wait
from retention.nats.stream import _wait

LATER = {
    "nothing more before the least": (0.2, True, 0.3),
    "more before the least": (0.2, False, 0.3),
    "nothing more after it": (0.5, True, 0),
    "more after it": (0.75, False, 0.25),
    "more at the most": (1, False, 0),
}


@pytest.mark.parametrize(("elapsed", "is_all_here", "left"), LATER.values(), ids=LATER)
def test_a_wait_ends(elapsed: float, left: float, *, is_all_here: bool) -> None:
    assert Wait(0.5, 1).left(elapsed, is_all_here=is_all_here) == pytest.approx(left)


def test_the_time_of_a_commit_counts() -> None:
    assert _wait(1, 0) == Wait(1, 1)
    assert _wait(1, 0.75) == Wait(0.25, 1)
    assert _wait(1, 30) == Wait(0.1, 1)
    assert _wait(0, 30) == Wait(0, 0)
