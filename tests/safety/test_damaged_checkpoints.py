"""A damaged checkpoint is named, with the files to delete; each remedy is executed as written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.laying import START, warehouse_with
from tests.support.sandboxes import Commands

LINE = '{"subject": "a", "data": "x"}'
CHECKPOINT = 10
HINT = "_last_checkpoint"


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def classic(log: Path) -> Path:
    return log / f"{CHECKPOINT:020d}.checkpoint.parquet"


def a_cut_classic_one(log: Path) -> Path:
    cut(classic(log))
    return classic(log)


def an_empty_classic_one(log: Path) -> Path:
    classic(log).write_bytes(b"")
    return classic(log)


def the_second_of_two(log: Path) -> Path:
    """A multi-part checkpoint of older Spark versions (`delta.checkpoint.partSize`)."""
    rows = pq.read_table(classic(log))
    classic(log).unlink()
    parts = [log / f"{CHECKPOINT:020d}.checkpoint.{at:010d}.{2:010d}.parquet" for at in (1, 2)]
    half = rows.num_rows // 2
    pq.write_table(rows.slice(0, half), parts[0])
    pq.write_table(rows.slice(half), parts[1])
    (log / HINT).write_text(json.dumps({"version": CHECKPOINT, "size": rows.num_rows, "parts": 2}))
    return parts[1]


def a_cut_part(log: Path) -> Path:
    part = the_second_of_two(log)
    cut(part)
    return part


def a_missing_part(log: Path) -> Path:
    part = the_second_of_two(log)
    part.unlink()
    return part


def a_hint_to_nothing(log: Path) -> Path:
    (log / HINT).write_text('{"version":99,"size":14}')
    return log / HINT


def with_sidecar(log: Path) -> tuple[Path, Path]:
    """A checkpoint in format V2: a manifest, and a sidecar file with file actions."""
    rows = pq.read_table(classic(log))
    classic(log).unlink()
    (log / "_sidecars").mkdir()
    sidecar = log / "_sidecars" / "01234567-89ab-cdef-0123-456789abcdef.parquet"
    pq.write_table(rows.select(["add", "remove"]), sidecar)
    others = rows.select(["metaData", "protocol", "txn"]).to_pylist(maps_as_pydicts="strict")
    lines = [{kind: fields} for row in others for kind, fields in row.items() if fields]
    size = sidecar.stat().st_size
    lines += [
        {"checkpointMetadata": {"version": CHECKPOINT}},
        {"sidecar": {"path": sidecar.name, "sizeInBytes": size, "modificationTime": 0}},
    ]
    manifest = log / f"{CHECKPOINT:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    manifest.write_text(text)
    (log / HINT).write_text(json.dumps({"version": CHECKPOINT, "size": rows.num_rows}))
    return manifest, sidecar


def a_cut_sidecar(log: Path) -> Path:
    _, sidecar = with_sidecar(log)
    cut(sidecar)
    return sidecar


def a_missing_sidecar(log: Path) -> Path:
    _, sidecar = with_sidecar(log)
    sidecar.unlink()
    return sidecar


def a_cut_manifest(log: Path) -> Path:
    manifest, _ = with_sidecar(log)
    cut(manifest)
    return manifest


DAMAGES: list[Callable[[Path], Path]] = [
    a_cut_classic_one,
    an_empty_classic_one,
    a_cut_part,
    a_cut_sidecar,
    a_missing_sidecar,
    a_cut_manifest,
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    warehouse = warehouse_with(tmp_path, "delta", START)
    for _ in range(CHECKPOINT + 2):
        warehouse.new_stream("ORDERS").publish([LINE])
    place = Path(warehouse.location, "streams/ORDERS/messages/_delta_log")
    assert classic(place).exists()
    return place


def messages(given: Commands) -> list[int]:
    done = given.run("messages", "ORDERS", "--format", "jsonl")
    assert done.exit_code == 0, done.output
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_is_named_with_what_to_delete(
    tmp_path: Path, log: Path, damage: Callable[[Path], Path]
) -> None:
    given = Commands(tmp_path)
    damaged = damage(log)
    refused = given.run("state", "ORDERS")
    assert refused.exit_code == 6
    said = " ".join(refused.output.split())
    assert f"{damaged}: this checkpoint of the log of stream ORDERS cannot be read (" in said
    assert (
        "but the log has every entry that it replaces, so nothing is lost; nothing was changed"
        in said
    )
    for place in re.search(r"; delete (\S+(?: and \S+)*)", said)[1].split(" and "):  # type: ignore[index]
        Path(place).unlink()
    assert messages(given) == list(range(1, CHECKPOINT + 3))
    assert given.run("publish", "ORDERS", "-", stdin=LINE).exit_code == 0


@pytest.mark.parametrize("damage", [a_missing_part, a_hint_to_nothing])
def test_a_checkpoint_that_only_others_need_is_named_by_the_next_one(
    tmp_path: Path, log: Path, damage: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    given, damaged = Commands(tmp_path), damage(log)
    for _ in range(CHECKPOINT - 2):
        assert given.run("publish", "ORDERS", "-", stdin=LINE).exit_code == 0
    said = caplog.text
    assert messages(given) == list(range(1, 2 * CHECKPOINT + 1))
    assert f"{damaged}: this checkpoint of the log of stream ORDERS cannot be read (" in said
    assert "so nothing is lost; nothing was changed; delete " in said


def test_a_whole_checkpoint_of_the_second_version_is_read(tmp_path: Path, log: Path) -> None:
    with_sidecar(log)
    assert messages(Commands(tmp_path)) == list(range(1, CHECKPOINT + 3))


def test_a_checkpoint_that_nothing_can_replace_is_to_be_restored(tmp_path: Path, log: Path) -> None:
    content = classic(log).read_bytes()
    a_cut_classic_one(log)
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    refused = Commands(tmp_path).run("state", "ORDERS")
    assert refused.exit_code == 6
    assert (
        "and entries that it replaces are missing, that of version 0 the first; nothing was changed; restore the file "
        "from a copy"
    ) in " ".join(refused.output.split())
    classic(log).write_bytes(content)
    assert messages(Commands(tmp_path)) == list(range(1, CHECKPOINT + 3))


def test_an_older_checkpoint_takes_the_place_of_a_damaged_one(tmp_path: Path, log: Path) -> None:
    a_file = log.parent
    DeltaTable(str(a_file)).create_checkpoint()
    newest = max(log.glob("*.checkpoint.parquet"))
    assert newest != classic(log)
    for version in range(CHECKPOINT):
        (log / f"{version:020d}.json").unlink()
    cut(newest)
    said = " ".join(Commands(tmp_path).run("state", "ORDERS").output.split())
    assert said.endswith(f"; delete {newest} and {log / HINT}")
    for place in (newest, log / HINT):
        place.unlink()
    assert messages(Commands(tmp_path)) == list(range(1, CHECKPOINT + 3))


def test_a_damaged_entry_is_named(tmp_path: Path, log: Path) -> None:
    entry = log / f"{CHECKPOINT + 1:020d}.json"
    cut(entry)
    refused = Commands(tmp_path).run("state", "ORDERS")
    assert refused.exit_code == 6
    said = " ".join(refused.output.split())
    assert f"{entry}: this entry of the log of stream ORDERS cannot be read (" in said
    assert said.endswith("; nothing was changed; restore it from a copy")
