from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Unmatched
from retention.core.spans import spans_of
from retention.rules.jetstream.interest import Interest, Release, refined, release, released_rows
from tests.support.interests import goes, interests_of
from tests.support.laws import law
from tests.support.worlds import Message, World, digests, worlds


def decided(world: World, interests: list[Interest], unmatched: Unmatched) -> Release:
    spans = spans_of(world.inventory.files)
    first = release(spans, interests, unmatched)
    counts = digests(world, world.inventory.files)
    asked = first.ask[spans.span_of_file[counts["file"].to_numpy()]]
    return refined(first, spans, interests, unmatched, counts.filter(pa.array(asked)))


@law
@given(st.data(), worlds, st.sampled_from(["keep", "remove"]))
def test_rows_go_as_the_server_says(data: Any, world: World, unmatched: Unmatched) -> None:
    interests = data.draw(interests_of(world))
    rows = pa.table(
        {
            "seq": pa.array([message.seq for message in world.messages], pa.int64()),
            "subject": pa.array([message.subject for message in world.messages], pa.string()),
        }
    )
    expected = [goes(interests, m.seq, m.subject, unmatched) for m in world.messages]
    assert released_rows(rows, interests, unmatched).tolist() == expected


@law
@given(st.data(), worlds, st.sampled_from(["keep", "remove"]))
def test_what_metadata_decides_of_a_span_its_rows_would_say(
    data: Any, world: World, unmatched: Unmatched
) -> None:
    interests = data.draw(interests_of(world))
    spans = spans_of(world.inventory.files)
    told = decided(world, interests, unmatched)
    assert not (told.whole & told.ask).any()
    for span in range(len(spans)):
        low, high = spans.min_seq[span], spans.max_seq[span]
        inside = [m for m in world.messages if low <= m.seq <= high]
        fates = {goes(interests, m.seq, m.subject, unmatched) for m in inside}
        if not told.ask[span]:
            assert fates == {bool(told.whole[span])}


@law
@given(st.data(), worlds, st.sampled_from(["keep", "remove"]))
def test_part_of_an_interest_tells_the_same_of_its_span(
    data: Any, world: World, unmatched: Unmatched
) -> None:
    for one in data.draw(interests_of(world)):
        for message in world.messages:
            seq = np.array([message.seq])
            part = one.within(message.seq, message.seq)
            assert part.needs(seq).tolist() == one.needs(seq).tolist()
            assert len(part.pending) <= 1


def one_span(low: int, high: int) -> Any:
    return spans_of(World(((low, _messages(low, high)),), low).inventory.files)


def _messages(low: int, high: int) -> Any:
    return tuple(Message(seq, "a", 0, 1, never=False) for seq in range(low, high + 1))


def whole(**interest: Any) -> tuple[bool, bool]:
    """Whether sequences alone release messages 5 to 8, and whether rows are needed."""
    told = release(one_span(5, 8), [Interest("c", **interest)], "keep")
    return bool(told.whole[0]), bool(told.ask[0])


def test_sequences_alone_decide_where_a_consumer_wants_everything() -> None:
    assert whole(ack_floor=8, delivered=8) == (True, False)
    assert whole(ack_floor=7, delivered=8) == (True, False)  # delivered, but not pending
    assert whole(ack_floor=7, delivered=8, explicit=False) == (False, True)
    assert whole(ack_floor=7, delivered=8, pending=np.array([8])) == (False, True)
    assert whole(ack_floor=8, delivered=8, redelivered=np.array([6])) == (False, True)
    assert whole(ack_floor=8, delivered=8, redelivered=np.array([4, 9])) == (True, False)
    assert whole(ack_floor=4, delivered=4) == (False, False)
    assert whole(ack_floor=1, delivered=4, pending=np.array([2])) == (False, False)


def test_a_stream_without_consumers_keeps_everything() -> None:
    for unmatched in ("keep", "remove"):
        told = release(one_span(5, 8), [], unmatched)
        assert not told.whole.any()
        assert not told.ask.any()


def test_digests_decide_where_each_subject_fares_alike() -> None:
    spans = one_span(5, 8)
    counts = pa.table({"file": [0], "subject": ["a"]})
    settled = Interest("c", 8, 8, ("a",))
    behind = Interest("d", 0, 0, ("b",))
    first = release(spans, [settled, behind], "keep")
    assert first.ask.tolist() == [True]
    assert refined(first, spans, [settled, behind], "keep", counts).whole.tolist() == [True]
    only_b = [behind]
    for unmatched, whole_ in (("keep", False), ("remove", True)):
        first = release(spans, only_b, unmatched)  # type: ignore[arg-type]
        told = refined(first, spans, only_b, unmatched, counts)  # type: ignore[arg-type]
        assert (told.whole.tolist(), told.ask.tolist()) == ([whole_], [False])
