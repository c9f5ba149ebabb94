"""Answers to polls of a recorded server: cut batches, sizes, checksums, and answers that are damaged."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.errors import DamagedError
from retention.formats.iggy.polled import Polled, polled
from tests.support.recorded_topic import cut, stages

STAGES = stages()


def log(partition: int, stage: str = "more") -> bytes:
    return base64.b64decode(STAGES[stage]["logs"][str(partition)])


def read(answer: bytes, partition: int = 0, first: int = 0) -> Polled:
    return polled(answer, partition, first, "a server")


@pytest.mark.parametrize("asked", STAGES["more"]["cuts"])
def test_the_recorded_topic_cuts_batches_as_the_server_did(asked: str) -> None:
    first, count = map(int, asked.split())
    assert cut(log(0), 0, first, count) == base64.b64decode(STAGES["more"]["cuts"][asked])


def test_messages_of_cut_batches_are_those_of_the_whole() -> None:
    whole = read(log(0))
    parts = [read(cut(log(0), 0, first, 2), first=first) for first in range(0, 10, 2)]
    assert pa.Table.from_batches([part.rows for part in parts]).equals(
        pa.Table.from_batches([whole.rows]).slice(0, 10)
    )
    assert np.concatenate([part.checksums for part in parts]).tolist() == (
        whole.checksums[:10].tolist()
    )


def test_sizes_add_up_to_the_logs_bytes() -> None:
    answer = log(0)
    assert pc.sum(read(answer).rows["size"]).as_py() == len(answer) - 16


def test_user_headers_stay_as_stored() -> None:
    blocks = read(log(0)).rows["headers"].to_pylist()
    assert blocks[0].startswith(b"\x01\x02\x00\x00\x00\xff\x00\x01\x01\x00\x00\x00\x00")
    assert blocks[1] is None


def test_a_partition_without_messages_has_no_rows() -> None:
    empty = read(log(0, "empty"))
    assert (empty.rows.num_rows, empty.last_offset) == (0, 0)


@pytest.mark.parametrize("at", range(16, len(log(0)), 41))
def test_a_changed_byte_is_damage(at: int) -> None:
    answer = bytearray(log(0))
    before = read(bytes(answer)).rows
    answer[at] ^= 0x55
    try:
        after = read(bytes(answer)).rows
    except DamagedError:
        return
    # Reserved bytes of a batch's header are zeros that no checksum covers.
    assert after.equals(before)


@pytest.mark.parametrize("answer", [b"", log(0)[:15], log(0)[:-1], log(0) + b"\0", log(1)])
def test_an_answer_to_something_else_is_damage(answer: bytes) -> None:
    with pytest.raises(DamagedError, match="partition 0: the server's answer"):
        read(answer)


def test_messages_below_the_first_offset_that_was_asked_for_are_damage() -> None:
    with pytest.raises(DamagedError, match="offsets must rise"):
        read(log(0), first=1)
