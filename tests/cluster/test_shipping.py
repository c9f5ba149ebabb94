"""Workers without this package: the parts shipped with a submission suffice for every job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster import Brought, Cluster, worker_python
from tests.support.jobs import run_job
from tests.support.nats_process import admin, nats_process
from tests.support.sandboxes import configured, lines, opened

APPENDING, READING, LIVE = (
    Path(__file__).with_name(f"{name}.py") for name in ("appending", "reading", "live_reading")
)
FORMATS = ("delta", "parquet")
STREAMS = [
    {
        "name": name.upper(),
        "format": name,
        "subjects": [f"{name}.>"],
        "max_msgs_per_subject": 7,
        "segment_span": "30d",
    }
    for name in FORMATS
]


@pytest.fixture(params=["by_zip", pytest.param("by_environment", marks=pytest.mark.cluster)])
def brought(request: pytest.FixtureRequest) -> Brought:
    """Both ways to ship the package."""
    way: Brought = request.getfixturevalue(request.param)
    return way


def sequences(folder: Path, name: str) -> list[int]:
    tables = opened(folder, *STREAMS).stream(name).messages()
    return [seq for rows in tables for seq in rows["seq"].to_pylist()]


def unpack_for_the_driver(cluster: Cluster, brought: Brought) -> None:
    """The driver plans with the tasks' Python, in its own working directory."""
    place = cluster.folder / "environment"
    if not place.exists():
        place.mkdir()
        archive = str(brought.options[1]).removesuffix("#environment")
        subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)


@pytest.mark.thorough
def test_the_workers_have_nothing_of_ours(cluster: Cluster) -> None:
    tried = subprocess.run(
        [worker_python(), "-c", "import pyarrow, retention"],
        cwd=cluster.folder,
        env=cluster.environment() | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'retention'"


@pytest.mark.cluster
def test_the_environment_runs_wherever_it_is_unpacked(
    by_environment: Brought, folder: Path
) -> None:
    archive = str(by_environment.options[1]).removesuffix("#environment")
    subprocess.run(["tar", "-xzf", archive, "-C", str(folder)], check=True)
    code = "import retention.jobs.retain, retention, deltalake, nkeys, nats.aio.client, pandas, sys"
    check = "assert not {'pyspark', 'pytest'} & sys.modules.keys()"
    done = subprocess.run(
        ["bin/python", "-c", f"{code}; {check}; print(sys.prefix, retention, pandas)"],
        cwd=folder,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(str(folder)) == 3


@pytest.mark.thorough
def test_a_pass_rewrites_rows_on_workers(cluster: Cluster, folder: Path, brought: Brought) -> None:
    warehouse = opened(folder / "w", *STREAMS)
    for name in FORMATS:
        both = zip(lines(40, f"{name}.a"), lines(40, f"{name}.b"), strict=True)
        warehouse.stream(name.upper()).publish([line for pair in both for line in pair])
    shutil.copytree(folder / "w", folder / "local")
    here = run_job("retain", folder / "local", "--engine", "local")
    assert here.returncode == 0, here.stderr
    report = folder / "report.json"
    config = ("--config", folder / "w" / "retention.yaml", "--report-file", report)
    done = cluster.submit(brought, "retain", *config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "retain: 2 streams done, 0 failed; removed 132 messages (" in done.stdout
    for entry in json.loads(report.read_text(encoding="utf-8"))["streams"]:
        assert entry["segments"] == {"dropped": 0, "rewritten": 1, "kept": 0}
        assert sequences(folder / "w", entry["stream"]) == list(range(67, 81))
        assert sequences(folder / "local", entry["stream"]) == list(range(67, 81))


@pytest.mark.cluster
def test_the_doctor_asks_the_workers(cluster: Cluster, folder: Path, by_zip: Brought) -> None:
    configured(folder / "w", *STREAMS)
    report = folder / "report.json"
    where = ("--config", folder / "w" / "retention.yaml", "--report-file", report)

    def found(brought: Brought, code: int) -> dict[str, dict[str, str]]:
        done = cluster.submit(brought, "doctor", *where)
        assert done.returncode == code, done.stdout + done.stderr
        checks = json.loads(report.read_text(encoding="utf-8"))["findings"]
        return {one["check"]: one for one in checks}

    well = found(by_zip, 0)
    results = {check: one["result"] for check, one in well.items() if check.startswith("spark ")}
    assert results == {
        **{f"spark {check}": "ok" for check in ("session", "workers", "packages", "warehouse")},
        "spark delta": "warning",
    }
    assert str(worker_python()) in well["spark workers"]["detail"]
    lacking = found(replace(by_zip, options=()), 4)["spark packages"]
    assert "lacks retention" in lacking["detail"]


@pytest.mark.cluster
def test_frames_are_appended_and_streamed_by_workers(
    cluster: Cluster, folder: Path, brought: Brought
) -> None:
    configured(folder / "w", *STREAMS)
    done = cluster.submit(brought, APPENDING, folder / "w", "DELTA", "PARQUET")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["DELTA 80 80", "PARQUET 80 80"]


@pytest.mark.cluster
def test_messages_are_read_and_appended_again_by_workers(
    cluster: Cluster, folder: Path, by_environment: Brought
) -> None:
    warehouse = opened(folder / "w", *STREAMS)
    for name in FORMATS:
        for part in ("a", "b", "a"):
            warehouse.stream(name.upper()).publish(lines(20, f"{name}.{part}"))
    unpack_for_the_driver(cluster, by_environment)
    done = cluster.submit(by_environment, READING, folder / "w", "DELTA", "PARQUET")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["DELTA 120 80", "PARQUET 120 80"]


@pytest.mark.cluster
def test_a_live_stream_is_read_and_followed_by_workers(
    cluster: Cluster, folder: Path, by_environment: Brought
) -> None:
    unpack_for_the_driver(cluster, by_environment)
    (folder / "nats").mkdir()
    with nats_process(folder / "nats") as server, admin(server.url) as broker:
        configured(folder, {"name": "COPY", "sync": {"server": server.url, "stream": "LIVE"}})
        broker.create("LIVE")
        broker.publish("LIVE.a", [b"%d" % number for number in range(1000)])
        for _ in range(2):
            done = cluster.submit(by_environment, LIVE, server.url, "LIVE", folder)
            assert done.returncode == 0, done.stdout + done.stderr
            held = broker.last_seq("LIVE")
            expected = [f"{how} {held} {held}" for how in ("read", "written", "copied")]
            assert done.stdout.splitlines()[-3:] == expected
            broker.publish("LIVE.b", [b"later"] * 50)


@pytest.mark.cluster
def test_sources_are_ingested_by_workers(cluster: Cluster, folder: Path, brought: Brought) -> None:
    configured(folder / "w", *STREAMS)
    source = folder / "source"
    source.mkdir()
    (source / "1.json").write_text("\n".join(lines(50, "parquet.a")), encoding="utf-8")
    where = ("--warehouse", folder / "w", "--source", source, "--source-format", "json")
    done = cluster.submit(
        brought, "ingest", *where, "--column", "payload=data", "--stream", "PARQUET"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ingest: stored 50 messages (" in done.stdout
    assert sequences(folder / "w", "PARQUET") == list(range(1, 51))


@pytest.mark.cluster
def test_logs_of_acks_are_folded_by_workers(
    cluster: Cluster, folder: Path, brought: Brought
) -> None:
    stream = opened(folder / "w", *STREAMS).stream("DELTA")
    stream.publish(lines(30, "delta.a"))
    stream.consumers.add({"durable_name": "all", "ack_policy": "explicit"})
    acks = [
        {"subject": f"$JS.ACK.DELTA.all.1.{seq}.{seq}.1790000000000000000.0", "data": "+ACK"}
        for seq in range(1, 21)
    ]
    (folder / "acks.jsonl").write_text("\n".join(map(json.dumps, acks)), encoding="utf-8")
    where = ("--config", folder / "w" / "retention.yaml", "--stream", "DELTA")
    done = cluster.submit(brought, "fold", *where, "--log", folder / "acks.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  all: 20 lines: 20 settle" in done.stdout
    [info] = opened(folder / "w", *STREAMS).stream("DELTA").consumers.list()
    assert info.ack_floor == {"consumer_seq": 20, "stream_seq": 20}
