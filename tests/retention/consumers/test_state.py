from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.consumers.state import (
    OPEN,
    PENDING,
    REDELIVERED,
    UNSEEN,
    ConsumerState,
    DeliveryPosition,
    contradictions,
    from_json,
    new_state,
)
from retention.errors import DamagedError

CASES = Path(__file__).parents[2] / "conformance" / "jetstream-interest.jsonl"


def table(schema: pa.Schema, rows: tuple[tuple[int, ...], ...]) -> pa.Table:
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    return pa.table(columns, schema=schema)


def pending(*rows: tuple[int, int, int]) -> pa.Table:
    return table(PENDING, rows)


def redelivered(*rows: tuple[int, int]) -> pa.Table:
    return table(REDELIVERED, rows)


def unseen(*rows: tuple[int, int, int, int]) -> pa.Table:
    return table(UNSEEN, rows)


SOUND = ConsumerState(
    delivered=DeliveryPosition(6, 5),
    ack_floor=DeliveryPosition(2, 2),
    pending=pending((3, 3, 10), (5, 5, 12)),
    redelivered=redelivered((1, 4), (3, 1)),
    unseen=unseen((4, 4, 3, OPEN)),
    last_active_ns=99,
)


def stored_states() -> list[dict[str, Any]]:
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [consumer["state"] for case in cases for consumer in case["consumers"]]


def test_the_stored_form_of_every_conformance_case_is_read_and_written_back() -> None:
    states = stored_states()
    assert len(states) == 560
    for stored in states:
        state = from_json(stored)
        assert state.as_json() == {name: value for name, value in stored.items() if value}
        assert contradictions(state) == []


def test_a_state_is_written_as_the_server_stores_it() -> None:
    assert SOUND.as_json() == {
        "delivered": {"consumer_seq": 6, "stream_seq": 5},
        "ack_floor": {"consumer_seq": 2, "stream_seq": 2},
        "pending": {"3": {"Sequence": 3, "Timestamp": 10}, "5": {"Sequence": 5, "Timestamp": 12}},
        "redelivered": {"1": 4, "3": 1},
    }


def test_sequences_are_ordered_as_numbers_whatever_their_order_as_text() -> None:
    stored = {**new_state(1).as_json(), "redelivered": {"10": 1, "9": 2}}
    assert from_json(stored).redelivered == redelivered((9, 2), (10, 1))


def test_a_new_consumer_needs_nothing_before_its_start() -> None:
    state = new_state(8)
    assert state.ack_floor == state.delivered == DeliveryPosition(0, 7)
    assert (state.num_ack_pending, state.num_redelivered()) == (0, 0)


def test_counts_are_those_of_info() -> None:
    assert SOUND.num_ack_pending == 2
    assert SOUND.num_redelivered() == 2
    assert SOUND.num_redelivered(max_deliver=1) == 0


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"delivered": None, "ack_floor": None},
        {"delivered": {"consumer_seq": 1}, "ack_floor": {"consumer_seq": 0, "stream_seq": 0}},
        {**SOUND.as_json(), "pending": {"x": {"Sequence": 1, "Timestamp": 2}}},
        {**SOUND.as_json(), "pending": {"3": {"Sequence": 1}}},
        {**SOUND.as_json(), "pending": {"3": 7}},
        {**SOUND.as_json(), "pending": [3]},
        {**SOUND.as_json(), "redelivered": {"3": None}},
        {**SOUND.as_json(), "redelivered": {str(2**63): 1}},
        {**SOUND.as_json(), "delivered": {"consumer_seq": 2**63, "stream_seq": 1}},
        {**SOUND.as_json(), "delivered": {"consumer_seq": "1", "stream_seq": 1}},
    ],
)
def test_a_damaged_state_is_refused(damaged: dict[str, Any]) -> None:
    with pytest.raises(DamagedError, match="the consumer's state cannot be read"):
        from_json(damaged)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            ConsumerState(DeliveryPosition(3, 3), DeliveryPosition(3, 4)),
            "the ack floor (stream sequence 4, consumer sequence 3) is above the last delivery"
            " (stream sequence 3, consumer sequence 3)",
        ),
        (
            ConsumerState(
                DeliveryPosition(9, 9), DeliveryPosition(3, 3), pending((2, 4, 0), (3, 5, 0))
            ),
            "2 pending sequences are at or below the ack floor (3), such as 2",
        ),
        (
            ConsumerState(DeliveryPosition(9, 9), DeliveryPosition(3, 3), pending((10, 4, 0))),
            "1 pending sequences are above the last delivery (9), such as 10",
        ),
        (
            ConsumerState(DeliveryPosition(9, 9), DeliveryPosition(3, 3), pending((4, 10, 0))),
            "1 pending consumer sequences are above the last delivery's (9), such as 10",
        ),
        (
            ConsumerState(
                DeliveryPosition(9, 9), DeliveryPosition(3, 3), redelivered=redelivered((10, 1))
            ),
            "1 redelivered sequences are above the last delivery (9), such as 10",
        ),
        (
            ConsumerState(
                DeliveryPosition(9, 9), DeliveryPosition(3, 3), redelivered=redelivered((4, -1))
            ),
            "1 counts of redeliveries are below the possible minimum (0), such as -1",
        ),
        (
            ConsumerState(DeliveryPosition(9, 9), DeliveryPosition(-1, 3)),
            "the ack floor (stream sequence 3, consumer sequence -1) is negative",
        ),
        (
            ConsumerState(
                DeliveryPosition(9, 9), DeliveryPosition(3, 3), pending((5, 5, 0), (4, 4, 0))
            ),
            "the sequences of pending do not ascend",
        ),
        (
            ConsumerState(DeliveryPosition(9, 21), DeliveryPosition(3, 3)),
            "the last delivery (stream sequence 21, consumer sequence 9) is above the last sequence of"
            " the stream, 20",
        ),
    ],
)
def test_a_contradiction_is_one_sentence(state: ConsumerState, sentence: str) -> None:
    assert contradictions(state, last_seq=20) == [sentence]
    assert contradictions(SOUND, last_seq=5) == []
