"""A run's record of removed ranges names exactly the removed messages and their rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.apply import undo_records
from retention.apply.guards import Guards
from retention.apply.requested import remove_now
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.context.run_files import undo_location
from retention.engines.select import Engines
from retention.errors import DamagedError, RefusedError
from retention.history.runs import history_of
from retention.ingest.publish import publish
from retention.inspect.messages import Selection, read_messages
from retention.plan.planfile import load_plans, save_plans
from retention.planners.shown import plan_stream
from retention.rules.requests import Delete
from retention.schemas.runs import RUN_RANGES
from retention.storage import files
from retention.storage.checksum import with_checksum
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, laid_stream
from tests.support.run_records import run_record

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn, a second apart."""
    return partial(laid_stream, tmp_path, request.param, NOW, segments=4)


def read_ranges(opened: OpenedStream, run: str) -> pa.Table:
    tables = undo_records.read_ranges(opened, run).tables()
    return pa.concat_tables([RUN_RANGES.empty_table(), *tables])


def seqs(opened: OpenedStream) -> set[int]:
    return {seq for rows in read_messages(opened, Selection()) for seq in rows["seq"].to_pylist()}


def taken(opened: OpenedStream, run: str, before: set[int]) -> dict[int, list[str]]:
    """Sequence → the rules that may have removed it, by a run's record, for the messages stored before."""
    gone: dict[int, list[str]] = {}
    for row in read_ranges(opened, run).to_pylist():
        inside = set(range(row["first_seq"], row["last_seq"] + 1)) & before
        for first, last in zip(row["except_firsts"], row["except_lasts"], strict=True):
            inside -= set(range(first, last + 1))
        assert len(inside) == row["messages"]
        assert not gone.keys() & inside
        gone |= dict.fromkeys(inside, row["rules"])
    return gone


def passed(opened: OpenedStream, as_of_ns: int = AS_OF) -> str:
    return apply_now(opened, as_of_ns, LOCAL, Guards()).run


CASES: dict[str, dict[str, Any]] = {
    "segments go whole and a file is rewritten": {"max_age": "60s"},
    "several rules share files": {"max_msgs": 33, "max_bytes": 900, "max_msgs_per_subject": 8},
    "rows alone decide": {"max_msgs_per_subject": 2},
    "released rows are rewritten": {"retention": "interest"},
    "limits follow what is released": {"retention": "interest", "max_msgs": 20},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=list(CASES))
def test_a_pass_records_what_is_gone(make: Make, settings: dict[str, Any]) -> None:
    opened = make(**settings)
    if "retention" in settings:
        stand(opened, "billing", progress(13, 13))
    before = seqs(opened)
    report = apply_now(opened, AS_OF, LOCAL, Guards())
    gone = taken(opened, report.run, before)
    assert set(gone) == before - seqs(opened) != set()
    counted: Counter[str] = Counter()
    for row in read_ranges(opened, report.run).to_pylist():
        counted.update(dict(zip(row["rules"], row["counts"], strict=True)))
    assert counted == report.by_rule
    shared = {seq for seq, rules in gone.items() if len(rules) > 1}
    assert shared <= (set(range(1, 11)) if "max_bytes" in settings else set())


def test_a_saved_plan_records_the_same(make: Make, tmp_path: Path) -> None:
    opened = make(max_msgs=33, max_bytes=900, max_msgs_per_subject=8)
    before = seqs(opened)
    save_plans(str(tmp_path / "plan.json"), [plan_stream(opened, AS_OF, LOCAL)])
    [plan] = load_plans(str(tmp_path / "plan.json"))
    run = apply_plan(opened, plan, LOCAL, Guards()).run
    assert set(taken(opened, run, before)) == before - seqs(opened)


def test_requests_and_roll_ups_record_what_they_take(make: Make) -> None:
    opened = make(allow_rollup_hdrs=True)
    before = seqs(opened)
    deleted = remove_now(opened, Delete((3, 17)), LOCAL).run
    assert taken(opened, deleted, before) == {3: ["delete"], 17: ["delete"]}
    before -= {3, 17}
    message = {"subject": "s.1", "data": "now", "headers": {"Nats-Rollup": "sub"}}
    publish(opened, [json.dumps(message)])
    rolled = history_of(opened.warehouse, opened.name)
    [run] = [record.run for record in rolled.outcomes() if record.kind == "rollup"]
    gone = taken(opened, run, before)
    assert set(gone) == before - seqs(opened)
    assert all(rules == ["rollup"] for rules in gone.values())


def test_undoing_takes_no_message(make: Make) -> None:
    opened = make(max_age="60s")
    undone = undo_run(opened, passed(opened))
    assert read_ranges(opened, undone.run).num_rows == 0


def test_undoing_takes_the_markers_that_a_run_wrote(make: Make) -> None:
    opened = make(max_age="60s", allow_msg_ttl=True, subject_delete_marker_ttl="1h")
    run = passed(opened, START + 110 * SECOND - 11 * SECOND)
    before = seqs(opened)
    markers = {seq for seq in before if seq > 40}
    assert markers
    undone = undo_run(opened, run)
    assert set(taken(opened, undone.run, before)) == markers == before - seqs(opened)


def test_an_old_run_is_known_by_its_record(make: Make) -> None:
    opened = make(max_age="60s")
    run = passed(opened)
    files.delete([undo_location(opened, run, "ranges")])
    with pytest.raises(RefusedError, match="no longer exists; restore it"):
        read_ranges(opened, run)
    history = history_of(opened.warehouse, opened.name)
    begun = history.begun(run)
    assert begun is not None
    old = {name: value for name, value in begun.as_json().items() if name != "who"}
    place = history.begun_location(run)
    files.replace(place, json.dumps(with_checksum(old)).encode())
    with pytest.raises(
        RefusedError,
        match="or an earlier version of this program, which recorded only whole files, made it",
    ):
        read_ranges(opened, run)


def test_a_damaged_record_is_named(make: Make) -> None:
    opened = make(max_age="60s")
    run = passed(opened)
    place = undo_location(opened, run, "ranges")
    content = bytearray(files.read_bytes(place) or b"")
    content[len(content) // 2] ^= 1
    files.replace(place, bytes(content))
    with pytest.raises(DamagedError, match=r"ranges\.arrow.*is damaged"):
        read_ranges(opened, run)


@pytest.mark.parametrize("who", [{"user": "night", "pid": 7}, None])
def test_a_run_that_another_settles_is_still_of_who_began_it(make: Make, who: object) -> None:
    opened = make(max_age="60s")
    history = history_of(opened.warehouse, opened.name)
    killed = history.name_run(NOW)
    history.begin(run_record(killed, as_of_ns=AS_OF, removed_messages=3, who=who))
    passed(opened)
    settled = history.done(killed)
    assert settled is not None
    assert (settled.status, settled.who) == ("abandoned", who)
