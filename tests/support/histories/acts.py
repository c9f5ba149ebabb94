"""Acts on a stream: each is applied to a real warehouse and to the model, and both must give the same answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from retention.apply.compact import CompactionLimits
from retention.core.units import INT64_MAX
from retention.errors import RefusedError, StalePlanError, UsageError
from tests.support.histories.actors import Actors, done, refused
from tests.support.histories.archive_acts import forget, restore
from tests.support.histories.consumer_acts import subscribe, work
from tests.support.histories.erase_acts import erase, resume
from tests.support.histories.hold_acts import configure, hold, release, undo_held
from tests.support.histories.neighbour_acts import neighbour
from tests.support.histories.pause_acts import pause
from tests.support.histories.publish_model import Given, Taken, publish
from tests.support.histories.stored import MSG_ID, OPERATION, ROLLUP, SECOND, TTL
from tests.support.histories.stream_model import UNSURE, Pass, Run, StreamModel
from tests.support.histories.terms import NAME, PERSON, SUBJECTS, changed
from tests.support.histories.why_not import WHY_NOT, undone

MS = 1_000_000
"""The resolution of a storage's clock."""


def wait(actors: Actors, rng: Random) -> None:
    """Advance time in whole milliseconds, often to an edge at which something becomes due, or to just before it."""
    now_ns = actors.clock()
    edges = [-(-edge // MS) * MS for edge in actors.model.edges(actors.grace_ns)]
    ahead = [edge for edge in edges if now_ns + MS < edge < INT64_MAX]
    if ahead and rng.random() < 0.5:
        by_ns = rng.choice(ahead[:3]) - now_ns - rng.choice([0, 0, MS])
    else:
        by_ns = rng.choice([1, 1, 2, 3, 5, 10, 30, 60, 600]) * SECOND
    if rng.random() < 0.01:
        by_ns = 9 * 86_400 * SECOND
    actors.said = f"wait {by_ns / SECOND:.3f} s"
    actors.clock.advance(by_ns)


def send(actors: Actors, rng: Random) -> None:
    """Publish a few messages."""
    batch = [_given(actors, rng) for _ in range(rng.choice([1, 1, 2, 3, 5, 8]))]
    model, now_ns = actors.model, actors.clock()
    if actors.config.allow_rollup_hdrs and any(ROLLUP in dict(each.headers) for each in batch):
        model.holds.expire(now_ns)
    taken = publish(model, batch)
    actors.said = f"publish {' '.join(map(_shown, batch))}"
    if taken.refused is not None:
        actors.said += f" (refused: {taken.refused})"
        with refused((RefusedError,), [taken.refused]):
            actors.stream.publish(list(map(_line, batch)))
        return
    published = actors.stream.publish(list(map(_line, batch)))
    assert [(ack.seq, ack.duplicate) for ack in published.acks()] == list(taken.acks)
    _take_in(actors, taken, now_ns)


def _take_in(actors: Actors, taken: Taken, now_ns: int) -> None:
    model = actors.model
    # The segment of a message is decided before older messages are removed.
    for message in taken.stored:
        model.store(message)
    if taken.rolled_up:
        rules = dict.fromkeys(sorted(taken.rolled_up), "rollup")
        record = actors.newest_run()
        run = model.remove(record["run"], "rollup", rules, now_ns)
        _same_removal(record, run)
    model.removed_seq = max(model.removed_seq, taken.unstored)
    model.next_seq, model.ids = taken.next_seq, taken.ids


def _same_removal(record: dict[str, Any], run: Run) -> None:
    assert record["removed_messages"] == len(run.removed), (record, sorted(run.removed))
    assert record["removed_bytes"] == run.removed_bytes
    assert record["by_rule"] == run.by_rule


def _given(actors: Actors, rng: Random) -> Given:
    headers: list[tuple[str, str]] = []
    ts_ns = actors.clock()
    kind = rng.random()
    if kind < 0.12:
        headers.append((OPERATION, rng.choice(["DEL", "DEL", "PURGE"])))
    elif kind < 0.2 and actors.config.allow_rollup_hdrs:
        headers.append((ROLLUP, rng.choice(["sub", "sub", "all"])))
    elif kind < 0.35:
        repeated = rng.random() < 0.3
        actors.last_id += not repeated
        headers.append((MSG_ID, f"message-id-{actors.last_id:06d}"))
    elif kind < 0.5:
        ts_ns -= rng.choice([1, 2, 5, 20, 100]) * SECOND
    if actors.config.allow_msg_ttl and rng.random() < 0.3:
        headers.append((TTL, rng.choice(["never", "1", "3", "8", "40"])))
    payload = bytes(rng.choices(b"abcdef", k=rng.choice([1, 5, 40, 200])))
    return Given(rng.choice([*SUBJECTS, PERSON]), ts_ns, tuple(headers), payload)


def _line(given: Given) -> bytes:
    line = {
        "subject": given.subject,
        "data": given.payload.decode(),
        "headers": given.headers,
        "ts_ns": given.ts_ns,
    }
    return json.dumps(line).encode()


def _shown(given: Given) -> str:
    headers = ",".join(f"{name}={value}" for name, value in given.headers)
    return f"{given.subject}*{len(given.payload)}" + (f"[{headers}]" if headers else "")


def retain(actors: Actors, rng: Random) -> None:
    """Run a pass now, directly or as a plan and its application."""
    model, now_ns = actors.model, actors.clock()
    ended = model.holds.due(now_ns)
    is_settled = not ended and "holds" not in actors.terms
    if rng.random() < 0.3 and actors.has_table and is_settled:
        report: Any = actors.stream.plan().apply()
    else:
        report = done(actors.warehouse.apply([NAME]))
    model.holds.expire(now_ns)
    judged = model.judge(now_ns)
    # Those that another run ended at the same instant are reported, too.
    assert set(ended) <= set(report.expired_holds or ()) <= model.holds.ended
    _same_kept(report.kept_by_holds, judged, model)
    actors.said = f"retain: {len(judged.rules)} go, {len(judged.markers)} markers"
    rules = list(judged.rules.values())
    assert report.by_rule == {rule: rules.count(rule) for rule in rules}, report.by_rule
    assert report.removed_messages == len(rules)
    assert report.markers == len(judged.markers)
    model.carry_out(report.run, judged, now_ns)


def _same_kept(kept: Mapping[str, int] | None, judged: Pass, model: StreamModel) -> None:
    """Check what each legal hold keeps; of segments that stay for other reasons, too, rules count."""
    if model.policy.whole_segments and kept is not None and judged.kept is not None:
        assert kept.keys() == judged.kept.keys()
        assert all(kept[hold] >= judged.kept[hold] for hold in kept)
        return
    assert kept == judged.kept, (kept, judged.kept)


def compact(actors: Actors, rng: Random) -> None:
    """Merge all or some files; the visible messages do not change."""
    limits = CompactionLimits(max_bytes=3000) if rng.random() < 0.2 else None
    report = done(actors.warehouse.compact([NAME], limits).apply())
    actors.model.changed_ns = actors.clock()
    actors.said = (
        f"compact: {report.merges} merges, {report.files_before} to {report.files_after} files"
    )
    if limits is None and actors.has_table:
        _settle(actors)


def _settle(actors: Actors) -> None:
    """Compact again: the lengths of rewritten files are known only afterwards, and may make more merges worthwhile."""
    for _ in range(2):
        if not actors.stream.compact().plan.merges:
            return
        done(actors.warehouse.compact([NAME]).apply())
    assert not actors.stream.compact().plan.merges, "compacted three times, and more to do"


def undo(actors: Actors, rng: Random) -> None:
    """Undo one of the runs, preferably a recent one; it may be refused."""
    runs = actors.model.runs
    if not runs:
        actors.said = "undo: no run"
        return
    announced = [run for run in runs if run.markers and not run.undone]
    some = announced if announced and rng.random() < 0.3 else runs
    run = rng.choice(some[-4:] if rng.random() < 0.7 else some)
    why_not = actors.model.why_not_undo(run)
    actors.said = f"undo {run.name} ({run.kind}; {why_not or len(run.removed)})"
    if why_not not in (None, UNSURE):
        with refused(*WHY_NOT[why_not]):
            actors.warehouse.undo(run.name)
        return
    undone(actors, run)


def reclaim(actors: Actors, rng: Random) -> None:
    """Delete files dead for longer than the grace, sometimes at the exact end of a grace."""
    model = actors.model
    ends = [run.ended_ns + actors.grace_ns for run in model.runs if not run.lost]
    ahead = [end for end in ends if end > actors.clock() and end % MS == 0]
    if ahead and rng.random() < 0.4:
        actors.clock.advance(min(ahead) - actors.clock())
    ended = model.holds.due(actors.clock())
    found = done(actors.warehouse.reclaim([NAME]).plan)
    report = done(actors.warehouse.reclaim([NAME]).apply())
    model.holds.expire(actors.clock())
    assert ended or found.going == report.going, (found.going, report.going)
    assert report.grace_ns in actors.graces_ns
    assert report.grace_ns >= actors.grace_ns
    actors.said = f"reclaim: {report.going}"
    model.reclaim(actors.clock() - report.grace_ns)
    forget(actors)
    spared = [run for run in model.runs if model.why_not_undo(run) is None]
    for run in spared[:1]:
        actors.warehouse.show_undo(run.name)


def record(actors: Actors, rng: Random) -> None:
    """Verify the stream, all files or some, and record the digests that are missing."""
    if not actors.has_table:
        actors.said = "record: no table"
        return
    sample = rng.choice([None, "40%"])
    actors.said = f"verify --record, sample {sample}"
    result = actors.stream.verify(sample=sample, record=True)
    assert result.damages == (), result.damages


def delete(actors: Actors, rng: Random) -> None:
    """Delete single messages; a missing one makes the request fail."""
    model = actors.model
    wanted = rng.sample(sorted(model.live), min(len(model.live), rng.choice([1, 1, 2, 4])))
    if rng.random() < 0.15 or not wanted:
        wanted.append(rng.randint(1, model.next_seq + 2))
    actors.said = f"delete {sorted(wanted)}"
    if set(wanted) - model.live.keys():
        with refused((UsageError,)):
            actors.stream.delete(*wanted)
        return
    report = _carried_out(actors, partial(actors.stream.delete, *wanted))
    _requested(actors, report, "delete", set(wanted))


def _carried_out(actors: Actors, request: Callable[[], Any]) -> Any:
    """The report of a request; it is planned again if its run itself records the begin or end of a legal hold."""
    changes = actors.model.holds.due(actors.clock()) or "holds" in actors.terms
    actors.model.holds.expire(actors.clock())
    try:
        return request().apply()
    except StalePlanError:
        assert changes
        return request().apply()


def _requested(actors: Actors, report: Any, rule: str, wanted: set[int]) -> None:
    """Carry out a request of a person beside the model: legal holds keep messages from it."""
    model = actors.model
    kept = model.holds.kept(model.live[seq] for seq in wanted) or {}
    # One that ended as the run began may be in its plan.
    ended = model.holds.ended
    assert {k: v for k, v in (report.kept_by_holds or {}).items() if k not in ended} == kept
    going = sorted(model.without_held(wanted))
    assert report.removed_messages == len(going), (report, going)
    if going:
        run = model.remove(report.run, rule, dict.fromkeys(going, rule), actors.clock())
        _same_removal(vars(report), run)


def purge(actors: Actors, rng: Random) -> None:
    """Purge all or some messages."""
    model = actors.model
    subject = rng.choice([None, None, *SUBJECTS, PERSON, "s.*"])
    seq = rng.randint(1, model.next_seq + 3) if rng.random() < 0.5 else None
    keep = rng.randint(1, 10) if seq is None and rng.random() < 0.8 else None
    actors.said = f"purge subject={subject} seq={seq} keep={keep}"
    meant = model.purge(subject, seq, keep)
    report = _carried_out(actors, partial(actors.stream.purge, subject, seq, keep))
    _requested(actors, report, "purge", meant)
    if subject is None and seq is not None and seq > model.next_seq:
        model.next_seq, model.removed_seq = seq, max(model.removed_seq, seq - 1)


def drop(actors: Actors, rng: Random) -> None:
    """Drop the stream, check that it is empty, and restore it unchanged."""
    del rng
    model, removed_seq = actors.model, actors.model.removed_seq
    if not model.live:
        actors.said = "drop: nothing is there"
        return
    if model.holds.in_effect:
        actors.said = "drop: a legal hold"
        with refused((RefusedError,), ["legal hold"]):
            actors.stream.drop().apply()
        return
    actors.said = f"drop and undo {len(model.live)}"
    report = actors.stream.drop().apply()
    state = actors.stream.state()
    assert state.dropped is not None
    assert (state.dropped.run, state.messages, state.last_seq) == (report.run, 0, 0)
    assert not list(actors.stream.messages())
    rules = dict.fromkeys(sorted(model.live), "drop")
    run = model.remove(report.run, "drop", rules, actors.clock())
    _same_removal(vars(report), run)
    actors.warehouse.undo(report.run)
    model.undo(run)
    # The resumed epoch has lost nothing.
    model.removed_seq = removed_seq


def edit(actors: Actors, rng: Random) -> None:
    """Change the configuration."""
    terms = changed(actors.terms, rng)
    differing = {key: value for key, value in terms.items() if actors.terms.get(key) != value}
    actors.said = f"edit {differing} without {sorted(actors.terms.keys() - terms.keys())}"
    actors.edit(terms)


ACTS: dict[str, Callable[[Actors, Random], None]] = {
    "wait": wait,
    "send": send,
    "retain": retain,
    "compact": compact,
    "undo": undo,
    "reclaim": reclaim,
    "restore": restore,
    "delete": delete,
    "purge": purge,
    "drop": drop,
    "edit": edit,
    "subscribe": subscribe,
    "work": work,
    "hold": hold,
    "release": release,
    "configure": configure,
    "undo_held": undo_held,
    "erase": erase,
    "resume": resume,
    "record": record,
    "pause": pause,
    "neighbour": neighbour,
}
WEIGHTS = {
    "wait": 18,
    "send": 26,
    "retain": 14,
    "compact": 8,
    "undo": 8,
    "reclaim": 5,
    "restore": 2,
    "delete": 4,
    "purge": 3,
    "drop": 2,
    "edit": 4,
    "subscribe": 2,
    "work": 8,
    "hold": 5,
    "release": 4,
    "configure": 1,
    "undo_held": 2,
    "erase": 4,
    "resume": 1,
    "record": 1,
    "pause": 2,
    "neighbour": 2,
}
"""Weights of acts; acts of consumers have no effect on a stream without them."""
