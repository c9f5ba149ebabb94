"""An archive on an object store: what goes from a local warehouse, and from one beside it, is there and comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import DamagedError, StorageError
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
    assert len(manifest.files) == 3
    assert stream.restore().messages == 25
    assert held(warehouse).equals(before)
    new = warehouse.new_stream("BACK")
    assert stream.restore(into=new).messages == 30


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
