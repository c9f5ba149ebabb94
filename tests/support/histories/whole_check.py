"""Full check of a warehouse against the model: every message, every number, every run, every file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from retention.doctor.streams import check_stream
from retention.errors import MissingMessageError, RetentionError
from tests.support.histories.actors import Actors, done
from tests.support.histories.erase_acts import search_erased
from tests.support.histories.neighbour_acts import check_neighbour
from tests.support.histories.stored import SECOND, Stored
from tests.support.histories.stream_model import UNSURE, Run
from tests.support.histories.terms import NAME

LONGEST_GRACE_NS = 600 * SECOND
_TOLD = 1
"""The number of messages to explain in a check, of the live and of the removed ones."""
_TRIED = 2
"""The number of runs checked for undo, of those that can and of those that cannot be undone."""


def check_whole(actors: Actors, *, ends: bool = False) -> None:
    """Compare all answers of a warehouse with the model.

    Args:
        actors: the warehouse and the model.
        ends: whether the history is over; then time passes, and all dead files must be deleted.
    """
    if not actors.has_table:
        assert not actors.model.live
        return
    rng = Random(actors.clock() + len(actors.model.runs))
    _check_messages(actors)
    _check_stranger(actors)
    _check_state(actors)
    _check_runs(actors, rng)
    _check_doctor(actors)
    _check_verified(actors)
    _check_answers(actors, rng)
    _check_due(actors)
    _check_held(actors)
    search_erased(actors)
    check_neighbour(actors)
    if ends:
        _check_end(actors)


def _check_messages(actors: Actors) -> None:
    model = actors.model
    rows = [row for table in actors.stream.messages() for row in table.to_pylist()]
    expected = [message.row() for message in model.messages]
    found = [{name: row[name] for name in Stored.COLUMNS} for row in rows]
    assert found == expected, _difference(found, expected)
    segments = [row["segment"] for row in rows]
    assert segments == sorted(segments), "segments are stretches of sequences"
    assert all(row["segment"] <= row["seq"] for row in rows)
    assert all(row["partition"] == 0 for row in rows)
    if model.policy.whole_segments:
        assert segments == [model.bases[message.seq] for message in model.messages]


def _difference(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    here, there = ({row["seq"]: row for row in rows} for rows in (found, expected))
    differing = [
        (here[seq], there[seq]) for seq in here.keys() & there.keys() if here[seq] != there[seq]
    ]
    return (
        f"too many {sorted(here.keys() - there.keys())}, missing {sorted(there.keys() - here.keys())}, "
        f"twice {len(found) - len(here)}, differing {differing[:2]}"
    )


def _check_stranger(actors: Actors) -> None:
    """Check the view of a foreign reader: every message once."""
    model, place = actors.model, Path(actors.stream.opened.root, "messages")
    if actors.terms["format"] == "delta":
        table = DeltaTable(str(place))
        listed = table.file_uris()
        assert all(Path(location).is_file() for location in listed), "a file is missing"
        seen = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        high = table.transaction_version("removed/0")
    else:
        partitioning = ds.partitioning(
            pa.schema([("partition", pa.int32()), ("segment", pa.int64())]), flavor="hive"
        )
        seen = ds.dataset(place, partitioning=partitioning).to_table()
        high = _logged_removed(Path(actors.stream.opened.root))
    assert (high or 0) == model.removed_seq, (high, model.removed_seq)
    rows = seen.to_pylist() if seen.num_rows else []
    numbers = [row["seq"] for row in rows]
    assert len(numbers) == len(set(numbers)), "a sequence stands twice"
    visible = sorted(rows, key=lambda row: row["seq"])
    found = [{name: row[name] for name in Stored.COLUMNS} for row in visible]
    expected = [message.row() for message in model.messages]
    assert found == expected, _difference(found, expected)
    times = [_micros(row["time"]) for row in visible]
    assert times == [message.ts_ns // 1000 for message in model.messages]


def _micros(time: Any) -> int:
    seconds = int(time.replace(microsecond=0).timestamp())
    return seconds * 1_000_000 + int(time.microsecond)


def _logged_removed(root: Path) -> int | None:
    for entry in sorted((root / "_retention" / "log").glob("*.json"), reverse=True):
        found = json.loads(entry.read_bytes())
        removed = found.get("metadata", {}).get("removed")
        if removed is not None:
            return int(removed["0"])
    return None


def _check_state(actors: Actors) -> None:
    model, state = actors.model, actors.stream.state()
    messages = model.messages
    expected = {
        "messages": len(messages),
        "bytes": model.bytes,
        "first_seq": messages[0].seq if messages else model.next_seq,
        "last_seq": model.next_seq - 1,
        "first_ts_ns": messages[0].ts_ns if messages else None,
        "last_ts_ns": messages[-1].ts_ns if messages else None,
        "num_subjects": len({message.subject for message in messages}),
        "removed_seq": model.removed_seq or None,
    }
    assert {name: getattr(state, name) for name in expected} == expected


def _check_runs(actors: Actors, rng: Random) -> None:
    """Check that the history names every run with removals, with its numbers, and the runs that can be undone."""
    outcomes = actors.stream.history()
    assert all(record["status"] == "done" for record in outcomes)
    told = {record["run"]: record for record in outcomes if record.get("removed_messages")}
    assert list(told) == [run.name for run in reversed(actors.model.runs)]
    undone = {record["undoes"] for record in outcomes if record["kind"] == "undo"}
    assert undone == {run.name for run in actors.model.runs if run.undone}
    for run in actors.model.runs:
        record = told[run.name]
        assert record["removed_messages"] == len(run.removed)
        assert record["removed_bytes"] == run.removed_bytes
        assert record["by_rule"] == run.by_rule
    why_not = {run.name: actors.model.why_not_undo(run) for run in actors.model.runs}
    possible = [run for run in actors.model.runs if why_not[run.name] is None]
    others = [run for run in actors.model.runs if why_not[run.name] not in (None, UNSURE)]
    for runs in (possible, others):
        for run in rng.sample(runs, min(_TRIED, len(runs))):
            _check_undo(actors, run)
    for run in possible[-1:]:
        taken = [message["seq"] for message in actors.warehouse.run(run.name).messages()]
        assert sorted(taken) == sorted(run.removed), "the messages that the history has of the run"


def _check_undo(actors: Actors, run: Run) -> None:
    why_not = actors.model.why_not_undo(run)
    try:
        shown = actors.warehouse.show_undo(run.name)
    except RetentionError:
        if why_not is None:
            raise
        return
    assert why_not is None, f"{run.name} could be undone, although {why_not}"
    assert shown["restored_messages"] == len(run.removed)
    assert shown["restored_bytes"] == run.removed_bytes


def _check_doctor(actors: Actors) -> None:
    findings = list(check_stream(actors.stream.opened))
    wrong = [
        finding
        for finding in findings
        if finding.result != "ok" and finding.check not in ("grace", "statistics")
    ]
    assert not wrong, wrong


def _check_verified(actors: Actors) -> None:
    result = actors.stream.verify()
    assert result.damages == (), result.damages
    foreign = [each for each in result.unverified if "another program" not in each.reason]
    assert not foreign, foreign


def _check_answers(actors: Actors, rng: Random) -> None:
    """Check that `explain` gives the fate of live messages in a pass, and the run that removed others."""
    model, stream = actors.model, actors.stream
    judged = model.judge(actors.clock())
    for seq in rng.sample(sorted(model.live), min(_TOLD, len(model.live))):
        told = stream.explain(seq)
        assert (told.goes, told.rule) == (seq in judged.rules, judged.rules.get(seq)), told
    takers = {seq: run for run in model.runs if not run.undone for seq in run.removed}
    gone = sorted(takers.keys() - model.live.keys())
    for seq in rng.sample(gone, min(_TOLD, len(gone))):
        run = takers[seq]
        try:
            told = stream.explain(seq)
        except MissingMessageError:
            if not (run.lost or run.erased or run.kept is not None):
                raise
            continue
        assert told.removed is not None
        if told.removed["run"] == run.name:
            assert run.rules[seq] in told.removed["rules"]
        else:
            # "Or an earlier one": holes in its range, and its files are deleted.
            assert not told.removed["certain"], (told.removed, run.name)
            assert told.removed["run"] > run.name


def _check_due(actors: Actors) -> None:
    judged = actors.model.judge(actors.clock())
    plan = actors.stream.plan().plan
    assert plan.removed_messages == len(judged.rules)
    assert plan.by_rule == _counted(judged.rules)
    if not actors.model.policy.whole_segments:
        assert plan.kept_by_holds == judged.kept


def _check_held(actors: Actors) -> None:
    """Check the legal holds in effect, and that files still have every removed message under one."""
    held = {hold.id for hold in actors.warehouse.holds([NAME])}
    assert held == set(actors.model.holds.in_effect)
    wanted = {message.seq for message in actors.model.kept_dead()}
    if wanted:
        layout = actors.stream.opened.layout
        places = [Path(layout.messages), Path(layout.engine_path("trash"))]
        paths = [path for place in places for path in place.glob("**/segment=*/*.parquet")]
        there = {
            seq for path in paths for seq in pq.ParquetFile(path).read(["seq"])["seq"].to_pylist()
        }
        assert wanted <= there, f"removed files of held messages are gone: {wanted - there}"


def _counted(rules: dict[int, str]) -> dict[str, int]:
    named = list(rules.values())
    return {rule: named.count(rule) for rule in named}


def _check_end(actors: Actors) -> None:
    """Check that compact and reclaim leave only live data files after all graces."""
    actors.edit({**actors.terms, "grace": "0s", "holds": []})
    for hold in actors.warehouse.holds([NAME]):
        actors.warehouse.release_hold(hold.id, reason="closed")
    actors.model.holds.in_effect.clear()
    actors.clock.advance(LONGEST_GRACE_NS + SECOND)
    done(actors.warehouse.compact([NAME]).apply())
    actors.clock.advance(LONGEST_GRACE_NS + SECOND)
    done(actors.warehouse.reclaim([NAME]).apply())
    actors.model.reclaim(actors.clock())
    opened = actors.stream.opened
    live = {Path(file.location) for file in opened.store.data_files(opened.store.snapshot().files)}
    root = Path(opened.root)
    held = {
        path
        for place in (
            root / "messages",
            root / "_retention" / "trash",
            root / "_retention" / "staging",
        )
        for path in place.rglob("*.parquet")
        if "_delta_log" not in path.parts
    }
    assert held == live, ("left behind", held - live, "missing", live - held)
    _check_messages(actors)
    _check_stranger(actors)
    _check_runs(actors, Random(0))
