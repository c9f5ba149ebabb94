"""The rules of topics compared with Iggy's own tests and source, and with segments dropped by real servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retention.core.topic_policy import TopicPolicy
from retention.layout.segment_roll import ActiveSegment, Tail
from retention.layout.topic_segment_roll import header_bytes_of_batch, lay_out
from retention.rules.iggy.evaluate import barrier_of, reached_by, topic_pass
from retention.rules.iggy.segments import STAYS, TopicSegments
from retention.rules.iggy.v09 import budget_of
from tests.support.cases import lines_of

HERE = Path(__file__).parent
DERIVED = lines_of(HERE / "iggy-segments.jsonl")
JUDGED = lines_of(HERE / "iggy-server.jsonl")


def policy(case: Mapping[str, Any], **said: Any) -> TopicPolicy:
    given = {"partitions": 1, "segment_size": 1, "max_message_size": 0}
    return TopicPolicy(**given | {"profile": case.get("profile", "modern")} | said)


def segments(parts: Mapping[int, Sequence[Sequence[int]]]) -> TopicSegments:
    """The segments of each partition, with values in the order of the fields of `TopicSegments`."""
    rows = [(partition, *row) for partition, part in sorted(parts.items()) for row in part]
    columns = np.array(rows, dtype=np.int64).T.reshape(8, -1)
    partition, start, end, first, last, highest, size, sealed = columns
    return TopicSegments(partition, start, end, first, last, highest, size, sealed.astype(bool))


def of(op: str) -> pytest.MarkDecorator:
    # A cap of 0 is refused before any rule runs.
    cases = [case for case in DERIVED if case["op"] == op and case.get("cap") != 0]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=lambda case: str(case["id"]))


def starts_that_go(stored: TopicSegments, fates: np.ndarray) -> list[list[int]]:
    gone = fates != STAYS
    return np.stack([stored.partition[gone], stored.start[gone]], axis=1).tolist()


@of("clean")
def test_a_partition_is_cleaned(case: dict[str, Any]) -> None:
    rows = [
        (start, end, at_us, at_us, at_us, size, sealed)
        for start, end, at_us, size, sealed in case["segs"]
    ]
    expiry = case["expiry"] if isinstance(case["expiry"], int) else None
    # The budget is set directly: one message of that size, and no segment.
    budget = case["max"]
    limits = policy(case, message_expiry_us=expiry, max_topic_size=budget, segment_size=0)
    barriers = {} if case["barrier"] is None else {0: case["barrier"]}
    stored = segments({0: rows})
    found = topic_pass(stored, limits, case["now"], barriers)
    assert starts_that_go(stored, found.fates) == [[0, start] for start in case["drop"]]


@of("size_v8")
def test_a_topic_of_0_8_is_trimmed(case: dict[str, Any]) -> None:
    parts = {
        int(partition): [
            (start, end, at, at, at, size, sealed) for start, end, at, size, sealed in rows
        ]
        for partition, rows in case["parts"].items()
    }
    stored = segments(parts)
    limits = policy({"profile": "v8"}, max_topic_size=case["cap"])
    barriers = {int(partition): offset for partition, offset in case["barriers"].items()}
    found = topic_pass(stored, limits, 10**15, barriers)
    assert starts_that_go(stored, found.fates) == sorted(case["drop"])


@of("barrier")
def test_the_slowest_consumer_is_the_barrier(case: dict[str, Any]) -> None:
    stored = [*case["consumers"].values(), *case["groups"].values()]
    assert barrier_of(stored) == case["expect"]


@of("budget")
def test_a_partition_has_its_share_but_never_too_little(case: dict[str, Any]) -> None:
    cap = case["default"] if case["cap"] == "default" else case["cap"]
    if not isinstance(cap, int) or not cap:
        cap = None
    limits = policy(
        case,
        partitions=case["partitions"],
        max_topic_size=cap,
        segment_size=case["ceiling"],
    )
    assert budget_of(limits) == case["expect"]


@of("nth_sealed")
def test_so_many_sealed_segments_reach_so_far(case: dict[str, Any]) -> None:
    rows = [(start, end, at, at, at, size, sealed) for start, end, at, size, sealed in case["segs"]]
    stored = segments({0: rows})
    assert reached_by(stored, slice(0, len(stored)), case["n"]) == case["expect"]


@of("roll")
def test_a_segment_is_sealed_when_it_is_full(case: dict[str, Any]) -> None:
    limits = policy(case, segment_size=case["segment_size"])
    # One message per batch, because none has room for two.
    sizes = np.full(
        case["batches"], case["batch_bytes"] - header_bytes_of_batch(limits), dtype=np.int64
    )
    batches, after = lay_out(Tail(0, ActiveSegment(0)), sizes, limits, 1)
    assert after.active is not None
    assert sorted({batch.base for batch in batches} | {after.active.base}) == case["starts"]


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: str(case["id"]))
def test_a_pass_drops_what_the_server_dropped(case: dict[str, Any]) -> None:
    parts = {
        int(partition): [
            (row[0], row[0] - 1 if row[1] is None else row[1], *row[2:]) for row in rows
        ]
        for partition, rows in case["partitions"].items()
    }
    stored = segments(parts)
    limits = policy(
        case,
        partitions=len(parts),
        segment_size=case["segment_size"],
        max_message_size=case["max_message_size"],
        message_expiry_us=None
        if case["message_expiry_us"] == "never"
        else case["message_expiry_us"],
        max_topic_size=None if case["max_topic_size"] == "unlimited" else case["max_topic_size"],
    )
    offsets = {
        int(partition): stored.values() for partition, stored in case["stored_offsets"].items()
    }
    barriers = {
        partition: barrier
        for partition, stored in offsets.items()
        if (barrier := barrier_of(stored)) is not None
    }
    found = topic_pass(stored, limits, case["now_us"], barriers)
    dropped = [
        [int(part), start] for part, starts in sorted(case["drop"].items()) for start in starts
    ]
    assert starts_that_go(stored, found.fates) == dropped
