"""No name leads out of the warehouse: no stream name, no link, and no path in a plan, a log or a record."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.subjects import path_name
from retention.errors import DamagedError
from retention.formats.nats.backup import RAW_ROWS, write_backup
from retention.plan.planfile import load_plans
from retention.storage.checksum import with_checksum
from tests.support.sandboxes import ORDERS, Commands, commands, lines
from tests.support.trees import tree

HOSTILE = ["../x", "/etc", "..", "%2e%2e", "%2E%2E%2Fx", "a\0b", "a/../../b", "\\\\host\\x", "~"]
READS = [
    ("plan", "ORDERS"),
    ("state", "ORDERS"),
    ("messages", "ORDERS"),
    ("explain", "ORDERS", 1),
    ("apply", "--yes", "ORDERS"),
]


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    command = commands(tmp_path / "w", ORDERS | {"max_msgs": 36}, format=request.param)
    command.json("publish", "ORDERS", stdin="\n".join(lines(72)))
    return command


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_a_path_that_leads_anywhere(name: str) -> None:
    component = path_name(name)
    assert "/" not in component
    assert "\0" not in component
    assert set(component) - {"."} == set(component)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("command", ["publish", "plan", "state", "messages", "doctor"])
def test_a_command_with_a_hostile_name_writes_nothing_outside(
    tmp_path: Path, name: str, command: str
) -> None:
    sandbox = commands(tmp_path / "deep" / "w")
    before = tree(tmp_path)
    done = sandbox.run(command, name, stdin="\n".join(lines(1)))
    assert done.exit_code in ((0, 2) if command == "publish" else (2,)), done.output
    new = set(tree(tmp_path)) - set(before)
    assert all(
        place.startswith(f"deep/w/streams/{path_name(name)}/") or "_tables" in place
        for place in new
    )


@pytest.mark.parametrize("name", ["../x", "/etc", "a/../../b"])
def test_a_backup_that_calls_its_stream_so_is_refused(tmp_path: Path, name: str) -> None:
    sandbox = commands(tmp_path / "w")
    folder = tmp_path / "backup"
    folder.mkdir()
    state = {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0}
    write_backup(folder / "stream.tar.s2", state, {}, [RAW_ROWS.empty_table()])
    (folder / "backup.json").write_text(json.dumps({"config": {"name": name}, "name": name}))
    before = tree(tmp_path)
    done = sandbox.run("import", "nats-backup", folder)
    assert done.exit_code in (2, 6), done.output
    assert tree(tmp_path) == before


@pytest.mark.parametrize("inside", ["", "messages", "_retention", "_retention/reports"])
def test_a_link_that_leads_out_is_refused_before_anything_is_read(
    orders: Commands, tmp_path: Path, inside: str
) -> None:
    place = orders.folder / "streams/ORDERS" / inside
    if inside == "_retention/reports":
        place.mkdir(exist_ok=True)
    outside = tmp_path / "outside"
    shutil.move(place, outside)
    place.symlink_to(outside, target_is_directory=True)
    before = tree(outside)
    for words in READS:
        done = orders.run(*words)
        assert done.exit_code == 4, (words, done.output)
        assert str(place) in done.stderr
        assert "leads out of the warehouse" in done.stderr
    assert orders.run("publish", "ORDERS", stdin="\n".join(lines(1))).exit_code == 4
    found = json.loads(orders.run("--format", "json", "doctor").stdout)
    assert any("leads out" in one["detail"] for one in found if one["result"] == "problem")
    assert tree(outside) == before


def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    sandbox = commands(tmp_path / "w", ORDERS | {"name": "ÖRDERS"}, format="delta")
    sandbox.json("publish", "ÖRDERS", stdin="\n".join(lines(3)))
    assert (tmp_path / "w/streams" / path_name("ÖRDERS") / "messages").is_symlink()
    assert sandbox.json("state", "ÖRDERS")[0]["messages"] == 3
    assert [one["stream"] for one in sandbox.json("state")] == ["ÖRDERS"]


def renamed(orders: Commands, path: str) -> Path:
    """A forged saved plan with matching digests and identity, and another path of its first file."""
    plan = orders.folder.parent / "plan.json"
    assert orders.run("plan", "ORDERS", "-o", plan).exit_code == 0
    beside = Path(f"{plan}.files.parquet")
    table = pq.read_table(beside)
    paths = [path, *table["path"].to_pylist()[1:]]
    at = table.schema.get_field_index("path")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(paths)), beside)
    document = json.loads(plan.read_text())
    document["sha256"]["files"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    plan.write_text(json.dumps(document))
    return plan


@pytest.mark.parametrize("path", ["partition=0/segment=1/../../../../x", "/etc/passwd", "../x"])
def test_a_plan_that_names_a_path_outside_is_refused(orders: Commands, path: str) -> None:
    plan = renamed(orders, path)
    before = tree(orders.folder / "streams")
    done = orders.run("apply", "--yes", plan)
    assert done.exit_code == 6, done.output
    assert "outside the stream's directory" in done.stderr
    assert tree(orders.folder / "streams") == before


def test_a_plan_of_a_stream_that_leads_out_names_no_stream(orders: Commands) -> None:
    plan = orders.folder.parent / "plan.json"
    assert orders.run("plan", "ORDERS", "-o", plan).exit_code == 0
    document = json.loads(plan.read_text())
    document["plans"][0]["stream"] = "../../x"
    plan.write_text(json.dumps(document))
    done = orders.run("apply", "--yes", plan)
    assert done.exit_code == 6, done.output
    with pytest.raises(DamagedError, match="identity"):
        load_plans(str(plan))


def test_a_log_that_names_a_path_outside_is_refused(orders: Commands, tmp_path: Path) -> None:
    root = orders.folder / "streams/ORDERS"
    logs = [*root.glob("messages/_delta_log/*1.json"), *root.glob("_retention/log/*1.json")]
    text = logs[0].read_text()
    outside = text.replace("partition=0/segment=1/", "partition=0/segment=1/../../../../")
    if logs[0].parent.name == "log":
        # A deliberate forgery also has a matching check of the entry.
        entry = {name: value for name, value in json.loads(outside).items() if name != "check"}
        outside = json.dumps(with_checksum(entry))
    logs[0].write_text(outside)
    victim = root.parent / "precious.parquet"
    victim.write_bytes(b"not ours")
    for words in READS:
        done = orders.run(*words)
        assert done.exit_code in (4, 6), (words, done.output)
        assert "outside" in done.stderr
    assert victim.read_bytes() == b"not ours"
