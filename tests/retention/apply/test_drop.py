"""`drop`: one swap removes everything, `undo` restores it, and a first write begins another table."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.consumers.state import ConsumerState
from retention.core.dropped import StreamDrop
from retention.datafile.parquet import write_messages
from retention.errors import BusyError, ConflictError, RefusedError, UsageError
from retention.history.report import RunReport
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import (
    SECOND,
    START,
    Laid,
    even_segments,
    forty,
    held,
    lay,
    rows_of,
    warehouse_with,
)
from tests.support.reclaiming import TICK_S, real_warehouse
from tests.support.topics import World, line

NOW = START + 100 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def store(request: pytest.FixtureRequest) -> str:
    format_: str = request.param
    return format_


def reopened(folder: Path, now_ns: int = NOW) -> Warehouse:
    return open_warehouse(folder / "retention.yaml", engine="local", clock=lambda: now_ns)


def dropped(folder: Path) -> RunReport:
    return reopened(folder).stream("ORDERS").drop().apply()


def publish(folder: Path, *data: str) -> list[int]:
    """Sequences of published messages."""
    lines = [json.dumps({"subject": "s.9", "data": text, "ts_ns": NOW}) for text in data]
    reopened(folder).stream("ORDERS").publish(lines)
    return [row["seq"] for row in held(reopened(folder)).to_pylist()]


def table_id(folder: Path) -> str:
    return reopened(folder).stream("ORDERS").opened.store.snapshot().table_id


def test_a_drop_is_a_recorded_run_after_which_the_stream_is_not_there(
    tmp_path: Path, store: str
) -> None:
    stream = forty(tmp_path, store, max_age="60s")
    plan = stream.drop()
    assert "40 messages" in repr(plan)
    report = plan.apply()
    assert (report.removed_messages, report.by_rule) == (40, {"drop": 40})
    again = reopened(tmp_path).stream("ORDERS")
    assert not again.opened.store.exists()
    state = again.state()
    assert state.dropped == StreamDrop(NOW, report.run)
    assert (state.messages, state.first_seq, state.last_seq) == (0, 1, 0)
    assert again.history()[0]["kind"] == "drop"
    says = f"`retention undo {report.run}` restores it"
    for shown in (again.plan(), again.plan().apply(), state):
        assert says in repr(shown)
    assert again.plan().as_json()["dropped"] == {"at_ns": NOW, "run": report.run}
    assert held_or_nothing(tmp_path) == []
    with pytest.raises(UsageError, match="was dropped already"):
        again.drop()


def held_or_nothing(folder: Path) -> list[Any]:
    return [row for table in reopened(folder).stream("ORDERS").messages() for row in table]


def test_undo_brings_back_all_of_it_with_its_id_and_its_sequences(
    tmp_path: Path, store: str
) -> None:
    forty(tmp_path, store)
    before, its_id = held(reopened(tmp_path)), table_id(tmp_path)
    report = dropped(tmp_path)
    shown = reopened(tmp_path).show_undo(report.run)
    assert shown["restored_messages"] == 40
    reopened(tmp_path).undo(report.run)
    assert held(reopened(tmp_path)) == before
    assert table_id(tmp_path) == its_id
    assert reopened(tmp_path).stream("ORDERS").state().dropped is None
    assert publish(tmp_path, "next")[-1] == 41
    with pytest.raises(UsageError, match="was undone already"):
        reopened(tmp_path).undo(report.run)
    # And again.
    assert dropped(tmp_path).removed_messages == 41


def test_a_first_write_begins_another_table_from_sequence_1(tmp_path: Path, store: str) -> None:
    forty(tmp_path, store)
    its_id = table_id(tmp_path)
    report = dropped(tmp_path)
    assert publish(tmp_path, "a", "b") == [1, 2]
    assert table_id(tmp_path) != its_id
    assert reopened(tmp_path).stream("ORDERS").state().dropped is None
    with pytest.raises(RefusedError, match="begun another table"):
        reopened(tmp_path).undo(report.run)
    second = dropped(tmp_path)
    assert second.removed_messages == 2
    reopened(tmp_path).undo(second.run)
    assert publish(tmp_path, "c") == [1, 2, 3]


def test_messages_that_are_all_refused_begin_no_table(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store)
    report = dropped(tmp_path)
    headers = {"Nats-Expected-Last-Sequence": "40"}
    late = json.dumps({"subject": "s.1", "data": "x", "headers": headers})
    with suppress(RefusedError):
        stream.publish([late])
    assert stream.state().dropped is not None
    reopened(tmp_path).undo(report.run)
    assert held(reopened(tmp_path)).num_rows == 40


def test_what_needs_the_messages_of_a_dropped_stream_is_refused(tmp_path: Path, store: str) -> None:
    listed = {"durable_name": "billing", "ack_policy": "explicit"}
    stream = forty(tmp_path, store, archive=str(tmp_path / "archive"), consumers=[listed])
    report = dropped(tmp_path)
    log = tmp_path / "acks.jsonl"
    log.write_text("")
    for act in (stream.restore, lambda: stream.consumers.fold(str(log))):
        with pytest.raises(RefusedError, match=f"undo {report.run}` restores it, or "):
            act()
    reopened(tmp_path).undo(report.run)


def test_runs_from_before_a_drop_cannot_be_undone_behind_it(tmp_path: Path, store: str) -> None:
    purge = forty(tmp_path, store).purge(keep=10).apply()
    drop = dropped(tmp_path)
    with pytest.raises(RefusedError, match=f"run {drop.run} dropped the stream"):
        reopened(tmp_path).undo(purge.run)
    publish(tmp_path, "a")
    with pytest.raises(RefusedError, match=f"run {drop.run} dropped the stream"):
        reopened(tmp_path).undo(purge.run)
    assert held(reopened(tmp_path)).num_rows == 1


def test_ids_batches_instants_and_policies_of_the_old_table_do_not_count(
    tmp_path: Path, store: str
) -> None:
    lines = [json.dumps({"subject": "s.1", "data": "x", "headers": {"Nats-Msg-Id": "one"}})]
    warehouse = warehouse_with(tmp_path, store, NOW, allow_msg_ttl=True)
    stream = warehouse.stream("ORDERS")
    stream.publish(lines, writer="w", batch=7)
    stream.plan(NOW).apply()
    dropped(tmp_path)
    warehouse_with(tmp_path, store, NOW, allow_msg_ttl=False)
    reopened(tmp_path).stream("ORDERS").publish(lines, writer="w", batch=1)
    assert held(reopened(tmp_path)).num_rows == 1
    [outcome] = reopened(tmp_path).apply(as_of=NOW - SECOND)
    assert outcome.error is None


def test_a_saved_plan_of_the_dropped_table_is_refused_behind_it(tmp_path: Path, store: str) -> None:
    plan = forty(tmp_path, store, max_age="60s").plan(NOW)
    dropped(tmp_path)
    publish(tmp_path, *"abcdefghij")
    with pytest.raises(Exception, match=r"plan again|was made"):
        plan.apply()
    assert held(reopened(tmp_path)).num_rows == 10


def test_an_append_that_a_drop_has_overtaken_does_not_write_into_it(
    tmp_path: Path, store: str
) -> None:
    opened = forty(tmp_path, store).opened
    dropped(tmp_path)
    snapshot = opened.store.snapshot()
    with pytest.raises(ConflictError, match="dropped meanwhile"):
        _append_past(opened, snapshot)


def _append_past(opened: Any, snapshot: Any) -> None:
    from retention.core.table_updates import SetNextSeq
    from retention.ports import Swap
    from retention.schemas.files import FILE_STATS, LOGGED_FILES

    nothing = (LOGGED_FILES.empty_table(), FILE_STATS.empty_table())
    opened.store.commit(Swap(*nothing, {"run": "late"}, updates=[SetNextSeq(0, 5)]), snapshot)


def test_reclaim_takes_the_files_when_grace_is_over(tmp_path: Path, store: str) -> None:
    lay(real_warehouse(tmp_path, store).stream("ORDERS").opened, even_segments(4, 10))
    warehouse = real_warehouse(tmp_path, store)
    report = warehouse.stream("ORDERS").drop().apply()
    time.sleep(TICK_S)
    [outcome] = warehouse.reclaim().apply()
    assert outcome.error is None, outcome.sentence
    assert outcome.value is not None
    assert outcome.value.total.files >= 4
    assert not list(tmp_path.rglob("partition=*/**/*.parquet"))
    with pytest.raises(RefusedError, match="no longer exists"):
        warehouse.undo(report.run)
    shown = repr(warehouse.stream("ORDERS").state())
    assert "dropped at" in shown
    assert "undo" not in shown
    warehouse.stream("ORDERS").publish([json.dumps({"subject": "s.9", "data": "a"})])
    assert [row["seq"] for row in held(warehouse).to_pylist()] == [1]


def test_a_gone_message_is_explained_by_the_drop(tmp_path: Path, store: str) -> None:
    forty(tmp_path, store)
    report = dropped(tmp_path)
    explained = reopened(tmp_path).stream("ORDERS").explain(5)
    assert f"of the table that run {report.run} dropped" in explained.sentence
    publish(tmp_path, "new")
    assert f"of the table that run {report.run} dropped" in explain(tmp_path, 5)
    assert "is kept" in explain(tmp_path, 1)


def explain(folder: Path, seq: int) -> str:
    return reopened(folder).stream("ORDERS").explain(seq).sentence


def consumers(folder: Path) -> list[tuple[str, int]]:
    """The name of each consumer, and the sequence up to which all messages are settled."""
    infos = reopened(folder).stream("ORDERS").consumers.list()
    return [(info.name, info.ack_floor["stream_seq"]) for info in infos]


def test_consumers_go_and_come_back_with_their_stream_and_are_not_in_the_next(
    tmp_path: Path, store: str
) -> None:
    billing = {"durable_name": "billing", "ack_policy": "explicit"}
    stream = forty(tmp_path, store)
    stream.consumers.add(billing)
    stream.consumers.add({"durable_name": "audit", "ack_policy": "explicit"})
    stand(stream.opened, "billing", progress(7, 7))
    before = consumers(tmp_path)
    assert before == [("audit", 0), ("billing", 7)]
    report = dropped(tmp_path)
    assert consumers(tmp_path) == []
    reopened(tmp_path).undo(report.run)
    assert consumers(tmp_path) == before
    late = reopened(tmp_path).stream("ORDERS").opened
    late_table = ConsumerTable(late.root, late.store.lifetime().generation)
    dropped(tmp_path)
    assert publish(tmp_path, "a") == [1]
    assert consumers(tmp_path) == []
    stream.consumers.add(billing)
    assert consumers(tmp_path) == [("billing", 0)]
    with pytest.raises(BusyError, match="dropped meanwhile"):
        late_table.update(
            "billing", lambda record: record or ConsumerRecord("billing", {}, ConsumerState())
        )
    assert consumers(tmp_path) == [("billing", 0)]
    stream.consumers.remove("billing")
    assert consumers(tmp_path) == []


def test_a_consumer_may_begin_the_next_table(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store)
    report = dropped(tmp_path)
    stream.consumers.add({"durable_name": "billing", "ack_policy": "explicit"})
    assert consumers(tmp_path) == [("billing", 0)]
    with pytest.raises(RefusedError, match="begun another table"):
        reopened(tmp_path).undo(report.run)


def test_a_stream_that_consumers_release_is_dropped_and_brought_back(
    tmp_path: Path, store: str
) -> None:
    listed = {"durable_name": "billing", "ack_policy": "explicit"}
    stream = forty(tmp_path, store, retention="interest", consumers=[listed])
    stream.plan(NOW).apply()
    stand(stream.opened, "billing", progress(9, 9))
    report = dropped(tmp_path)
    assert stream.plan(NOW).apply().removed_messages == 0
    reopened(tmp_path).undo(report.run)
    assert consumers(tmp_path) == [("billing", 9)]
    [outcome] = reopened(tmp_path).apply(as_of=NOW)
    assert outcome.value is not None
    assert outcome.value.by_rule == {"interest": 9}


def test_a_topic_is_dropped_and_begins_anew(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.topic.publish([line("a", partition=0), line("b", partition=1)])
    world.topic.store_offset(0, "group", 1, 0)
    run = world.topic.drop().apply().run
    assert world.topic.state().dropped == StreamDrop(world.clock.now_ns, run)
    world.configure(segment_size="2MiB")
    world.topic.publish([line("c", partition=0)])
    assert world.topic.offsets() == []
    assert world.places() == [(0, 0, 0, b"c")]
    again = world.topic.drop().apply()
    world.warehouse.undo(again.run)
    assert world.places() == [(0, 0, 0, b"c")]


def test_nothing_that_was_never_written_is_dropped(tmp_path: Path, store: str) -> None:
    stream = warehouse_with(tmp_path, store, NOW).stream("ORDERS")
    with pytest.raises(UsageError, match="nothing to drop"):
        stream.drop()


def test_rows_of_another_writer_in_a_dropped_table_are_there(tmp_path: Path) -> None:
    opened = forty(tmp_path, "parquet").opened
    report = dropped(tmp_path)
    theirs = Path(opened.root, "messages/partition=0/segment=1/theirs.parquet")
    theirs.parent.mkdir(parents=True, exist_ok=True)
    write_messages(str(theirs), [rows_of([Laid(seq) for seq in (1, 2, 3)])])
    stream = reopened(tmp_path).stream("ORDERS")
    assert (stream.state().messages, stream.state().dropped) == (3, None)
    assert publish(tmp_path, "a") == [1, 2, 3, 4]
    with pytest.raises(RefusedError):
        reopened(tmp_path).undo(report.run)
    assert held(reopened(tmp_path)).num_rows == 4
