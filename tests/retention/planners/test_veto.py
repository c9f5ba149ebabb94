"""A made-up veto on every kind of plan: it keeps its messages, and changes the fate of no other one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.context.context import OpenedStream
from retention.context.position import locate
from retention.core import headers
from retention.core.spans import Array, Spans
from retention.engines.select import Engines
from retention.errors import RefusedError
from retention.plan.plan import Plan
from retention.planners.probe import StoredRows
from retention.planners.requests import RequestTable, plan_removal, plan_request
from retention.planners.retention import plan
from retention.planners.table import gather
from retention.planners.topic import plan_topic_table
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.requests import Delete, Drop, Purge, Request, Rollup
from retention.rules.veto import Veto
from tests.retention.planners.test_delete_segments import opened_at
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with
from tests.support.topic_crashes import NAME

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
DELETION = headers.build([(headers.KV_OPERATION, "DEL")])


@dataclass(frozen=True)
class KeepRange:
    """A veto on a range of sequences of one partition, both ends inclusive."""

    first: int
    last: int
    partition: int = 0
    columns: ClassVar[tuple[str, ...]] = ()

    def whole(self, spans: Spans) -> Array:
        inside = (spans.min_seq >= self.first) & (spans.max_seq <= self.last)
        return inside & (spans.partition == self.partition)

    def some(self, spans: Spans) -> Array:
        meets = (spans.max_seq >= self.first) & (spans.min_seq <= self.last)
        return meets & (spans.partition == self.partition)

    def covers(self, rows: pa.Table) -> Array:
        seqs = rows["seq"].to_numpy()
        return ((seqs >= self.first) & (seqs <= self.last))[None, :]

    def within(self, spans: Spans, span: int) -> KeepRange:
        return self if spans.partition[span] == self.partition else KeepRange(0, -1)


Vetoes = Sequence[Veto]
Planner = Callable[[OpenedStream, Vetoes], Plan]


def a_pass(opened: OpenedStream, vetoes: Vetoes) -> Plan:
    with Engines("local") as engines:
        context = gather(opened, opened.store.inventory(opened.store.snapshot()), AS_OF)
        return plan(replace(context, vetoes=tuple(vetoes)), StoredRows(opened, engines)).plan


def a_request(request: Request) -> Planner:
    def planned(opened: OpenedStream, vetoes: Vetoes) -> Plan:
        with Engines("local") as engines:
            return plan_removal(opened, request, engines, vetoes).plan

    return planned


def a_roll_up(request: Rollup) -> Planner:
    def planned(opened: OpenedStream, vetoes: Vetoes) -> Plan:
        with Engines("local") as engines:
            at, rows = locate(opened), StoredRows(opened, engines)
            table = RequestTable(opened, at.snapshot, at.inventory, rows, AS_OF)
            return plan_request(table, request, vetoes)

    return planned


def forty() -> list[File]:
    """Four files of ten messages on s.0, s.1 and s.2 in turn; 38, on s.2, is a deletion, and 7 never expires."""
    messages = [
        Laid(
            seq,
            f"s.{seq % 3}",
            START + seq * SECOND,
            never=seq == 7,
            headers=DELETION if seq == 38 else None,
        )
        for seq in range(1, 41)
    ]
    return [File(at + 1, messages[at : at + 10]) for at in range(0, 40, 10)]


STREAMS: dict[str, tuple[dict[str, Any], Planner]] = {
    "head trim": ({"max_msgs": 12}, a_pass),
    "two rules in a span": ({"max_msgs": 25, "max_bytes": 20 * 33}, a_pass),
    "limit per subject": ({"max_msgs_per_subject": 3}, a_pass),
    "age": ({"max_age": "45s"}, a_pass),
    "age of each": ({"max_age": "45s", "expiry": "each"}, a_pass),
    "age and head trim": ({"max_age": "40s", "max_msgs": 30}, a_pass),
    "subjects": ({"max_subjects": 1}, a_pass),
    "deletions": ({"delete_retention": "1s"}, a_pass),
    "consumers' release": ({"retention": "interest"}, a_pass),
    "release and limits": ({"retention": "interest", "max_msgs": 5}, a_pass),
    "protected consumers": (
        {
            "max_msgs": 5,
            "hold_for_consumers": {"consumers": ["audit"], "max_bytes": 10 * 33},
        },
        a_pass,
    ),
    "markers": (
        {"max_age": "10s", "allow_msg_ttl": True, "subject_delete_marker_ttl": "1h"},
        a_pass,
    ),
    "purge": ({}, a_request(Purge())),
    "purge of a subject": ({}, a_request(Purge("s.1"))),
    "purge below a sequence": ({}, a_request(Purge(seq=25))),
    "purge but the newest": ({}, a_request(Purge(keep=7))),
    "purge of a subject but the newest": ({}, a_request(Purge("s.*", keep=7))),
    "delete": ({}, a_request(Delete((3, 14, 15, 16, 40)))),
    "purge of deletions": ({}, a_request(PurgeDeletes(0))),
    "roll-up of subjects": ({}, a_roll_up(Rollup(("s.0", "s.2")))),
    "roll-up of everything": ({}, a_roll_up(Rollup(everything=True))),
}
RANGES = pytest.mark.parametrize(
    "kept", [(15, 15), (11, 20), (5, 27), (1, 40)], ids=lambda ends: "{}-{}".format(*ends)
)


def stream(folder: Path, settings: dict[str, Any]) -> OpenedStream:
    opened = warehouse_with(folder, "parquet", NOW, **settings).stream("ORDERS").opened
    lay(opened, forty())
    if "retention" in settings:
        stand(opened, "billing", progress(28, 28))
    return opened


def removed(opened: OpenedStream, made: Plan) -> set[tuple[int, int]]:
    """Partition and sequence of every message that a plan removes, compared with its own counts."""
    gone: set[tuple[int, int]] = set()
    parts = made.actions.removed.table.to_pylist()
    for number, file in enumerate(opened.store.data_files(made.actions.files)):
        [seqs] = pq.read_table(file.location, columns=["seq"], partitioning=None).columns
        own = {
            seq
            for seq in seqs.to_pylist()
            if made.actions.files["action"][number].as_py() == "drop"
            or any(
                part["first_seq"] <= seq <= part["last_seq"]
                for part in parts
                if part["file"] == number
            )
        }
        assert len(own) == made.actions.files["removed_messages"][number].as_py()
        gone |= {(file.partition, seq) for seq in own}
    assert sum(made.by_rule.values()) == made.removed_messages == len(gone)
    return gone


@RANGES
@pytest.mark.parametrize("kind", STREAMS)
def test_a_veto_keeps_its_messages_and_changes_nothing_else(
    kind: str, kept: tuple[int, int], tmp_path: Path
) -> None:
    settings, planner = STREAMS[kind]
    opened = stream(tmp_path, settings)
    free = removed(opened, planner(opened, ()))
    assert free
    made = planner(opened, [KeepRange(*kept)])
    assert removed(opened, made) == {
        (part, seq) for part, seq in free if not kept[0] <= seq <= kept[1]
    }


@RANGES
def test_no_marker_announces_a_subject_of_which_a_veto_keeps_a_message(
    kept: tuple[int, int], tmp_path: Path
) -> None:
    for number, room in enumerate(({}, {"max_msgs": 40}, {"max_bytes": 40 * 33})):
        opened = stream(tmp_path / str(number), STREAMS["markers"][0] | room)
        every = set(a_pass(opened, ()).actions.markers["subject"].to_pylist())
        made = a_pass(opened, [KeepRange(*kept)])
        names = {f"s.{seq % 3}" for seq in range(kept[0], kept[1] + 1)}
        assert set(made.actions.markers["subject"].to_pylist()) == every - names


def test_whole_segments_are_kept_for_any_of_their_messages(tmp_path: Path) -> None:
    opened = stream(tmp_path, {"max_msgs": 5, "whole_segments": True})
    assert removed(opened, a_pass(opened, ())) == {(0, seq) for seq in range(1, 31)}
    made = a_pass(opened, [KeepRange(15, 15)])
    assert removed(opened, made) == {(0, seq) for seq in (*range(1, 11), *range(21, 31))}


def test_a_stream_with_kept_messages_is_purged_and_not_dropped(tmp_path: Path) -> None:
    opened = stream(tmp_path, {})
    assert len(removed(opened, a_request(Drop())(opened, ()))) == 40
    with pytest.raises(RefusedError, match="2 messages must be kept, so it cannot be dropped"):
        a_request(Drop())(opened, [KeepRange(15, 16)])
    assert len(removed(opened, a_request(Purge())(opened, [KeepRange(15, 16)]))) == 38


def a_topic_pass(opened: OpenedStream, vetoes: Vetoes) -> Plan:
    assert opened.config.topic is not None
    return plan_topic_table(opened, opened.config.topic.policy(), NOW, vetoes=vetoes).plan


@pytest.mark.parametrize(
    "planner", [a_topic_pass, a_request(DeleteSegments(0, 9)), a_request(Purge())]
)
def test_a_segment_of_a_topic_is_kept_for_any_of_its_messages(
    planner: Planner, tmp_path: Path
) -> None:
    settings = {"message_expiry": "1s", "respect_consumer_offsets": False}
    opened = opened_at(tmp_path, "parquet", **settings).topic(NAME).opened
    free = removed(opened, planner(opened, ()))
    assert {(0, 0), (0, 12)} <= free
    made = planner(opened, [KeepRange(12, 12)])
    assert removed(opened, made) == {
        (part, seq) for part, seq in free if part or not 10 <= seq < 20
    }
    assert not made.header.begins_epoch
