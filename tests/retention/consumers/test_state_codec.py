from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention.consumers.state import (
    OPEN,
    PENDING,
    REDELIVERED,
    UNSEEN,
    ConsumerState,
    DeliveryPosition,
    from_json,
    new_state,
    with_lasts,
)
from retention.consumers.state_codec import decode_state, encode_state
from retention.errors import DamagedError

CASES = Path(__file__).parents[2] / "conformance" / "jetstream-interest.jsonl"
FULL = replace(
    with_lasts(new_state(1), [9, 7], 12),
    delivered=DeliveryPosition(6, 5),
    ack_floor=DeliveryPosition(2, 2),
    pending=pa.table([[3, 5], [3, 5], [10, -(2**62)]], schema=PENDING),
    redelivered=pa.table([[1, 3], [4, 1]], schema=REDELIVERED),
    unseen=pa.table([[4, 9], [4, 9], [3, 0], [OPEN, 1]], schema=UNSEEN),
    last_active_ns=99,
)


def test_every_state_of_the_conformance_cases_comes_back() -> None:
    for line in CASES.read_text().splitlines():
        for consumer in json.loads(line)["consumers"]:
            state = from_json(consumer["state"])
            assert decode_state(encode_state(state)) == state


def test_everything_is_kept_and_nothing_counts_but_the_values() -> None:
    chunks = pa.concat_tables([FULL.pending.slice(0, 1), FULL.pending.slice(1)])
    assert decode_state(encode_state(FULL)) == FULL
    assert decode_state(encode_state(new_state(7))) == new_state(7)
    assert encode_state(replace(FULL, pending=chunks)) == encode_state(FULL)


def test_what_follows_each_other_takes_next_to_nothing() -> None:
    seqs = np.arange(1, 100_001)
    waiting = pa.table([seqs, seqs, np.full(len(seqs), 10**18)], schema=PENDING)
    state = ConsumerState(DeliveryPosition(100_000, 100_000), DeliveryPosition(), waiting)
    assert len(encode_state(state)) < 10_000
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("damaged", [b"", b"{}", encode_state(FULL)[:100]])
def test_bytes_that_are_no_state_are_refused(damaged: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_state(damaged)
