"""Tasks that write messages piece by piece give the same result as serial appends."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retention.core.topic_policy import Profile, TopicPolicy
from retention.layout.batch_split import BatchPart, BatchSplitter, clipped_batches
from retention.layout.partition_tails import PartitionTails
from retention.layout.partitioner import ROUND_ROBIN
from retention.layout.segment_roll import ActiveSegment, Tail
from retention.layout.topic_segment_roll import AppendedBatch, accounted_sizes

TAILS = {0: Tail(5, ActiveSegment(3, 400, 1_000), 7), 1: Tail(0, ActiveSegment(0))}
PROFILES: tuple[Profile, ...] = ("modern", "v8")
Row = tuple[int, int, int, int, int]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[TopicPolicy, np.ndarray, np.ndarray, np.ndarray]:
    """A policy, and the address, the writing task and the bytes of each message."""
    profile: Profile = draw(st.sampled_from(PROFILES))
    policy = TopicPolicy(2, draw(st.integers(1, 3_000)), draw(st.integers(1, 1_500)), profile)
    count = draw(st.integers(0, 30))
    sizes, steps = (
        np.array(draw(st.lists(one, min_size=count, max_size=count)), dtype=np.int64)
        for one in (st.integers(1, 400), st.sampled_from([0, 0, 0, 1]))
    )
    known = st.sampled_from([ROUND_ROBIN, 0, 1])
    address = np.sort(draw(st.lists(known, min_size=count, max_size=count)))
    return policy, address.astype(np.int64), np.cumsum(steps), sizes


def one_by_one(policy: TopicPolicy, address: np.ndarray, sizes: np.ndarray) -> list[Row]:
    """Partition, segment, offset, time and bytes of each message."""
    ends, found = PartitionTails(TAILS.__getitem__, 3, policy, 9), []
    for one in np.unique(address).tolist():
        rows = sizes[address == one]
        partition, batches = ends.append(one, rows)
        counted = accounted_sizes(rows, batches, policy).tolist()
        found += [
            (partition, batch.base, batch.first_seq + at - batch.start, batch.ts_us, counted[at])
            for batch in batches
            for at in range(batch.start, batch.end)
        ]
    return found


def blocks(parts: np.ndarray, cuts: list[int]) -> list[tuple[int, int]]:
    """The bounds of blocks: at cuts, and at changes of the task."""
    changes = np.flatnonzero(np.diff(parts)) + 1
    bounds = sorted({0, *cuts, *changes.tolist(), len(parts)})
    return [(begin, end) for begin, end in pairwise(bounds) if end > begin]


def taken_whole(laying: BatchSplitter, address: np.ndarray, part: int, sizes: np.ndarray) -> bool:
    is_even = address[0] == address[-1]
    return is_even and laying.take_whole(int(address[0]), part, len(sizes), int(sizes.sum()))


@given(worlds(), st.data())
def test_messages_in_parts_lie_where_they_would_at_once(
    world: tuple[TopicPolicy, np.ndarray, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    policy, address, parts, sizes = world
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sizes)), max_size=4)))
    laying = BatchSplitter(PartitionTails(TAILS.__getitem__, 3, policy, 9), policy)
    pieces: list[BatchPart] = []
    for begin, end in blocks(parts, cuts):
        of_block = address[begin:end], int(parts[begin]), sizes[begin:end]
        if not (data.draw(st.booleans()) and taken_whole(laying, *of_block)):
            pieces += laying.take(*of_block)
    pieces += laying.rest()

    wanted = one_by_one(policy, address, sizes)
    found, at = [], 0
    for piece in pieces:
        batch = piece.batch
        inside = sizes[at : at + batch.end]
        counted = accounted_sizes(inside, [batch] if piece.opens else [], policy)
        assert counted.sum() == batch.bytes
        assert (parts[at : at + batch.end] == piece.part).all()
        found += [
            (piece.partition, batch.base, batch.first_seq + number, batch.ts_us, int(size))
            for number, size in enumerate(counted)
        ]
        at += batch.end
    assert found == wanted


@given(worlds(), st.data())
def test_a_task_that_reads_its_rows_in_parts_numbers_them_alike(
    world: tuple[TopicPolicy, np.ndarray, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    policy, address, _, sizes = world
    laying = BatchSplitter(PartitionTails(TAILS.__getitem__, 0, policy, 9), policy)
    pieces = [*laying.take(address, 0, sizes), *laying.rest()] if len(sizes) else []
    cut = data.draw(st.integers(0, len(sizes)))
    whole = clipped_batches(pieces, 0, len(sizes))
    parts = [(0, one) for one in clipped_batches(pieces, 0, cut)]
    parts += [(cut, one) for one in clipped_batches(pieces, cut, len(sizes))]

    def numbers(found: list[tuple[int, tuple[AppendedBatch, bool]]]) -> list[tuple[int, int, int]]:
        return [
            (at + number, batch.first_seq + number - batch.start, batch.ts_us)
            for at, (batch, _) in found
            for number in range(batch.start, batch.end)
        ]

    assert numbers(parts) == numbers([(0, one) for one in whole])
    opened = [at + one.start for at, (one, opens) in parts if opens]
    assert opened == [one.start for one, opens in whole if opens]


def test_what_goes_to_a_task_and_back_can_be_pickled() -> None:
    ends = PartitionTails(TAILS.__getitem__, 0, TopicPolicy(2, 1, 1), 9)
    ends.append(ROUND_ROBIN, np.array([5]))
    again = pickle.loads(pickle.dumps(ends))  # noqa: S301  (our own)
    assert (again.turn, again.next_seq, again.open_base) == (1, {0: 6}, {0: 6})


def test_a_block_joins_a_batch_only_if_all_of_it_fits() -> None:
    policy = TopicPolicy(1, 1_000_000, 100, "v8")
    laying = BatchSplitter(PartitionTails({0: Tail(0)}.__getitem__, 0, policy, 9), policy)
    assert not laying.take_whole(0, 0, 2, 40), "of no message it is known where it goes"
    assert not list(laying.take(np.array([0]), 0, np.array([60])))
    assert not laying.take_whole(0, 1, 2, 41)
    assert not laying.take_whole(1, 1, 2, 40)
    assert laying.take_whole(0, 1, 2, 40)
    assert [(piece.part, piece.batch.end, piece.batch.bytes) for piece in laying.rest()] == [
        (0, 1, 60),
        (1, 2, 40),
    ]
