from __future__ import annotations

import json
from pathlib import Path

from tests.support.sandboxes import ORDERS, commands, lines


def test_a_stream_is_exported_and_imported(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(48)))
    archive = tmp_path / "COPY.arc"
    done = command.run("export", "nats-backup", "ORDERS", archive)
    assert done.stdout == f"ORDERS: 48 messages exported, sequences 1 to 48, to {archive}\n"
    command.json("import", "nats-backup", archive)
    first, second = (command.json("messages", name) for name in ("ORDERS", "COPY"))
    assert [{**one, "segment": 0} for one in first] == [{**one, "segment": 0} for one in second]


def test_json_names_what_was_written(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(2)))
    told = command.json("export", "nats-backup", "ORDERS", f"{tmp_path}/out/")
    assert told == {
        "stream": "ORDERS",
        "file": f"{tmp_path}/out/stream.tar.s2",
        "request": f"{tmp_path}/out/backup.json",
        "messages": 2,
        "bytes": command.json("state")[0]["bytes"],
        "first_seq": 1,
        "last_seq": 2,
        "consumers": 0,
    }
    assert json.loads((tmp_path / "out" / "backup.json").read_text())["config"]["name"] == "ORDERS"


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    assert command.run("export", "nats-backup", "ORDERS", tmp_path / "a").exit_code == 0
    done = command.run("export", "nats-backup", "ORDERS", tmp_path / "a")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "already exists" in done.stderr
    assert command.run("export", "nats-backup", "NONE", tmp_path / "b").exit_code == 2
    empty = command.run("export", "nats-backup", "ORDERS", tmp_path / "b").stdout
    assert empty == f"ORDERS: 0 messages exported, to {tmp_path / 'b'}\n"
