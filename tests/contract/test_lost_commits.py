"""A commit overwritten by Spark in a log on a local disk is reported, and committed again by a command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from retention.api.warehouse import Warehouse
from retention.errors import DamagedError, LostCommitError, StorageError
from retention.storage import crash_points
from retention.storage.crash_points import Step
from retention.stores.delta import commit_tokens
from retention.stores.layout import Layout
from tests.support.kills import killed_at
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with
from tests.support.overwritten_log import SPARK, log_of, newest, overwrite
from tests.support.sandboxes import Commands
from tests.support.topics import NAME, World, line

LINE = '{"subject": "a", "data": "x"}'


def laid(folder: Path, **changed: Any) -> Warehouse:
    """Messages 1 to 10 in segments of five."""
    warehouse = warehouse_with(folder, "delta", START + 10**6 * SECOND, **changed)
    files = [
        File(
            base, [Laid(seq, f"s.{seq % 3}", START + seq * SECOND) for seq in range(base, base + 5)]
        )
        for base in (1, 6)
    ]
    lay(warehouse.new_stream("ORDERS").opened, files)
    return warehouse


def overwriting(warehouse: Warehouse, at: Step, version: int) -> Callable[[Step], None]:
    """A watcher that overwrites a version at the first occurrence of a step."""
    pending = [version]

    def watcher(step: Step) -> None:
        if step == at and pending:
            overwrite(warehouse, pending.pop())

    return watcher


def stored(warehouse: Warehouse) -> list[int]:
    """The sequences in the view of other readers of the table."""
    frame = pl.scan_delta(f"{warehouse.location}/streams/ORDERS/messages").select("seq")
    return sorted(frame.collect()["seq"].to_list())


def test_a_lost_publish_is_named_and_committed_again(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    warehouse.stream("ORDERS").publish([LINE] * 3, writer="w", batch=7)
    lost = newest(warehouse)
    overwrite(warehouse, lost)
    assert stored(warehouse) == list(range(1, 11))
    given = Commands(tmp_path)
    refused = given.run("publish", "ORDERS", "-", stdin=LINE)
    assert refused.exit_code == 4
    run = warehouse.stream("ORDERS").repair_lost_commits().plan.commits[0].commit.metadata["run"]
    assert (
        f"stream ORDERS: version {lost} of the table was a commit of ours ({run}), and {SPARK} (OPTIMIZE) overwrote "
        "it, as Spark can on a local disk; nothing was changed; `retention repair lost-commit ORDERS --yes` "
        "commits it again, and says what it held without --yes (spark_writes: true keeps it from happening while Spark "
        "writes to the table)"
    ) in " ".join(refused.output.split())
    for command in (
        ("plan", "ORDERS"),
        ("apply", "--yes"),
        ("state", "ORDERS"),
        ("reclaim", "ORDERS", "--yes"),
    ):
        assert given.run(*command).exit_code == 4, command
    doctor = given.run("doctor")
    assert "`retention repair lost-commit ORDERS --yes` commits it again" in " ".join(
        doctor.output.split()
    )
    dry = given.json("repair", "lost-commit", "ORDERS")["commits"][0]
    assert (dry["messages"], dry["first_seq"], dry["last_seq"], dry["reason"]) == (3, 11, 13, None)
    assert stored(warehouse) == list(range(1, 11))
    repaired = given.run("repair", "lost-commit", "ORDERS", "--yes")
    assert repaired.exit_code == 0, repaired.output
    assert "in the table again: 3 messages" in repaired.output
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == list(range(1, 14))
    again = warehouse.stream("ORDERS").publish([LINE], writer="w", batch=7)
    assert again.appended.duplicate
    assert warehouse.stream("ORDERS").publish([LINE]).appended.first_seq == 14
    assert given.run("doctor").exit_code == 0
    assert "nothing to repair" in given.run("repair", "lost-commit", "ORDERS").output


def test_a_table_that_spark_made_anew_has_lost_nothing(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    log = log_of(warehouse)
    made = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    [metadata] = [action for action in made if "metaData" in action]
    [protocol] = [action for action in made if "protocol" in action]
    shutil.rmtree(log.parent)
    log.mkdir(parents=True)
    overwrite(warehouse, 0, protocol, {"metaData": metadata["metaData"] | {"id": "another"}})
    for version in range(1, 4):
        overwrite(warehouse, version)
    assert warehouse.stream("ORDERS").repair_lost_commits().plan.commits == ()
    [outcome] = warehouse.apply()
    assert outcome.error is None
    assert stored(warehouse) == []


def test_a_lost_publish_of_a_topic_is_committed_again(tmp_path: Path) -> None:
    world = World(tmp_path, "delta")
    world.topic.publish([line("a", partition=0)])
    world.topic.publish([line("b", partition=0), line("c", partition=1)], writer="w", batch=7)
    overwrite(world.warehouse, newest(world.warehouse, NAME), stream=NAME)
    with pytest.raises(LostCommitError, match="`retention repair lost-commit clicks --yes`"):
        world.topic.publish([line("d", partition=0)])
    (repaired,) = world.topic.repair_lost_commits().apply().commits
    assert repaired.reason is None
    assert world.topic.publish(
        [line("b", partition=0), line("c", partition=1)], writer="w", batch=7
    ).appended.duplicate
    world.topic.publish([line("d", partition=0)])
    assert [(row["partition"], row["seq"], row["payload"]) for row in world.rows()] == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (0, 2, b"d"),
        (1, 0, b"c"),
    ]


def test_a_lost_pass_is_committed_again_and_can_be_undone(tmp_path: Path) -> None:
    warehouse = laid(tmp_path, max_msgs=3)
    (outcome,) = warehouse.apply(["ORDERS"])
    assert outcome.value is not None
    overwrite(warehouse, newest(warehouse))
    assert stored(warehouse) == list(range(1, 11))
    (repaired,) = warehouse.stream("ORDERS").repair_lost_commits().apply().commits
    assert repaired.reason is None
    assert repaired.removed.num_rows == 2
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == [8, 9, 10]
    warehouse.undo(outcome.value.run)
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == list(range(1, 11))


def test_a_lost_removal_of_files_that_were_compacted_is_left_to_the_next_pass(
    tmp_path: Path,
) -> None:
    warehouse = laid(tmp_path, max_msgs=3)
    table = DeltaTable(str(log_of(warehouse).parent))
    warehouse.apply(["ORDERS"])
    lost = newest(warehouse)
    overwrite(warehouse, lost)
    table = DeltaTable(str(log_of(warehouse).parent))
    table.delete("seq = 2")
    (repaired,) = warehouse.stream("ORDERS").repair_lost_commits().apply().commits
    assert repaired.reason is not None
    assert "are no longer in the table" in repaired.reason
    assert repaired.added.num_rows == 0
    assert stored(warehouse) == [1, *range(3, 11)]
    warehouse.apply(["ORDERS"])
    assert stored(warehouse) == [8, 9, 10]


def test_a_commit_whose_files_are_gone_gives_no_sequence_out_twice(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    before = {path.name for path in tmp_path.rglob("*.parquet")}
    warehouse.stream("ORDERS").publish([LINE] * 3)
    overwrite(warehouse, newest(warehouse))
    for path in log_of(warehouse).parent.rglob("*.parquet"):
        if path.name not in before:
            path.unlink()
    (repaired,) = warehouse.stream("ORDERS").repair_lost_commits().apply().commits
    assert repaired.reason is not None
    assert "of its files no longer exist" in repaired.reason
    assert warehouse.stream("ORDERS").publish([LINE]).appended.first_seq == 14


@pytest.mark.parametrize(
    ("at", "settings"),
    [(Step.DELTA_COMMITTED, {}), (Step.COMMIT_LINKED, {"spark_writes": True})],
    ids=["before the first look", "within the window"],
)
def test_a_commit_that_is_overwritten_before_it_is_acknowledged_is_made_again(
    tmp_path: Path, at: Step, settings: dict[str, Any]
) -> None:
    warehouse = laid(tmp_path, max_msgs=8, **settings)
    stream = warehouse.stream("ORDERS")
    with crash_points.watched_by(overwriting(warehouse, at, newest(warehouse) + 1)):
        assert stream.publish([LINE] * 3).appended.first_seq == 11
    with crash_points.watched_by(overwriting(warehouse, at, newest(warehouse) + 1)):
        (outcome,) = warehouse.apply(["ORDERS"])
    assert outcome.value is not None, outcome.sentence
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == list(range(6, 14))
    assert stream.repair_lost_commits().plan.commits == ()


def test_a_run_says_at_its_end_that_its_commit_is_lost(tmp_path: Path) -> None:
    warehouse = laid(tmp_path, max_msgs=3)
    watcher = overwriting(warehouse, Step.HISTORY_DONE, newest(warehouse) + 1)
    with crash_points.watched_by(watcher):
        (outcome,) = warehouse.apply(["ORDERS"])
    assert isinstance(outcome.error, LostCommitError)
    (repaired,) = warehouse.stream("ORDERS").repair_lost_commits().apply().commits
    assert repaired.commit.metadata["plan_id"]
    assert stored(warehouse) == [8, 9, 10]


def test_an_idle_pass_that_would_not_open_the_table_notices_too(tmp_path: Path) -> None:
    warehouse = laid(tmp_path, max_age="300d")
    stream = warehouse.stream("ORDERS")
    stream.publish([LINE])
    lost = newest(warehouse)
    stream.publish([LINE])
    warehouse.apply(["ORDERS"])
    warehouse.apply(["ORDERS"])
    overwrite(warehouse, lost)
    (outcome,) = warehouse.apply(["ORDERS"])
    assert isinstance(outcome.error, LostCommitError)
    stream.repair_lost_commits().apply()
    assert stored(warehouse) == list(range(1, 13))


@pytest.mark.parametrize(
    "step", [Step.HISTORY_BEGUN, Step.DELTA_COMMITTED, Step.COMMIT_LINKS_DELETED]
)
def test_a_repair_that_is_killed_is_finished_by_the_next(tmp_path: Path, step: Step) -> None:
    warehouse = laid(tmp_path)
    warehouse.stream("ORDERS").publish([LINE] * 3)
    overwrite(warehouse, newest(warehouse))
    with killed_at(step):
        warehouse.stream("ORDERS").repair_lost_commits().apply()
    warehouse.stream("ORDERS").repair_lost_commits().apply()
    warehouse.apply(["ORDERS"])
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == list(range(1, 14))
    assert {record["status"] for record in warehouse.stream("ORDERS").history()} <= {
        "done",
        "abandoned",
    }


def test_neither_a_copied_warehouse_nor_a_log_put_back_has_lost_a_commit(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    warehouse = laid(here)
    backup = tmp_path / "backup"
    warehouse.stream("ORDERS").publish([LINE])
    shutil.copytree(log_of(warehouse), backup)
    for _ in range(2):
        warehouse.stream("ORDERS").publish([LINE])
    shutil.copytree(here, there)
    copied = warehouse_with(there, "delta", START + 10**6 * SECOND)
    assert copied.stream("ORDERS").publish([LINE]).appended.first_seq == 14
    shutil.rmtree(log_of(warehouse))
    shutil.copytree(backup, log_of(warehouse))
    overwrite(warehouse, newest(warehouse) + 1)
    for _ in range(3):
        assert warehouse.stream("ORDERS").repair_lost_commits().plan.commits == ()
        warehouse.stream("ORDERS").publish([LINE])


def test_few_tokens_are_kept_and_none_of_a_parquet_stream(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    for _ in range(commit_tokens.KEPT + 2):
        warehouse.stream("ORDERS").publish([LINE])
    commits = Path(warehouse.location, "streams/ORDERS/_retention/commits")
    assert len(list(commits.iterdir())) == commit_tokens.KEPT
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    other = warehouse_with(parquet, "parquet", START)
    other.new_stream("ORDERS").publish([LINE])
    assert not Path(other.location, "streams/ORDERS/_retention/commits").exists()
    assert commit_tokens.all_stand(Layout("s3://lake/streams/ORDERS", "ORDERS"))


def test_a_damaged_token_of_a_lost_commit_is_said(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    warehouse.stream("ORDERS").publish([LINE])
    lost = newest(warehouse)
    overwrite(warehouse, lost)
    token = Path(warehouse.location, f"streams/ORDERS/_retention/commits/{lost:020d}.json")
    token.write_bytes(token.read_bytes()[:-5] + b"\n{")
    with pytest.raises(LostCommitError):
        warehouse.stream("ORDERS").publish([LINE])
    with pytest.raises(DamagedError, match=f"delete {token}"):
        warehouse.stream("ORDERS").repair_lost_commits().apply()
    token.unlink()
    warehouse.stream("ORDERS").publish([LINE])


@pytest.mark.parametrize("looks", ["keep_token", "refuse_lost"])
def test_a_commit_stands_where_its_token_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, looks: str
) -> None:
    warehouse = laid(tmp_path)

    def failing(*_: object) -> None:
        raise StorageError("_retention/commits: Input/output error")

    def breaking(step: Step) -> None:
        if step == Step.DELTA_COMMITTED:
            monkeypatch.setattr(commit_tokens, looks, failing)

    with crash_points.watched_by(breaking):
        published = warehouse.stream("ORDERS").publish([LINE])
    monkeypatch.undo()
    assert published.appended.last_seq == 11
    assert "_retention/commits: Input/output error" in caplog.text
    assert stored(warehouse) == list(range(1, 12))
    assert warehouse.stream("ORDERS").state().messages == 11
