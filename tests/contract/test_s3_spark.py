"""A real Spark on an S3-compatible object store: supported operations, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retention.engines.spark.versions import delta_of, installed_spark
from retention.errors import RefusedError
from retention.ports import Store
from retention.stores import StoreSettings, stream_table
from retention.stores.delta.log import read_entry
from retention.stores.layout import Layout
from tests.contract.conftest import NOW_NS
from tests.contract.streams import append, sequences
from tests.support.buckets import BUCKET, ObjectPath
from tests.support.laying import held, lay, warehouse_with
from tests.support.spark_on_s3 import FILES, LIMITS, NOW

ROOT = Path(__file__).parents[2]
INSTALLED = installed_spark()
SPARK = f"Apache-Spark/{INSTALLED} Delta-Lake/{delta_of(INSTALLED)[1]}"


@pytest.fixture(scope="module")
def seen(server: dict[str, str]) -> dict[str, Any]:
    """The observations of a process with its own Spark session, which gets the store only from its environment."""
    command = [sys.executable, "-m", "tests.support.spark_on_s3", f"s3://{BUCKET}/spark"]
    done = subprocess.run(
        command, env=os.environ | server, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.thorough
@pytest.mark.spark
def test_both_engines_plan_the_same_bytes_and_spark_applies_them(
    seen: dict[str, Any], tmp_path: Path
) -> None:
    assert seen["local read"] == seen["spark read"] > 0
    assert seen["plans are equal"]
    assert seen["applied"] == [0, ""]
    here = warehouse_with(tmp_path, "delta", NOW, **LIMITS)
    lay(here.stream("ORDERS").opened, FILES)
    here.apply()
    assert seen["left"] == seen["read by Spark"] == held(here)["seq"].to_pylist()


@pytest.mark.thorough
@pytest.mark.spark
def test_a_task_that_fails_once_is_tried_again(seen: dict[str, Any]) -> None:
    assert seen["applied at the second attempt"] == [0, ""]
    assert seen["failed once"]
    assert seen["left by attempts"] == list(range(64, 161))
    assert seen["lost files"] == 1


@pytest.mark.spark
@pytest.mark.thorough
def test_frames_and_streaming_queries_are_appended_exactly_once(seen: dict[str, Any]) -> None:
    assert seen["appended"] == list(range(1, 31))
    streamed = seen["streamed"]
    assert len(streamed) > 30
    assert streamed == list(range(1, len(streamed) + 1))


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.thorough
def test_frames_of_a_live_stream_are_copied_once_and_passes_replay(seen: dict[str, Any]) -> None:
    assert seen["frames"] == list(range(1, 21))
    assert seen["query"] == list(range(1, 31))
    assert seen["plans of copies"] == [9, 9]
    assert seen["first replay"] == 9
    assert seen["replayed"] == [*range(4, 11), *range(14, 21), *range(24, 31)]


@pytest.mark.spark
def test_files_under_spark_s_vectors_are_removed_only_where_nobody_else_writes(
    seen: dict[str, Any],
) -> None:
    code, sentence = seen["with a vector"]
    assert (code, "exclusive: true" in sentence) == (4, True), sentence
    assert seen["with a vector, exclusive"] == [0, ""]
    assert seen["purged"] == [seq for seq in range(63, 161) if seq != 150]


@pytest.mark.spark
def test_spark_overwrites_a_version_that_another_wrote_meanwhile(seen: dict[str, Any]) -> None:
    """The reason against commits by Spark: it checks, then writes without a condition."""
    assert seen["survivor"] == "Spark's"


@pytest.mark.spark
def test_nothing_is_committed_behind_a_commit_of_spark(seen: dict[str, Any]) -> None:
    for act in ("publish behind Spark", "pass behind Spark"):
        code, sentence = seen[act]
        assert code == 4, (act, sentence)
        assert f"{SPARK} committed version 2" in sentence
        assert "exclusive: true" in sentence
    assert seen["read behind Spark"] == 120
    assert seen["publish, exclusive"] == [0, ""]
    assert seen["publish behind our own"] == [0, ""]


def opened(bucket: str, **settings: Any) -> Store:
    return stream_table(
        f"{bucket}/ORDERS", "ORDERS", StoreSettings(**settings), lambda: NOW_NS
    ).store()


def committed_by(bucket: str, program: str | None, version: int) -> None:
    """An empty commit by a program of that name."""
    said = {"commitInfo": {"engineInfo": program} if program else {}}
    entry = ObjectPath(f"{bucket}/ORDERS/messages/_delta_log/{version:020d}.json")
    entry.write_text(json.dumps(said).replace(" ", ""))


@pytest.mark.parametrize(
    ("program", "named"), [("Databricks-Runtime/18", "Databricks"), (None, "does not say its name")]
)
def test_a_program_that_may_overwrite_commits_is_named(
    bucket: str, program: str | None, named: str
) -> None:
    store = opened(bucket)
    store.create()
    append(store, range(1, 4))
    committed_by(bucket, program, 2)
    committed_by(bucket, "delta-rs:py-1.6.6", 3)
    with pytest.raises(RefusedError, match=named):
        append(store, range(4, 6))
    assert sequences(store) == [1, 2, 3]
    append(opened(bucket, exclusive=True), range(4, 6))
    append(store, range(6, 8))
    assert sequences(store) == list(range(1, 8))


def test_a_program_that_commits_as_we_do_is_welcome(bucket: str) -> None:
    store = opened(bucket)
    store.create()
    append(store, range(1, 4))
    committed_by(bucket, "delta-rs:py-1.6.6", 2)
    append(store, range(4, 6))
    assert read_entry(Layout(f"{bucket}/ORDERS", "ORDERS"), 3) is not None


def test_on_a_disk_spark_excludes_rivals_and_is_welcome(tmp_path: Path) -> None:
    place = str(tmp_path)
    store = opened(place)
    store.create()
    append(store, range(1, 4))
    log = tmp_path / f"ORDERS/messages/_delta_log/{2:020d}.json"
    log.write_text(json.dumps({"commitInfo": {"engineInfo": SPARK}}).replace(" ", ""))
    append(store, range(4, 6))
    assert sequences(store) == list(range(1, 6))
