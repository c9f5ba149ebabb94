"""An archive on an object store: messages removed from a local or an S3 warehouse are archived and can be restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import DamagedError, RefusedError, StorageError
from retention.storage import files
from retention.stores.archive_manifest import read_manifests
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with

NOW = START + 100 * SECOND
AS_OF = START + 85 * SECOND


def manifests(place: str) -> list[Any]:
    [directory] = files.directories(files.join(place, "ORDERS"))
    return list(read_manifests(files.join(place, "ORDERS", directory)))


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_what_goes_from_a_disk_comes_back_from_a_bucket(
    bucket: str, tmp_path: Path, format_: str
) -> None:
    place = f"{bucket}/kept/{format_}"
    warehouse = warehouse_with(tmp_path, format_, NOW, max_age="60s", archive=place)
    lay(warehouse.stream("ORDERS").opened, even_segments(4, 10))
    goes_and_comes_back(warehouse, place)


def test_a_warehouse_on_an_object_store_has_its_archive_beside_it(bucket: str) -> None:
    rules = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_age": "60s"}
    config = {"streams": [rules | {"archive": "kept"}]}
    files.replace(f"{bucket}/lake/retention.yaml", json.dumps(config).encode())
    warehouse = open_warehouse(f"{bucket}/lake", engine="local", clock=lambda: NOW)
    lay(warehouse.stream("ORDERS").opened, even_segments(4, 10))
    goes_and_comes_back(warehouse, f"{bucket}/lake/kept")


def goes_and_comes_back(warehouse: Warehouse, place: str) -> None:
    before = held(warehouse)
    stream = warehouse.stream("ORDERS")
    assert stream.plan(AS_OF).apply().archived is not None
    [manifest] = manifests(place)
    assert len(manifest.content.files) == 3
    assert stream.restore().messages == 25
    assert held(warehouse).equals(before)
    new = warehouse.new_stream("BACK")
    assert stream.restore(into=new).messages == 30


@pytest.mark.thorough
def test_a_copied_prefix_is_told_and_restores_its_own_messages(bucket: str) -> None:
    """Messages 1 to 25 are archived once for both; then each of two warehouses archives different messages as 41."""
    rules = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_age": "60s"}
    config = {"streams": [rules | {"archive": f"{bucket}/kept"}]}
    files.replace(f"{bucket}/prod/retention.yaml", json.dumps(config).encode())
    prod = open_warehouse(f"{bucket}/prod", engine="local", clock=lambda: NOW)
    lay(prod.stream("ORDERS").opened, even_segments(4, 10))
    prod.stream("ORDERS").plan(AS_OF).apply()
    for path in files.walk(f"{bucket}/prod"):
        content = files.read_bytes(f"{bucket}/prod/{path}") or b""
        files.replace(f"{bucket}/staging/{path}", content)
    staging = open_warehouse(f"{bucket}/staging", engine="local", clock=lambda: NOW)
    with pytest.raises(
        RefusedError, match=r"is a copy of s3://.*/prod .* repair place ORDERS --yes"
    ):
        staging.stream("ORDERS").purge().apply()
    assert staging.stream("ORDERS").repair_place().apply().is_done
    for warehouse, data in ((staging, "staging"), (prod, "prod")):
        warehouse.stream("ORDERS").publish([json.dumps({"subject": "a", "data": data})])
        warehouse.stream("ORDERS").purge().apply()
    for warehouse, data in ((staging, "staging"), (prod, "prod")):
        restored = warehouse.stream("ORDERS").restore()
        assert held(warehouse)["seq"].to_pylist() == list(range(1, 42))
        assert held(warehouse)["payload"].to_pylist()[-1].decode() == data
        assert len(restored.left_out) == 1


def test_a_copy_that_changed_is_not_brought_back(bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/kept/changed"
    warehouse = warehouse_with(tmp_path, "delta", NOW, max_age="60s", archive=place)
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(4, 10))
    stream.plan(AS_OF).apply()
    [copy] = [one for one in files.walk(place) if "segment=11" in one]
    content = files.read_bytes(files.join(place, copy)) or b""
    files.replace(files.join(place, copy), content[:-9] + b"?" + content[-8:])
    with pytest.raises(DamagedError):
        stream.restore()
    assert held(warehouse)["seq"].to_pylist() == list(range(26, 41))


def test_nothing_goes_where_there_is_no_such_bucket(bucket: str, tmp_path: Path) -> None:
    rules: dict[str, Any] = {"max_age": "60s", "archive": "s3://no-such-bucket/kept"}
    warehouse = warehouse_with(tmp_path, "delta", NOW, **rules)
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(4, 10))
    with pytest.raises(StorageError, match="no-such-bucket"):
        stream.plan(AS_OF).apply()
    assert held(warehouse).num_rows == 40
