"""Concurrent publishers with rollups, and a maintainer: the result equals that of serial publishes."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from tests.support.laying import SECOND, START, held, warehouse_with

PUBLISHERS, BATCHES, LINES = 3, 4, 3
BUSY = 75


def published(config: Path, writer: int) -> list[tuple[int, str, str, str]]:
    """Sequence, subject, rollup and payload of all messages acknowledged to a publisher."""
    chance = random.Random(writer)
    stream = open_warehouse(config, engine="local", clock=lambda: START).new_stream("ORDERS")
    answered = []
    for batch in range(1, BATCHES + 1):
        messages = [
            (f"k.{chance.randrange(4)}", chance.choice(["", "sub"]), f"{writer}-{batch}-{number}")
            for number in range(LINES)
        ]
        lines = [
            json.dumps({"subject": subject, "headers": {"Nats-Rollup": kind}, "data": data})
            for subject, kind, data in messages
        ]
        acks = stream.publish([line.encode() for line in lines], f"w{writer}", batch).acks()
        answered += [(ack.seq, *message) for ack, message in zip(acks, messages, strict=True)]
    return answered


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_nothing_comes_twice_and_no_newer_value_goes(tmp_path: Path, format_: str) -> None:
    warehouse = warehouse_with(
        tmp_path, format_, START + SECOND, max_age="1h", allow_rollup_hdrs=True
    )
    with ThreadPoolExecutor(PUBLISHERS) as pool:
        publishers = [
            pool.submit(published, tmp_path / "retention.yaml", writer)
            for writer in range(PUBLISHERS)
        ]
        while wait(publishers, timeout=0.2).not_done:
            assert {outcome.exit_code for outcome in warehouse.apply()} <= {0, BUSY}
    answered = sorted(answer for publisher in publishers for answer in publisher.result())
    assert [seq for seq, *_ in answered] == list(range(1, PUBLISHERS * BATCHES * LINES + 1))
    kept: list[tuple[int, str, str]] = []
    for seq, subject, kind, data in answered:
        kept = [one for one in kept if not (kind and one[1] == subject)]
        kept.append((seq, subject, data))
    rows = held(warehouse).select(["seq", "subject", "payload"]).to_pylist()
    assert [(row["seq"], row["subject"], row["payload"].decode()) for row in rows] == kept
    removals = [record for record in warehouse.history() if record["kind"] == "rollup"]
    assert {record["status"] for record in removals} <= {"done", "abandoned"}
