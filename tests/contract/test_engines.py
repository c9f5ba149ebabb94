from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from retention.api.warehouse import Warehouse
from retention.apply.requested import remove_now
from retention.core import headers
from retention.core.labels import Label
from retention.engine_port import Engine, Gathering, Part
from retention.engines.local import LocalEngine
from retention.engines.select import EngineName, Engines
from retention.engines.spark import attempts
from retention.engines.spark import engine as engine_module
from retention.engines.spark.engine import (
    SparkEngine,
    directory_of_shuffles,
    is_small_machine,
)
from retention.errors import DamagedError, StorageError
from retention.plan.planfile import save_plans
from retention.planners import probe, scratch, subject_ranges, subject_shuffle
from retention.rules.requests import Delete, Purge, Request
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with
from tests.support.shares import FORMATS
from tests.support.trees import scramble

pytestmark = pytest.mark.spark

EACH = 40
DELETES = headers.build([(headers.KV_OPERATION, "DEL")])
NOW = START + 1_000 * SECOND
ENGINES: tuple[EngineName, ...] = ("local", "spark")
PLAN_PARTS = ("", ".files.parquet", ".removed.parquet")
POLICIES: dict[str, dict[str, Any]] = {
    "head trim by count": {"max_msgs": 97},
    "head trim by bytes": {"max_bytes": 5_000},
    "age, with messages that never expire": {"max_age": "850s"},
    "each message of an age": {"max_age": "850s", "expiry": "each"},
    "surplus per subject": {"max_msgs_per_subject": 3},
    "deleted subjects, and surplus of the others": {
        "delete_retention": "700s",
        "max_msgs_per_subject": 3,
    },
    "everything at once": {
        "max_msgs": 203,
        "max_bytes": 12_000,
        "max_age": "880s",
        "max_msgs_per_subject": 11,
    },
}


def segment(number: int) -> list[Laid]:
    first = number * EACH + 1
    return [
        Laid(
            seq=seq,
            subject=f"s.{seq * seq % 13}",
            ts_ns=START + (seq - 3 * (seq % 4)) * SECOND,
            payload=bytes([seq % 251]) * (seq % 37),
            never=seq % 17 == 0,
            headers=DELETES if seq % 13 in {1, 6} else None,
        )
        for seq in range(first, first + EACH)
    ]


def files_of(messages: list[Laid], how: str) -> list[File]:
    base = messages[0].seq
    parts = {
        "one": [messages],
        "adjoining": [messages[:15], messages[15:]],
        "interleaved": [messages[::2], messages[1::2]],
    }
    return [File(base, part) for part in parts[how]]


SHAPES = ("one", "adjoining", "interleaved", "one", "interleaved", "adjoining")
FILES = [file for number, how in enumerate(SHAPES) for file in files_of(segment(number), how)]


@pytest.fixture(scope="module", params=FORMATS)
def laid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse copied by every test; named by its format."""
    folder = tmp_path_factory.mktemp("laid") / str(request.param)
    lay(warehouse_with(folder, request.param, NOW).stream("ORDERS").opened, FILES)
    return folder


def copied(laid: Path, target: Path, engine: EngineName, limits: dict[str, Any]) -> Warehouse:
    shutil.copytree(laid, target, dirs_exist_ok=True)
    return warehouse_with(target, laid.name, NOW, engine, **limits)


REQUESTS: dict[str, Request] = {
    "a purge by sequence": Purge(seq=97),
    "a purge that keeps the newest": Purge(keep=111),
    "a purge of some subjects": Purge("s.*", seq=130),
    "a purge that keeps the newest of a subject": Purge("s.1", keep=7),
    "a delete": Delete((1, 41, 42, 43, 200)),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_both_engines_remove_the_same_by_hand(
    spark: SparkSession, laid: Path, tmp_path: Path, request_: Request
) -> None:
    left, plans = [], []
    for name in ENGINES:
        warehouse = copied(laid, tmp_path / name, name, {})
        with Engines(name) as engines:
            report = remove_now(warehouse.stream("ORDERS").opened, request_, engines)
        assert report.removed_messages > 0
        left.append(held(warehouse))
        plans.append((report.by_rule, report.segments, report.files_read, report.bytes_read))
    assert left[0].equals(left[1])
    assert plans[0] == plans[1]


@pytest.mark.parametrize("limits", POLICIES.values(), ids=POLICIES)
@pytest.mark.always
def test_both_engines_plan_the_same_bytes_and_leave_the_same_rows(
    spark: SparkSession,
    laid: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
) -> None:
    monkeypatch.setattr(probe, "MOST_IN_MEMORY", 1)
    saved, left, reports = {}, {}, {}
    for engine in ENGINES:
        warehouse = copied(laid, tmp_path / engine, engine, limits)
        plan = warehouse.stream("ORDERS").plan().plan
        location = tmp_path / f"{engine}.plan"
        save_plans(str(location), [plan])
        saved[engine] = [Path(f"{location}{part}").read_bytes() for part in PLAN_PARTS]
        assert plan.header.read.files > 0  # rows had to be read, so the engine had something to do
        [outcome] = warehouse.apply()
        assert outcome.value is not None, outcome.sentence
        left[engine], reports[engine] = warehouse, outcome.value
        assert outcome.value.plan_id == plan.plan_id
        assert outcome.value.removed_messages == plan.removed_messages > 0
    assert saved["local"] == saved["spark"]
    by_local, by_spark = (left[engine].stream("ORDERS").read(spark) for engine in ENGINES)
    assert_df_equality(by_local, by_spark, ignore_row_order=True)
    assert held(left["local"]).equals(held(left["spark"]))
    ran = [
        {name: getattr(reports[engine], name) for name in ("by_rule", "segments", "removed_bytes")}
        for engine in ENGINES
    ]
    assert ran[0] == ran[1]


@pytest.mark.usefixtures("spark")
def test_what_consumers_leave_is_the_same_wherever_it_lies(
    laid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "MOST_IN_MEMORY", 1)
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    limits = {"retention": "interest", "max_msgs_per_subject": 2, "max_age": "820s"}
    left, reports = [], []
    for engine in ENGINES:
        warehouse = copied(laid, tmp_path / engine, engine, limits)
        opened = warehouse.stream("ORDERS").opened
        stand(opened, "billing", progress(20, 210, *range(21, 211, 3)))
        stand(opened, "mail", progress(90, 90), "s.1", "s.4")
        [outcome] = warehouse.apply()
        assert outcome.value is not None, outcome.sentence
        assert set(outcome.value.by_rule) >= {"interest", "max_msgs_per_subject"}
        left.append(held(warehouse))
        reports.append((outcome.value.by_rule, outcome.value.segments, outcome.value.removed_bytes))
        assert not list(Path(opened.root, "_retention", scratch.DIRECTORY).glob("*/*"))
    assert left[0].equals(left[1])
    assert reports[0] == reports[1]


@pytest.mark.usefixtures("spark")
def test_subjects_are_counted_by_tasks_of_the_active_session(
    laid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = copied(laid, tmp_path / "w", "auto", {"local_limit": "1B"}).stream("ORDERS")
    in_memory = stream.state().num_subjects
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    with patch.object(
        SparkEngine, "shuffle", autospec=True, side_effect=SparkEngine.shuffle
    ) as shuffled:
        assert stream.state().num_subjects == in_memory > 1
    assert shuffled.call_count == 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("limit", [1, 3])
def test_subjects_dealt_out_among_tasks_change_no_plan(
    laid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    def plan_id(engine: EngineName) -> str:
        warehouse = copied(laid, tmp_path / "w", engine, {"max_msgs_per_subject": limit})
        return warehouse.stream("ORDERS").plan().plan.plan_id

    whole = plan_id("local")
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", 2_000)
    assert [plan_id(engine) for engine in ENGINES] == [whole, whole]
    left = tmp_path / "w" / "streams" / "ORDERS" / "_retention" / scratch.DIRECTORY
    assert [path for path in left.rglob("*") if path.is_file()] == []


def test_rows_that_cannot_be_read_in_a_spark_task_are_a_damaged_file_to_the_driver(
    spark: SparkSession, laid: Path, tmp_path: Path
) -> None:
    sentences = []
    for engine in ENGINES:
        warehouse = copied(laid, tmp_path / "w", engine, {"max_msgs": 97})
        opened = warehouse.stream("ORDERS").opened
        inventory = opened.store.inventory(opened.store.snapshot())
        for file in opened.store.data_files(inventory.files):
            scramble(Path(file.location), np.random.default_rng(1))
        with pytest.raises(DamagedError, match="cannot be read as a data file") as damage:
            warehouse.stream("ORDERS").plan()
        sentences.append(str(damage.value))
        shutil.rmtree(tmp_path / "w")
    assert sentences[0] == sentences[1]


@pytest.fixture(autouse=True)
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts pass through Spark's own shuffle, as on a cluster."""
    monkeypatch.setattr(engine_module, "is_small_machine", lambda _: False)


def dealt_by_last_digit(number: int) -> Iterator[Part]:
    if number == 1_000:
        raise DamagedError("the thousandth is damaged")
    yield number % 10, str(number).encode()


def again_by_parity(key: int, contents: Sequence[bytes]) -> Iterator[Part]:
    yield key % 2, b"%d:%s" % (key, b",".join(contents))


def gathered(key: int, contents: Sequence[bytes]) -> tuple[int, bytes]:
    return key, b" ".join(contents)


@pytest.mark.parametrize("groups", [1, 3])
def test_parts_are_gathered_by_key_in_order_of_those_who_dealt_them(
    spark: SparkSession, groups: int
) -> None:
    engines: list[Engine] = [LocalEngine(), SparkEngine(spark)]
    numbers = [31, 7, 12, 2, 17, 101]
    for engine in engines:
        results = engine.shuffle(
            dealt_by_last_digit,
            numbers,
            [1] * len(numbers),
            Gathering(again_by_parity, groups),
            Gathering(gathered, groups),
        )
        assert results == [(0, b"2:12,2"), (1, b"1:31,101 7:7,17")]


@pytest.mark.parametrize(("tasks", "starts_jobs"), [(0, True), (64, False)])
def test_parts_stay_in_this_process_if_the_session_has_no_more_tasks_at_a_time(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tasks: int, starts_jobs: bool
) -> None:
    monkeypatch.setattr(engine_module, "is_small_machine", is_small_machine)
    monkeypatch.setattr(engine_module, "THREADS", tasks)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = set(jobs(Label().group))
    results = SparkEngine(spark).shuffle(
        dealt_by_last_digit,
        [31, 7, 12],
        [1] * 3,
        Gathering(again_by_parity, 2),
        Gathering(gathered, 2),
    )
    assert results == [(0, b"2:12"), (1, b"1:31 7:7")]
    assert (set(jobs(Label().group)) > before) == starts_jobs


def test_parts_lie_where_a_session_shuffles(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{missing}")
    assert directory_of_shuffles(spark) == str(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", missing)
    assert directory_of_shuffles(spark) is None
    last = Gathering(gathered, 2)
    with pytest.raises(StorageError, match=missing):
        LocalEngine(missing).shuffle(
            dealt_by_last_digit, [31], [1], Gathering(again_by_parity, 2), last
        )


def test_a_cluster_and_a_server_are_no_machine_of_this_process(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "THREADS", 64)
    answers = []
    for master in ("local", "local[2]", "local[*,4]", "local-cluster[1,1,1024]", "yarn"):
        with patch.object(attempts, "setting_of", lambda *_, answer=master: answer):
            answers.append(is_small_machine(spark))
    assert answers == [True, True, True, False, False]
    monkeypatch.setattr(engine_module, "is_connect", lambda _: True)
    assert not is_small_machine(spark)


def test_more_tasks_than_are_sent_at_a_time_come_back_in_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SENT_BYTES", 60)
    numbers = list(range(9))
    assert SparkEngine(spark).map(hex, numbers, [1] * 9) == list(map(hex, numbers))
    results = SparkEngine(spark).shuffle(
        dealt_by_last_digit,
        numbers,
        [1] * 9,
        Gathering(again_by_parity, 2),
        Gathering(gathered, 2),
    )
    assert [key for key, _ in results] == [0, 1]


def test_an_error_while_parts_are_dealt_reaches_the_driver_as_what_it_is(
    spark: SparkSession,
) -> None:
    engines: list[Engine] = [LocalEngine(), SparkEngine(spark)]
    for engine in engines:
        with pytest.raises(DamagedError, match="the thousandth is damaged"):
            engine.shuffle(
                dealt_by_last_digit,
                [1, 1_000, 2],
                [1] * 3,
                Gathering(again_by_parity, 2),
                Gathering(gathered, 2),
            )
