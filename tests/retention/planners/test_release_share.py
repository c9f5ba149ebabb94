"""With `release_share`, released messages are hidden at once, and files are rewritten later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.apply.guards import Guards
from retention.apply.run import apply_now, apply_plan, remove_now
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import DamagedError, StalePlanError, UsageError
from retention.history import runs
from retention.ingest.publish import publish
from retention.inspect.latest import latest_of
from retention.inspect.messages import Selection, read_messages
from retention.inspect.state import state_of
from retention.plan.planfile import load_plans, save_plans
from retention.planners.cached import plan_stream
from retention.planners.explain import explain
from retention.rules.requests import Delete, Purge
from retention.stores import tombstone_files
from tests.retention.planners.test_interest import progress, stand
from tests.support.laws import law_on_disk
from tests.support.laying import SECOND, START, even_segments, laid_stream, lay, warehouse_with

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
Make = Callable[..., OpenedStream]


@pytest.fixture(params=[("delta", "held"), ("parquet", "held"), ("parquet", "many")], ids="-".join)
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn."""
    format_, ranges = request.param
    if ranges == "many":
        # Force all hidden ranges out of memory.
        monkeypatch.setattr(tombstone_files, "MOST_HELD", 0)

    def made(**settings: Any) -> OpenedStream:
        wanted = {"retention": "interest", "release_share": "50%"} | settings
        return laid_stream(tmp_path, format_, NOW, 4, **wanted)

    return made


def seqs(opened: OpenedStream) -> list[int]:
    return [seq for rows in read_messages(opened, Selection()) for seq in rows["seq"].to_pylist()]


def history_of(opened: OpenedStream) -> list[dict[str, Any]]:
    """The outcomes of a stream's runs, newest first."""
    return [
        record.as_json() for record in runs.history_of(opened.warehouse, opened.name).outcomes()
    ]


def paths(opened: OpenedStream) -> set[str]:
    return set(opened.store.snapshot().files["path"].to_pylist())


def run(opened: OpenedStream, as_of_ns: int = AS_OF) -> Any:
    return apply_now(opened, as_of_ns, LOCAL, Guards())


def test_what_is_released_is_gone_before_its_file_is_rewritten(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(13, 13))
    before = paths(opened)
    report = run(opened)
    assert report.by_rule == {"interest": 13}
    assert report.bytes_written == 0
    assert report.segments == {"dropped": 1, "rewritten": 0, "kept": 3}
    assert len(before - paths(opened)) == 1
    assert paths(opened) < before
    again = make()
    for one in (opened, again):
        assert seqs(one) == list(range(14, 41))
        state = state_of(one, AS_OF)
        assert (state.messages, state.first_seq, state.num_subjects) == (27, 14, 3)
        assert pa.concat_tables(latest_of(one).batches())["seq"].to_pylist() == [38, 39, 40]
        with pytest.raises(UsageError, match="13"):
            explain(one, 13, AS_OF, LOCAL)
        assert explain(one, 14, AS_OF, LOCAL).as_json()["seq"] == 14
    assert plan_stream(again, AS_OF, LOCAL).is_empty


def test_a_segment_is_rewritten_once_so_much_of_it_is_released(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(3, 3))
    assert run(opened).bytes_written == 0
    stand(opened, "billing", progress(4, 4))
    assert run(opened).by_rule == {"interest": 1}
    before = paths(opened)
    stand(opened, "billing", progress(5, 5))
    report = run(opened)
    assert report.by_rule == {"interest": 1}
    assert report.bytes_written > 0
    assert len(before - paths(opened)) == 1
    assert seqs(opened) == list(range(6, 41))
    files = opened.store.inventory(opened.store.snapshot())
    assert files.hidden_bytes == {}
    assert opened.store.released(files.counters.released).files.num_rows == 0


def test_limits_judge_what_is_left_and_rewrite_what_they_take_a_part_of(make: Make) -> None:
    opened = make(max_msgs=30, release_share="100%")
    stand(opened, "billing", progress(4, 4))
    assert run(opened).by_rule == {"interest": 4, "max_msgs": 6}
    stand(opened, "billing", progress(13, 13))
    assert run(opened).by_rule == {"interest": 3}
    assert seqs(opened) == list(range(14, 41))
    opened = make(max_msgs=25, release_share="100%")
    report = run(opened)
    assert report.by_rule == {"max_msgs": 2}
    assert report.bytes_written > 0
    assert seqs(opened) == list(range(16, 41))


def test_subjects_are_counted_without_what_is_released(make: Make) -> None:
    opened = make(max_msgs_per_subject=2, release_share="100%")
    stand(opened, "billing", progress(0, 40, 31, 32, 33))
    stand(opened, "first", progress(0, 0), "none.such")
    assert run(opened).by_rule == {"interest": 37}
    opened = make(max_msgs_per_subject=1, release_share="100%")
    assert plan_stream(opened, AS_OF, LOCAL).is_empty
    assert seqs(opened) == [31, 32, 33]


def test_what_people_remove_is_counted_without_what_is_released(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(4, 4))
    run(opened)
    with pytest.raises(UsageError, match="3"):
        remove_now(opened, Delete((3,)), LOCAL)
    assert remove_now(opened, Delete((7,)), LOCAL).removed_messages == 1
    assert seqs(opened) == [5, 6, *range(8, 41)]
    assert opened.store.inventory(opened.store.snapshot()).hidden_bytes == {}
    assert remove_now(opened, Purge(keep=10), LOCAL).removed_messages == 25
    assert seqs(opened) == list(range(31, 41))


def test_a_run_that_hid_is_undone_exactly(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(2, 2))
    first = run(opened)
    stand(opened, "billing", progress(13, 13))
    second = run(opened)
    assert second.by_rule == {"interest": 11}
    undo_run(opened, second.run)
    assert seqs(opened) == list(range(3, 41))
    undo_run(make(), first.run)
    assert seqs(opened) == list(range(1, 41))
    assert state_of(opened, AS_OF).messages == 40
    assert run(opened).by_rule == {"interest": 13}
    assert seqs(opened) == list(range(14, 41))


@pytest.mark.parametrize("newest_first", [True, False])
def test_two_runs_that_hid_in_one_file_are_undone_in_any_order(
    make: Make, *, newest_first: bool
) -> None:
    opened = make()
    stand(opened, "billing", progress(2, 2))
    first = run(opened)
    stand(opened, "billing", progress(4, 4))
    second = run(opened)
    for hid in (second, first) if newest_first else (first, second):
        undo_run(opened, hid.run)
        assert len(seqs(opened)) == (38 if hid == (second if newest_first else first) else 40)
    assert seqs(make()) == list(range(1, 41))
    assert state_of(make(), AS_OF).messages == 40


def test_undoing_a_rewrite_brings_back_what_was_hidden_before_it(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(4, 4))
    hid = run(opened)
    stand(opened, "billing", progress(6, 6))
    rewrote = run(opened)
    assert rewrote.bytes_written > 0
    undo_run(opened, rewrote.run)
    assert seqs(opened) == list(range(5, 41))
    assert state_of(make(), AS_OF).messages == 36
    undo_run(opened, hid.run)
    assert seqs(opened) == list(range(1, 41))
    assert state_of(make(), AS_OF).messages == 40


def test_undoing_one_run_keeps_what_another_hid_elsewhere(make: Make) -> None:
    opened = make(release_share="90%")
    stand(opened, "one", progress(0, 40, *range(3, 41)))
    first = run(opened)
    stand(opened, "one", progress(0, 40, *(seq for seq in range(3, 41) if seq != 25)))
    assert run(opened).by_rule == {"interest": 1}
    undo_run(opened, first.run)
    assert seqs(opened) == [*range(1, 25), *range(26, 41)]


def test_a_roll_up_of_a_file_with_something_hidden_is_undone_exactly(make: Make) -> None:
    opened = make(allow_rollup_hdrs=True)
    stand(opened, "billing", progress(4, 4))
    hid = run(opened)
    asking = {"subject": "s.0", "data": "x", "headers": {"Nats-Rollup": "sub"}}
    publish(opened, [json.dumps(asking).encode()])
    assert seqs(opened) == [seq for seq in range(5, 42) if seq % 3 or seq > 40]
    stand(opened, "billing", progress(0, 41, *(seq for seq in range(5, 41) if seq != 32)))
    assert run(opened).by_rule == {"interest": 2}
    [rolled] = [one for one in history_of(opened) if one["kind"] == "rollup"]
    undo_run(opened, history_of(opened)[0]["run"])
    undo_run(opened, rolled["run"])
    assert seqs(make()) == list(range(5, 42))
    undo_run(opened, hid.run)
    assert seqs(make()) == list(range(1, 42))


def test_a_saved_plan_is_stale_once_another_run_has_hidden_something(
    make: Make, tmp_path: Path
) -> None:
    opened = make()
    stand(opened, "billing", progress(3, 3))
    save_plans(str(tmp_path / "plan.json"), [plan_stream(opened, AS_OF, LOCAL)])
    [plan] = load_plans(str(tmp_path / "plan.json"))
    run(opened)
    with pytest.raises(StalePlanError, match="recorded since what is released"):
        apply_plan(opened, plan, LOCAL, Guards())
    assert seqs(opened) == list(range(4, 41))


def test_a_saved_plan_hides_what_it_says(make: Make, tmp_path: Path) -> None:
    opened = make()
    stand(opened, "billing", progress(3, 3))
    run(opened)
    stand(opened, "billing", progress(4, 4))
    save_plans(str(tmp_path / "plan.json"), [plan_stream(opened, AS_OF, LOCAL)])
    [plan] = load_plans(str(tmp_path / "plan.json"))
    assert plan.files["action"].to_pylist() == ["tombstone"]
    assert apply_plan(opened, plan, LOCAL, Guards()).by_rule == {"interest": 1}
    assert seqs(opened) == list(range(5, 41))


def test_a_record_that_is_gone_is_named_and_nothing_is_read(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(3, 3))
    run(opened)
    [record] = (Path(opened.root) / "_retention" / "released").iterdir()
    record.write_bytes(b"PAR1")
    with pytest.raises(DamagedError, match=f"{record.name}.*what is released"):
        seqs(make())


def test_a_stream_that_goes_back_to_limits_hides_what_was_released(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(3, 3))
    run(opened)
    opened = make(retention="limits", release_share=0, max_msgs=38)
    assert plan_stream(opened, AS_OF, LOCAL).is_empty
    opened = make(retention="limits", release_share=0, max_msgs=36)
    assert run(opened).by_rule == {"max_msgs": 1}
    assert seqs(opened) == list(range(5, 41))


FLOORS = st.lists(
    st.tuples(st.integers(0, 40), st.sets(st.integers(1, 40), max_size=6)), min_size=1, max_size=4
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_msgs": st.integers(1, 40),
        "max_msgs_per_subject": st.integers(1, 12),
        "max_age": st.sampled_from(["40s", "60s"]),
        "layout": st.just("deadline"),
    },
)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(floors=FLOORS, limits=LIMITS, share=st.integers(1, 100))
def test_readers_see_the_same_with_and_without_a_share(
    tmp_path_factory: pytest.TempPathFactory,
    format_: str,
    floors: list[tuple[int, set[int]]],
    limits: dict[str, Any],
    share: int,
) -> None:
    """For any settled messages, only the time of rewrites differs, and an undo restores the same messages."""
    folder = tmp_path_factory.mktemp("share")
    kinds: list[dict[str, Any]] = [{"release_share": share}, {}]
    with_share, without = (
        warehouse_with(folder / f"{len(one)}", format_, NOW, retention="interest", **limits, **one)
        .stream("ORDERS")
        .opened
        for one in kinds
    )
    for opened in (with_share, without):
        lay(opened, even_segments(4, 10))
    floor, needed = 0, set(range(1, 41))
    for up_to, settled in floors:
        floor = max(floor, up_to)
        needed = {seq for seq in needed if seq > up_to} - settled
        reports = []
        for opened in (with_share, without):
            stand(opened, "one", progress(0, 40, *sorted(needed)))
            reports.append(run(opened))
        assert reports[0].by_rule == reports[1].by_rule
        assert reports[0].removed_bytes == reports[1].removed_bytes
        assert seqs(with_share) == seqs(without)
        assert set(seqs(with_share)) <= needed
        shown = [state_of(opened, AS_OF) for opened in (with_share, without)]
        assert len({(one.messages, one.bytes, one.num_subjects) for one in shown}) == 1
    if reports[0].removed_messages:
        for opened, report in zip((with_share, without), reports, strict=True):
            undo_run(opened, report.run)
        assert seqs(with_share) == seqs(without)
