"""A whole warehouse on an object store: configuration, commands, history, plans, undo, and no secret anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import Result

from retention.config.discovery import config_file, find_config
from retention.errors import ConfigError
from retention.formats.nats.backup import RAW_ROWS, read_backup, write_backup
from retention.storage import files
from retention.storage.errors import storage_error
from tests.support.buckets import BUCKET, ObjectPath
from tests.support.command_line import invoke
from tests.support.sandboxes import lines

NOW = 1_780_000_000 * 10**9
CONFIG = {
    "streams": [
        {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 4, "segment_span": "5h"},
    ]
}
PUBLISHED = "\n".join(lines(12, first_ns=NOW - 10**15))
SECRET = "wJalrXUtnFEMIrecognisable"  # noqa: S105  (made up)


def run(place: str, *arguments: object, stdin: str | None = None) -> Result:
    words = ["--warehouse", place, "--engine", "local", *map(str, arguments)]
    return invoke(words, stdin=stdin)


def answer(place: str, *arguments: object, stdin: str | None = None) -> Any:
    done = run(place, "--format", "json", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def state(place: str) -> tuple[int, int, int]:
    (one,) = answer(place, "state", "ORDERS")
    return one["messages"], one["first_seq"], one["last_seq"]


@pytest.fixture
def lake(bucket: str) -> str:
    """A warehouse with its configuration inside and twelve messages."""
    files.replace(f"{bucket}/retention.yaml", json.dumps(CONFIG).encode())
    answer(bucket, "publish", "ORDERS", "-", stdin=PUBLISHED)
    return bucket


def test_the_configuration_inside_a_warehouse_is_read(bucket: str) -> None:
    assert config_file(bucket) is None
    assert find_config(bucket).streams == ()
    files.replace(f"{bucket}/retention.yaml", json.dumps(CONFIG).encode())
    for place in (bucket, f"{bucket}/", f"{bucket}/retention.yaml"):
        found = find_config(place)
        assert found.warehouse == bucket
        assert [stream.max_msgs for stream in found.streams] == [4]


@pytest.mark.parametrize(
    ("warehouse", "said"),
    [("./deeper", "{bucket}/deeper"), ("..", f"s3://{BUCKET}"), ("s3://other/w", "s3://other/w")],
)
def test_a_configuration_on_an_object_store_may_name_another_place(
    bucket: str, warehouse: str, said: str
) -> None:
    content = json.dumps({"warehouse": warehouse}).encode()
    files.replace(f"{bucket}/retention.yaml", content)
    assert find_config(bucket).warehouse == said.format(bucket=bucket)


@pytest.mark.parametrize("warehouse", ["../../elsewhere", "/data"])
def test_a_configuration_does_not_leave_its_bucket_by_steps(bucket: str, warehouse: str) -> None:
    content = json.dumps({"warehouse": warehouse}).encode()
    files.replace(f"{bucket}/retention.yaml", content)
    with pytest.raises(ConfigError, match="is not in bucket"):
        find_config(bucket)


def test_a_wrong_configuration_on_an_object_store_is_named_with_its_line(bucket: str) -> None:
    files.replace(f"{bucket}/retention.yaml", b"streams:\n- name: ORDERS\n  max_mgs: 4\n")
    refused = run(bucket, "plan")
    assert refused.exit_code == 2
    assert f"{bucket}/retention.yaml:3: max_mgs" in " ".join(refused.output.split())


def test_a_store_that_cannot_be_asked_is_not_taken_for_one_without_limits(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run(f"s3://no-such-{BUCKET}/w", "plan")
    assert refused.exit_code == 2
    monkeypatch.setattr(files, "read_bytes", _denied)
    refused = run(bucket, "plan")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert f"{bucket}/retention.yaml: the credentials" in " ".join(refused.output.split())


def _denied(location: str) -> bytes:
    raise storage_error(location, OSError("ACCESS_DENIED"))


def test_publish_plan_apply_undo_and_history(lake: str) -> None:
    assert state(lake) == (12, 1, 12)
    (planned,) = answer(lake, "plan", "--as-of", NOW)["streams"]
    assert (planned["removed_messages"], planned["by_rule"]) == (8, {"max_msgs": 8})
    (applied,) = answer(lake, "apply", "--yes", "--as-of", NOW)["streams"]
    assert applied["plan_id"] == planned["plan_id"]
    assert state(lake) == (4, 9, 12)
    (done,) = answer(lake, "history")
    assert (done["run"], done["status"]) == (applied["run"], "done")
    answer(lake, "undo", applied["run"])
    assert state(lake) == (12, 1, 12)
    assert [one["kind"] for one in answer(lake, "history")] == ["undo", "apply"]
    why = answer(lake, "explain", "ORDERS", 8, "--as-of", NOW)
    assert "max_msgs" in json.dumps(why)


def test_a_plan_saved_on_the_object_store_is_applied_once(lake: str) -> None:
    place = f"{lake}/plans/monday"
    answer(lake, "plan", "--as-of", NOW, "-o", place)
    assert files.names(f"{lake}/plans") == [
        "monday",
        "monday.cause.parquet",
        "monday.files.parquet",
        "monday.markers.parquet",
        "monday.removed.parquet",
        "monday.rules.parquet",
    ]
    answer(lake, "apply", "--yes", place)
    assert state(lake) == (4, 9, 12)
    again = run(lake, "apply", "--yes", place)
    assert again.exit_code == 75, again.output


def test_a_backup_is_imported(bucket: str, tmp_path: Path) -> None:
    archive = _backup(tmp_path)
    answer(bucket, "import", "nats-backup", archive, "--stream", "ORDERS")
    assert state(bucket) == (3, 5, 7)
    again = answer(bucket, "import", "nats-backup", archive, "--stream", "ORDERS")
    assert "true" in json.dumps(again)
    assert state(bucket) == (3, 5, 7)


def _backup(folder: Path, consumers: dict[str, Any] | None = None) -> Path:
    rows = pa.table(
        {
            "seq": [5, 6, 7],
            "subject": ["old.a"] * 3,
            "ts_ns": range(3),
            "headers": pa.nulls(3, pa.binary()),
            "payload": [b"x" * 100] * 3,
        }
    ).cast(RAW_ROWS)
    state = {"messages": 3, "bytes": 3 * (30 + 5 + 100), "first_seq": 5, "last_seq": 7}
    path = folder / "ORDERS.backup"
    write_backup(path, state, consumers or {}, [rows])
    return path


def test_a_stream_is_exported_to_the_object_store(bucket: str, tmp_path: Path) -> None:
    settled = {"consumer_seq": 2, "stream_seq": 2}
    state = {"delivered": settled, "ack_floor": settled}
    consumers = {"c": {"config": {"durable_name": "c"}, "state": state}}
    given = _backup(tmp_path, consumers)
    answer(bucket, "import", "nats-backup", given)
    told = answer(bucket, "export", "nats-backup", "ORDERS", f"{bucket}/out/ORDERS.arc")
    assert (told["messages"], told["consumers"]) == (3, 1)
    content = files.read_bytes(told["file"])
    assert content is not None
    (tmp_path / "copy").write_bytes(content)
    first, second = read_backup(given), read_backup(tmp_path / "copy")
    assert list(first.batches()) == list(second.batches())
    assert first.consumers == second.consumers == consumers
    assert json.loads(files.read_bytes(told["request"]) or b"")["state"] == second.state
    again = run(bucket, "export", "nats-backup", "ORDERS", told["file"])
    assert (again.exit_code, "already exists" in again.stderr) == (4, True)
    answer(bucket, "export", "nats-backup", "ORDERS", f"{bucket}/whole/")
    assert files.names(f"{bucket}/whole") == ["backup.json", "stream.tar.s2"]


@pytest.mark.thorough
@pytest.mark.parametrize("is_process", [False, True], ids=["keys", "process"])
def test_credentials_come_from_a_profile_and_are_written_nowhere(
    server: dict[str, str], bucket: str, tmp_path: Path, is_process: bool
) -> None:
    """The command line in a process with only a profile, with its keys or with a program that tells them."""
    keys = {"AccessKeyId": "AKIA", "SecretAccessKey": SECRET}
    (tmp_path / "keys.json").write_text(json.dumps({"Version": 1, **keys}))
    written = f"[work]\naws_access_key_id = AKIA\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "credentials").write_text("" if is_process else written)
    process = f"credential_process = cat {tmp_path}/keys.json\n" if is_process else ""
    (tmp_path / "config").write_text(f"[profile work]\nregion = us-east-1\n{process}")
    environment = {name: value for name, value in os.environ.items() if "AWS_" not in name} | {
        "AWS_ENDPOINT_URL": server["AWS_ENDPOINT_URL"],
        "AWS_PROFILE": "work",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    said = _say(environment, bucket, ["publish"])
    assert "[exit 0]" in said
    assert SECRET not in said
    assert state(bucket) == (12, 1, 12)


def test_a_secret_of_the_environment_is_written_nowhere(
    server: dict[str, str], bucket: str
) -> None:
    said = _say(os.environ | server | {"AWS_SECRET_ACCESS_KEY": SECRET}, bucket, COMMANDS)
    assert said.count("[exit 0]") == 3, said
    assert "there is no such bucket" in said
    assert SECRET not in said
    written = ObjectPath(bucket).rglob("*")
    assert len(written) > 10
    assert not [str(path) for path in written if SECRET.encode() in path.read_bytes()]


COMMANDS = ("publish", "plan", "apply", "fail")


def _say(environment: dict[str, str], place: str, commands: Sequence[str]) -> str:
    """The output of commands, with their exit codes."""
    files.replace(f"{place}/retention.yaml", json.dumps(CONFIG).encode())
    words = {
        "publish": [place, "publish", "ORDERS", "-"],
        "plan": [place, "plan", "-o", f"{place}/plan"],
        "apply": [place, "apply", "--yes"],
        "fail": [f"s3://{BUCKET}-missing/w", "publish", "ORDERS", "-"],
    }
    said = ""
    for name in commands:
        where, *rest = words[name]
        command = [sys.executable, "-c", "from retention.cli.main import main; main()", "--debug"]
        done = subprocess.run(
            [*command, "--warehouse", where, *rest],
            input=PUBLISHED,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said += f"{done.stdout}{done.stderr}[exit {done.returncode}]\n"
    return said


@pytest.mark.thorough
def test_a_table_whose_log_is_gone_is_refused_and_a_wrong_clock_is_settled(lake: str) -> None:
    answer(lake, "apply", "ORDERS", "--yes", "--as-of", "2099-01-01T00:00:00Z", "--allow-future")
    assert run(lake, "apply", "ORDERS", "--yes").exit_code == 4
    assert len(answer(lake, "repair", "clock", "ORDERS", "--yes")["wrong"]) == 1
    answer(lake, "apply", "ORDERS", "--yes")
    log = f"{lake}/streams/ORDERS/messages/_delta_log"
    kept = {name: files.read_bytes(f"{log}/{name}") or b"" for name in files.names(log)}
    files.delete(f"{log}/{name}" for name in kept)
    for command in ("state", "publish", "plan"):
        refused = run(lake, command, "ORDERS", stdin=PUBLISHED)
        assert refused.exit_code == 6
        assert "the log of stream ORDERS is gone" in refused.output
    for name, content in kept.items():
        files.replace(f"{log}/{name}", content)
    answer(lake, "publish", "ORDERS", "-", stdin=PUBLISHED)
    assert state(lake) == (16, 9, 24)


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_stream_is_dropped_brought_back_and_begun_anew(lake: str) -> None:
    def drop() -> str:
        (entry,) = answer(lake, "drop", "ORDERS", "--yes")["streams"]
        assert entry["by_rule"] == {"drop": entry["removed_messages"]}
        return str(entry["run"])

    run_of_drop = drop()
    (gone,) = answer(lake, "state", "ORDERS")
    assert (gone["messages"], gone["dropped"]["run"]) == (0, run_of_drop)
    answer(lake, "undo", run_of_drop)
    assert state(lake) == (12, 1, 12)
    second = drop()
    answer(lake, "publish", "ORDERS", "-", stdin="\n".join(lines(2, first_ns=NOW)))
    assert state(lake) == (2, 1, 2)
    assert run(lake, "undo", second).exit_code == 4
