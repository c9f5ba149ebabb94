"""A ledger on an object store, of a warehouse that is put back from a backup, and one that cannot be reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.errors import StorageError
from retention.storage import files
from tests.erasure.test_erase import EVE
from tests.erasure.test_ledger import BOB, World


def test_a_ledger_on_an_object_store_is_followed(tmp_path: Path, bucket: str) -> None:
    world = World(tmp_path, max_msgs=1)
    world.open(ledger=bucket)
    world.publish(EVE, BOB, BOB)
    world.back_up()
    assert world.stream.erase(EVE, reason="request 7").apply().is_done
    ranges = [(2 * n, 2 * n) for n in range(1, 3_000)]
    hold = world.warehouse.hold("ORDERS", ranges=ranges, reason="case 12")
    assert len(files.walk(bucket)) == 5
    world.restore()
    world.open(ledger=bucket)
    world.apply()
    assert world.seqs() == [2, 3]
    assert world.left() == []
    assert world.holds() == [hold.id]
    assert world.stream.verify().damages == ()


def test_nothing_is_removed_while_the_object_store_refuses(tmp_path: Path, bucket: str) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(EVE, BOB)
    world.open(ledger=f"{bucket.replace('s3://', 's3://no-such-')}/ledger")
    with pytest.raises(StorageError):
        world.apply()
    assert world.seqs() == [1, 2]
    assert world.stream.plan().plan.removed_messages == 1
    world.stream.state()


def test_a_warehouse_on_an_object_store_erases(tmp_path: Path, bucket: str) -> None:
    config = {
        "warehouse": bucket,
        "ledger": str(tmp_path / "ledger"),
        "streams": [{"name": "ORDERS", "subjects": ["orders.>"]}],
    }
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local")
    stream = warehouse.new_stream("ORDERS")
    lines = [{"subject": subject, "data": f"payload of {subject}"} for subject in (EVE, BOB)]
    stream.publish(json.dumps(line).encode() for line in lines)
    kept = {name: files.read_bytes(f"{bucket}/{name}") or b"" for name in files.walk(bucket)}
    assert stream.erase(EVE, reason="request 7").apply().is_done
    files.delete(f"{bucket}/{name}" for name in files.walk(bucket))
    for name, content in kept.items():
        files.replace(f"{bucket}/{name}", content)
    again = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    [report] = again.resume_erasures()
    assert (report.is_done, report.record.replayed) == (True, True)
    assert [row["seq"] for table in again.messages() for row in table.to_pylist()] == [2]
