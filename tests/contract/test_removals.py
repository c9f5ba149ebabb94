"""Deletes and purges on real tables with concurrent writers: exactly the requested messages, no duplicate sequence."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.api.stream import Stream
from retention.apply.requested import remove_now
from retention.engines.select import Engines
from retention.rules.requests import Delete, Purge, Request
from retention.storage.crash_points import Step, watched_by
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

COMMITTING = {"delta": Step.DELTA_COMMITTING, "parquet": Step.ENTRY_SYNCED}
LINE = b'{"subject": "s.1", "data": "late"}'


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """Sequences 1 to 20 in two segments."""
    streams = warehouse_with(tmp_path, request.param, START + 100 * SECOND)
    lay(streams.stream("ORDERS").opened, even_segments(2, 10))
    return streams.stream("ORDERS")


def removed_while_appending(orders: Stream, request: Request) -> int:
    """Remove, with a message stored by another writer right before the commit; returns its sequence."""
    opened = orders.opened
    stored: list[int] = []

    def append(step: Step) -> None:
        if step == COMMITTING[opened.config.format] and not stored:
            stored.append(0)
            stored[0] = orders.publish([LINE]).appended.first_seq

    with watched_by(append), Engines("local") as engines:
        remove_now(opened, request, engines)
    return stored[0]


def seqs(orders: Stream) -> list[int]:
    return [seq for table in orders.messages() for seq in table["seq"].to_pylist()]


def test_a_message_that_comes_during_a_purge_stays(orders: Stream) -> None:
    assert removed_while_appending(orders, Purge()) == 21
    assert seqs(orders) == [21]


def test_a_message_that_comes_during_a_delete_stays(orders: Stream) -> None:
    assert removed_while_appending(orders, Delete((1, 20))) == 21
    assert seqs(orders) == [*range(2, 20), 21]


def test_a_purge_beyond_the_end_is_asked_again_when_a_message_comes_first(orders: Stream) -> None:
    assert removed_while_appending(orders, Purge(seq=50)) == 21
    assert seqs(orders) == []
    assert orders.publish([LINE]).appended.first_seq == 50


def test_no_sequence_comes_back_after_everything_is_gone(orders: Stream) -> None:
    for _ in range(3):
        orders.purge().apply()
        orders.publish([LINE])
    assert seqs(orders) == [23]
