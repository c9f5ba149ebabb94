"""Guards: a function of counts that is exact at the limit, and never divides."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.removal_guards import GuardLimit, RemovalGuards
from retention.rules.removal_guards import Loss, guard_findings

BIG = 2**62
LOSSES = st.builds(
    lambda messages, kept, size: Loss(messages, size if messages else 0, messages + kept),
    st.integers(0, BIG),
    st.integers(0, BIG),
    st.integers(0, BIG),
)
LIMITS = st.none() | st.builds(GuardLimit, st.integers(0, BIG), st.sampled_from(["refuse", "warn"]))
SHARES = st.none() | st.builds(GuardLimit, st.integers(0, 100), st.sampled_from(["refuse", "warn"]))


def share(percent: int) -> RemovalGuards:
    return RemovalGuards(max_removed_share=GuardLimit(percent))


def names(guards: RemovalGuards, loss: Loss) -> list[str]:
    return [finding.guard for finding in guard_findings(guards, loss)]


@given(st.builds(RemovalGuards, SHARES, LIMITS, LIMITS), LOSSES)
def test_a_guard_never_lets_through_more_than_its_limit_and_stops_nothing_else(
    guards: RemovalGuards, loss: Loss
) -> None:
    exceeded = set(names(guards, loss))
    part = Fraction(loss.messages, loss.of_messages) if loss.of_messages else Fraction(0)
    share, size, kept = (
        guards.max_removed_share,
        guards.max_removed_bytes,
        guards.min_kept_messages,
    )
    expected = {
        "max_removed_share": share is not None and part * 100 > share.limit,
        "max_removed_bytes": size is not None and loss.bytes > size.limit,
        "min_kept_messages": kept is not None and loss.kept < kept.limit,
    }
    assert exceeded == {name for name in expected if expected[name] and loss.messages}
    for finding in guard_findings(guards, loss):
        assert finding.sentence


@pytest.mark.parametrize(
    ("percent", "removed", "of", "refused"),
    [
        (50, 50, 100, False),
        (50, 51, 100, True),
        (50, 1, 1, True),
        (0, 1, BIG, True),
        (100, BIG, BIG, False),
        # As floats both are one half.
        (50, BIG // 2 + 1, BIG, True),
        (50, BIG // 2, BIG, False),
        (33, 1, 3, True),
        (34, 1, 3, False),
    ],
)
def test_a_share_is_exact(percent: int, removed: int, of: int, *, refused: bool) -> None:
    assert bool(guard_findings(share(percent), Loss(removed, 0, of))) == refused


def test_a_share_just_beyond_its_limit_never_reads_as_if_it_met_it() -> None:
    (finding,) = guard_findings(share(50), Loss(500_001, 0, 1_000_000))
    assert finding.sentence == (
        "removes 500,001 of 1,000,000 messages (50.1%), more than max_removed_share 50%"
    )


def test_an_empty_stream_and_a_pass_that_takes_nothing_are_let_through() -> None:
    guards = RemovalGuards(GuardLimit(0), GuardLimit(0), GuardLimit(1000))
    assert not guard_findings(guards, Loss())
    assert not guard_findings(guards, Loss(0, 0, 3))


def test_a_stream_below_its_minimum_already_loses_nothing_more() -> None:
    guards = RemovalGuards(min_kept_messages=GuardLimit(10))
    assert not guard_findings(guards, Loss(0, 0, 3))
    assert names(guards, Loss(1, 1, 3)) == ["min_kept_messages"]
    assert names(guards, Loss(1, 1, 11)) == []


def test_the_sentences_have_the_numbers_that_were_compared() -> None:
    guards = RemovalGuards(GuardLimit(20), GuardLimit(2048, "warn"), GuardLimit(50))
    findings = guard_findings(guards, Loss(73, 6641, 100))
    assert [finding.sentence for finding in findings] == [
        "removes 73 of 100 messages (73%), more than max_removed_share 20%",
        "removes 6.49 KiB (6,641 bytes), more than max_removed_bytes 2 KiB (2,048 bytes)",
        "keeps 27 of 100 messages, fewer than min_kept_messages 50",
    ]
    assert [finding.refuses for finding in findings] == [True, False, True]
