"""The doctor finds problems, names remedies, exits with the right code, and leaves no trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention.consumers.state import new_state
from retention.doctor import machine, place
from retention.doctor import spark as doctor_spark
from retention.doctor.machine import TESTED
from retention.doctor.releases import readers
from retention.engines.spark import workers
from retention.history.runs import history_of
from retention.storage import files
from retention.storage.crash_points import Step
from retention.stores.checks import capability_probe
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.lease import lease
from tests.support.buckets import BUCKET, object_store
from tests.support.command_line import invoke
from tests.support.kills import killed_at
from tests.support.run_records import run_record
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines
from tests.support.trees import tree

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    command = commands(tmp_path / "w", ORDERS, format=request.param)
    command.json("publish", "ORDERS", stdin="\n".join(lines(72)))
    return command


def examined(
    command: Commands, expected: int = 0, *, spark: bool = False
) -> dict[tuple[str | None, str], dict[str, Any]]:
    """The doctor's findings, by stream and check."""
    done = command.run("--format", "json", "doctor", *(["--spark"] if spark else []))
    assert done.exit_code == expected, done.output
    found = json.loads(done.stdout)
    assert len(found) == len({(one["stream"], one["check"]) for one in found})
    assert all(one["remedy"] for one in found if one["result"] != "ok")
    return {(one["stream"], one["check"]): one for one in found}


def data_files(command: Commands) -> list[Path]:
    return sorted((command.folder / "streams/ORDERS/messages").rglob("segment=*/*.parquet"))


def test_a_healthy_warehouse_has_no_problem_and_keeps_no_trace(orders: Commands) -> None:
    before = tree(orders.folder)
    found = examined(orders)
    assert {one["result"] for (stream, _), one in found.items() if stream} == {"ok"}
    for check in ("hard links", "renames", "locks", "commits", "permissions", "clock"):
        assert found[None, check]["result"] == "ok"
    assert tree(orders.folder) == before
    said = orders.run("doctor", "ORDERS").stdout.splitlines()
    assert said[0] == "machine and warehouse"
    assert "ORDERS" in said
    assert "  ok       leases: no process holds one" in said


def test_missing_and_short_files_are_named_and_end_with_6(orders: Commands) -> None:
    missing, short = data_files(orders)[:2]
    missing.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    found = examined(orders, 6)["ORDERS", "data files"]
    assert found["result"] == "problem"
    assert missing.name in found["detail"]
    assert short.name in found["detail"]
    assert "restore" in found["remedy"]


def test_a_damaged_log_is_a_problem_of_that_stream_alone(orders: Commands) -> None:
    root = orders.folder / "streams/ORDERS"
    logs = [*root.glob("messages/_delta_log/*1.json"), *root.glob("_retention/log/*1.json")]
    logs[0].write_bytes(b"{")
    found = examined(orders, 6)
    assert found["ORDERS", "table"]["result"] == "problem"
    assert found["ORDERS", "leases"]["result"] == "ok"


def test_a_table_feature_that_the_engine_does_not_know_is_named(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS, format="delta")
    command.json("publish", "ORDERS", stdin="\n".join(lines(3)))
    log = tmp_path / "streams/ORDERS/messages/_delta_log/00000000000000000002.json"
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}
    log.write_text(json.dumps({"protocol": features}))
    assert "rowTracking" in examined(command, 4)["ORDERS", "table"]["detail"]


@pytest.mark.parametrize(
    ("version", "linked", "read"),
    [
        (1, [], "every release reads it"),
        (2, [], "releases without `reclaim` refuse it (4)"),
        (3, [], "releases without `drop` refuse it (4)"),
        (4, [], "releases without `hold` refuse it (4)"),
        (1, ["its log names runs"], "its log names runs"),
    ],
)
def test_it_says_which_releases_can_read_a_stream(
    version: int, linked: list[str], read: str
) -> None:
    assert readers(version, linked) == f"format version {version}: {read}"


def test_which_releases_can_read_follows_from_what_was_done(
    orders: Commands, tmp_path: Path
) -> None:
    archived = commands(
        orders.folder,
        ORDERS | {"archive": str(tmp_path / "archive")},
        format=json.loads((orders.folder / "retention.yaml").read_text())["defaults"]["format"],
    )
    delta = (orders.folder / "streams/ORDERS/messages/_delta_log").exists()
    assert "format version 1: every release" in examined(archived)["ORDERS", "releases"]["detail"]
    archived.json("purge", "ORDERS", "--seq", 3, "--yes")
    assert ("repair place" in examined(archived)["ORDERS", "releases"]["detail"]) != delta
    archived.json("drop", "ORDERS", "--yes")
    archived.json("publish", "ORDERS", stdin=lines(1)[0])
    assert "format version 3: releases without `drop`" in str(examined(archived))


def test_a_lost_cache_and_interrupted_runs_are_warnings(orders: Commands) -> None:
    history = history_of(str(orders.folder), "ORDERS")
    history.begin(run_record("20270101T000000.000000000Z-abcdef"))
    for file in orders.folder.rglob("_retention/stats/*"):
        file.unlink()
    found = examined(orders)
    assert found["ORDERS", "runs"]["result"] == "warning"
    assert "retention apply" in found["ORDERS", "runs"]["remedy"]
    if (orders.folder / "streams/ORDERS/messages/_delta_log").exists():
        assert found["ORDERS", "statistics"]["result"] == "warning"


def test_files_that_nothing_accounts_for_are_counted(orders: Commands) -> None:
    root = orders.folder / "streams/ORDERS"
    delta = (root / "messages/_delta_log").exists()
    stray = root / ("messages" if delta else "_retention/staging") / "partition=0/segment=1"
    stray.mkdir(parents=True, exist_ok=True)
    (stray / f"{'0' * 32}.parquet").write_bytes(b"left")
    found = examined(orders)["ORDERS", "leftovers"]
    assert found["result"] == "warning"
    assert "0" * 32 in found["detail"]


def test_interrupted_moves_are_a_warning_until_somebody_opens_the_stream(tmp_path: Path) -> None:
    orders = commands(tmp_path / "w", ORDERS, format="parquet")
    with killed_at(Step.ENTRY_LINKED, 2):
        orders.run("publish", "ORDERS", stdin="\n".join(lines(72)))
    found = examined(orders)["ORDERS", "moves"]
    assert found["result"] == "warning"
    assert found["detail"].startswith("1 commit has files")
    orders.json("apply", "--yes", "ORDERS")
    assert ("ORDERS", "moves") not in examined(orders)


def test_a_table_that_says_another_grace_is_a_warning_until_a_run_follows(tmp_path: Path) -> None:
    orders = commands(tmp_path / "w", ORDERS, format="delta")
    orders.json("publish", "ORDERS", stdin="\n".join(lines(72)))
    assert ("ORDERS", "grace") not in examined(orders)
    orders = commands(tmp_path / "w", ORDERS, format="delta", grace="3d")
    found = examined(orders)["ORDERS", "grace"]
    assert found["result"] == "warning"
    assert "delta.deletedFileRetentionDuration = interval 259200 seconds" in found["detail"]
    orders.json("apply", "--yes", "ORDERS")
    assert ("ORDERS", "grace") not in examined(orders)


def test_the_holder_of_a_lease_is_named(orders: Commands) -> None:
    with lease(str(orders.folder / "streams/ORDERS"), "maintenance", lambda: NOW):
        found = examined(orders)["ORDERS", "leases"]
        assert found["result"] == "warning"
        assert f"process {os.getpid()}" in found["detail"]
    assert examined(orders)["ORDERS", "leases"]["result"] == "ok"


def test_a_clock_behind_the_history_is_a_problem(orders: Commands) -> None:
    assert orders.run("apply", "--yes", "--allow-future", "--as-of", 4 * 10**18).exit_code == 0
    found = examined(orders, 4)["ORDERS", "clock"]
    assert found["result"] == "problem"
    assert "retention repair clock ORDERS" in found["remedy"]


def test_a_consumer_whose_state_contradicts_itself_is_a_problem(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS | {"retention": "workqueue"})
    command.json("publish", "ORDERS", stdin="\n".join(lines(5)))
    assert examined(command)["ORDERS", "consumers"]["result"] == "ok"
    ahead = ConsumerRecord("billing", {}, new_state(9))
    table = ConsumerTable(str(command.folder / "streams/ORDERS"))
    table.update("billing", lambda _: ahead)
    assert "consumer billing" in examined(command, 4)["ORDERS", "consumers"]["detail"]


def test_a_wrong_configuration_is_a_finding(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS | {"max_age": "soon"})
    found = examined(command, 4)
    assert "max_age" in found[None, "configuration"]["detail"]
    assert (None, "pyarrow version") in found


def test_a_stream_that_is_not_there_is_said_as_everywhere(orders: Commands) -> None:
    done = orders.run("doctor", "ORDER")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean ORDERS?" in done.stderr


def test_a_warehouse_that_is_not_there_yet_is_no_problem(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("--format", "json", "doctor")
    assert done.exit_code in (2, 4)
    command = commands(tmp_path, ORDERS)
    (tmp_path / "retention.yaml").write_text(
        json.dumps({"warehouse": "./later/on", "streams": [ORDERS]})
    )
    assert "first write" in examined(command)[None, "warehouse"]["detail"]
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize("name", ["links_exclude", "renames_last", "locks_exclude"])
def test_a_file_system_without_an_ability_is_a_problem(
    orders: Commands, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(_: str) -> bool:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(capability_probe, name, refuse)
    found = examined(orders, 4)
    wrong = [one for one in found.values() if one["result"] == "problem"]
    assert len(wrong) == (2 if name == "links_exclude" else 1), "a commit is a hard link"
    assert all("Operation not supported" in one["detail"] for one in wrong)
    assert all("another file system" in one["remedy"] for one in wrong)


def test_a_location_where_two_commits_succeed_is_a_problem(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "commits_exclude", lambda _: False)
    assert "do not exclude each other" in examined(orders, 4)[None, "commits"]["detail"]


def test_little_room_and_a_clock_that_is_off_are_warnings(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_LITTLE_ROOM", 1 << 60)
    monkeypatch.setattr(place, "write_and_read", lambda _: 0)
    found = examined(orders)
    assert found[None, "free space"]["result"] == "warning"
    assert "ahead of the file system's" in found[None, "clock"]["detail"]


def test_missing_java_is_a_warning_or_where_spark_is_asked_for_a_problem(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "machine_java", lambda: None)
    monkeypatch.setattr(machine, "packaged_java", lambda: None)
    assert examined(orders)[None, "java"]["result"] == "warning"
    assert orders.run("--engine", "spark", "doctor").exit_code == 4


def test_versions_that_no_test_runs_with_are_warnings(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine.TESTED, "pandas", ("2.30",))
    assert examined(orders)[None, "pandas version"]["result"] == "warning"


def test_the_table_of_versions_is_the_projects_own() -> None:
    wanted = (ROOT / "pyproject.toml").read_text()
    for package, tested in TESTED.items():
        (stated,) = re.findall(
            rf'^  "{package}(?:\[connect\])?==([\d.]+)', wanted, re.MULTILINE
        ) or (re.findall(rf'^  "{package}>=([\d.]+)', wanted, re.MULTILINE))
        assert stated in tested


def test_spark_is_not_loaded_unless_asked_for(orders: Commands) -> None:
    code = (
        "import sys\nfrom retention.cli.main import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    )
    words = ["--config", str(orders.folder / "retention.yaml"), "doctor"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_is_tried_with_the_session_of_jobs(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    before = tree(tmp_path)
    found = examined(command, spark=True)
    checks = ("session", "workers", "packages", "delta", "warehouse")
    assert [found[None, f"spark {check}"]["result"] for check in checks] == ["ok"] * 5
    assert sys.executable in found[None, "spark workers"]["detail"]
    assert tree(tmp_path) == before


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_what_sparks_workers_lack_or_have_otherwise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(tmp_path, ORDERS)
    monkeypatch.setattr(
        doctor_spark,
        "metadata",
        SimpleNamespace(version=lambda _: "0.0", PackageNotFoundError=KeyError),
    )
    versions = examined(command, spark=True)[None, "spark packages"]
    assert versions["result"] == "warning"
    assert "(0.0 here)" in versions["detail"]
    monkeypatch.setitem(doctor_spark.NEEDED, "no_such_module", "nothing")
    monkeypatch.setattr(workers, "has_delta", lambda _: False)
    monkeypatch.setattr(sys, "version", "3.99.1 (of somebody)")
    found = examined(command, 4, spark=True)
    assert "lacks no_such_module" in found[None, "spark packages"]["detail"]
    assert "retention package" in found[None, "spark packages"]["remedy"]
    assert "PYSPARK_PYTHON" in found[None, "spark workers"]["remedy"]
    assert found[None, "spark delta"]["result"] == "warning"
    assert (None, "spark warehouse") not in found


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_warehouse_that_tasks_do_not_share_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(tmp_path, ORDERS)
    monkeypatch.setattr(workers, "write_token", str.upper)
    found = examined(command, 4, spark=True)[None, "spark warehouse"]
    assert "the driver does not see" in found["detail"]
    monkeypatch.setattr(workers, "write_token", refused)
    found = examined(command, 4, spark=True)[None, "spark warehouse"]
    assert "a task cannot write there" in found["detail"]


def refused(location: str) -> str:
    raise PermissionError(13, "Permission denied", location)


def test_an_object_store_is_tried_by_rival_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    location = f"s3://{BUCKET}/doctor"
    with object_store() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        words = ["--warehouse", location, "--engine", "local", "--format", "json"]
        published = invoke([*words, "publish", "ORDERS"], stdin=lines(1)[0])
        assert published.exit_code == 0, published.output
        before = files.walk(location)
        done = invoke([*words, "doctor"])
        assert files.walk(location) == before
        missing = invoke(["--warehouse", "s3://nowhere/w", *words[2:], "doctor"])
    assert done.exit_code == 0, done.output
    found = {one["check"]: one["result"] for one in json.loads(done.stdout)}
    assert (found["commits"], found["permissions"], found["leases"]) == ("ok", "ok", "ok")
    assert "hard links" not in found
    assert missing.exit_code == 4, missing.output
    (wrong,) = [one for one in json.loads(missing.stdout) if one["result"] == "problem"]
    assert "no such bucket" in wrong["detail"]
    assert "create it" in wrong["remedy"]


def test_on_an_object_store_a_writer_that_overwrites_and_missing_jars_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"s3://{BUCKET}/doctor"

    def examined_there(**settings: object) -> tuple[int, dict[str, dict[str, str]]]:
        config = {"streams": [ORDERS | settings]}
        files.replace(f"{place}/retention.yaml", json.dumps(config).encode())
        done = invoke(["--warehouse", place, "--format", "json", "doctor"])
        return done.exit_code, {one["check"]: one for one in json.loads(done.stdout)}

    with object_store() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        words = ["--warehouse", place, "publish", "ORDERS"]
        assert invoke(words, stdin=lines(1)[0]).exit_code == 0
        assert examined_there()[1]["writers"]["result"] == "ok"
        log = f"{place}/streams/ORDERS/messages/_delta_log/{2:020d}.json"
        files.replace(log, b'{"commitInfo":{"engineInfo":"Apache-Spark/4.2.0"}}')
        monkeypatch.setattr(machine, "s3a_jars", list)
        code, found = examined_there()
        alone = examined_there(exclusive=True)
    assert (code, found["writers"]["result"]) == (4, "problem")
    assert "Apache-Spark/4.2.0 committed version 2" in found["writers"]["detail"]
    assert "exclusive: true" in found["writers"]["remedy"]
    assert found["s3 jars"]["result"] == "warning"
    assert "make setup" in found["s3 jars"]["remedy"]
    assert (alone[0], alone[1]["writers"]["result"]) == (0, "ok")
