from __future__ import annotations

import pyarrow as pa
import pytest

from retention.core import headers, kv
from retention.core.bucket_names import bucket_of

OPERATIONS: list[tuple[list[tuple[str, str]], str]] = [
    ([], "put"),
    ([("A", "b")], "put"),
    ([("KV-Operation", "DEL")], "delete"),
    ([("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")], "purge"),
    ([("KV-Operation", "PUT")], "put"),
    ([("KV-Operation", "del")], "put"),
    ([("kv-operation", "DEL")], "put"),
    ([("KV-Operation", "DEL"), ("KV-Operation", "PURGE")], "delete"),
    ([("Nats-Marker-Reason", "MaxAge"), ("Nats-TTL", "1h0m0s")], "purge"),
    ([("Nats-Marker-Reason", "Purge")], "purge"),
    ([("Nats-Marker-Reason", "Remove")], "delete"),
    ([("Nats-Marker-Reason", "Whatever")], "put"),
    ([("Nats-Marker-Reason", "MaxAge"), ("KV-Operation", "DEL")], "delete"),
    ([("Nats-Marker-Reason", "MaxAge"), ("KV-Operation", "PUT")], "put"),
    ([("Nats-Marker-Reason", "MaxAge"), ("KV-Operation", "")], "purge"),
]


def column(*pairs: list[tuple[str, str]]) -> pa.Array:
    return pa.array([headers.build(one) or None for one in pairs], pa.binary())


@pytest.mark.parametrize(("pairs", "operation"), OPERATIONS)
def test_a_message_does_what_clients_read_it_as(
    pairs: list[tuple[str, str]], operation: str
) -> None:
    assert kv.operations(column(pairs)).to_pylist() == [operation]


def test_a_column_is_read_at_once() -> None:
    blocks, wanted = zip(*OPERATIONS, strict=True)
    read = kv.operations(pa.chunked_array([column(*blocks[:4]), column(*blocks[4:])]))
    assert read.to_pylist() == list(wanted)
    assert kv.operations(column()).to_pylist() == []


def test_a_bucket_is_told_by_its_streams_name() -> None:
    assert bucket_of("KV_devices") == "devices"
    assert bucket_of("ORDERS") is None
    assert bucket_of("kv_devices") is None
