"""`verify` on an object store: replaced, deleted and truncated objects; with read-only credentials, too."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.storage import files
from retention.stores.sidecar.last_verification import last_verification
from tests.contract.test_s3_read_only import read_only  # noqa: F401  (a fixture)
from tests.contract.test_s3_read_only import run as retention
from tests.support.buckets import ObjectPath
from tests.support.sandboxes import NOW, lines

CONFIG = {
    "streams": [
        {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 60, "segment_size": "2KiB"}
    ]
}


@pytest.fixture
def warehouse(bucket: str) -> Warehouse:
    """A stream of several objects, after a pass."""
    files.replace(f"{bucket}/retention.yaml", json.dumps(CONFIG).encode())
    opened = open_warehouse(bucket, engine="local", clock=lambda: NOW)
    stream = opened.new_stream("ORDERS")
    for _ in range(2):
        stream.publish(lines(50))
    stream.plan().apply()
    assert stream.verify().verdict == "ok"
    return opened


def live(warehouse: Warehouse) -> list[ObjectPath]:
    opened = warehouse.stream("ORDERS").opened
    paths = sorted(opened.store.snapshot().files["path"].to_pylist())
    assert len(paths) > 1
    return [ObjectPath(opened.layout.live(path)) for path in paths]


def exchange(objects: list[ObjectPath]) -> None:
    contents = [each.read_bytes() for each in objects[:2]]
    for each, content in zip(objects[:2], reversed(contents), strict=True):
        each.write_bytes(content)


def replace_same_length(objects: list[ObjectPath]) -> None:
    content = objects[0].read_bytes()
    objects[0].write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])


DAMAGES: dict[str, tuple[str, Callable[[list[ObjectPath]], object]]] = {
    "replaced": ("content", replace_same_length),
    "exchanged": ("size", exchange),
    "deleted": ("size", lambda objects: objects[0].unlink()),
    "truncated": ("size", lambda objects: objects[0].write_bytes(objects[0].read_bytes()[:-9])),
    "emptied": ("size", lambda objects: objects[0].write_bytes(b"")),
}
"""The damage → the check that finds it, and how it is planted."""


def test_damaged_objects_are_found_and_copies_restore_them(warehouse: Warehouse) -> None:
    objects = live(warehouse)
    kept = [each.read_bytes() for each in objects]
    assert len({len(content) for content in kept[:2]}) == 2
    for damage, (check, plant) in DAMAGES.items():
        plant(objects)
        result = warehouse.stream("ORDERS").verify()
        assert {each.check for each in result.damages} == {check}, damage
        for each, content in zip(objects, kept, strict=True):
            each.write_bytes(content)
        assert warehouse.stream("ORDERS").verify().verdict == "ok", damage


def test_read_only_credentials_verify_without_a_record_and_say_so(
    warehouse: Warehouse,
    bucket: str,
    read_only: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = warehouse.stream("ORDERS")
    before = last_verification(stream.opened.root)
    listed = files.walk(bucket)
    flipped = live(warehouse)[0]
    kept = flipped.read_bytes()
    with monkeypatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", read_only)
        done = retention(bucket, "verify", "ORDERS")
        assert (done.exit_code, done.stdout[:17]) == (0, "ORDERS: ok: read "), done.output
        assert "this is not recorded, because the storage is read-only" in done.stdout
        entries = json.loads(retention(bucket, "--format", "json", "verify").stdout)
        assert [each["has_record"] for each in entries["streams"]] == [False], entries
    assert files.walk(bucket) == listed
    assert last_verification(stream.opened.root) == before
    replace_same_length([flipped])
    with monkeypatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", read_only)
        assert retention(bucket, "verify", "ORDERS").exit_code == 6
    flipped.write_bytes(kept)
    assert "not recorded" not in retention(bucket, "verify", "ORDERS").stdout
