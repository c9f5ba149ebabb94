"""Laws on real stores: explanation, plan and application agree with each other and with the broker's order."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.core import headers
from retention.core.policy import Policy
from retention.history.report import RunReport
from retention.inspect.state import State
from retention.plan.estimate_bounds import Estimate
from retention.plan.plan import Plan
from retention.planners.estimate import estimate
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.interests import goes, interests_of, record_of
from tests.support.laws import law_on_disk
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with
from tests.support.marked import Server, marked_update, marking, marking_instants
from tests.support.worlds import (
    NEXT_SEQ,
    Message,
    World,
    in_segments,
    instants,
    policies,
    update,
    worlds,
)

pytestmark = pytest.mark.slow

OVERHEAD = 30
PER_BYTE = 20
"""The scale of a byte in a small world's limit, because real messages have headers and overhead."""


def lasting(message: Message) -> bytes | None:
    """The headers of a message without a TTL, or with `never`."""
    deletes = [(headers.KV_OPERATION, "DEL")] if message.deletes else []
    never = [(headers.TTL, "never")] if message.never else []
    return headers.build(deletes + never) if deletes or never else None


def real(message: Message) -> Message:
    """The message with its time and size on a real store."""
    block = lasting(message)
    size = OVERHEAD + len(message.subject) + message.size + (len(block) + 4 if block else 0)
    return replace(message, ts_ns=START + message.ts_ns * SECOND, size=size)


def laid(message: Message) -> Laid:
    time = START + message.ts_ns * SECOND
    block = lasting(message)
    return Laid(message.seq, message.subject, time, b"x" * message.size, headers=block)


def scaled(policy: Policy) -> Policy:
    policy = in_segments(policy, whole=policy.whole_segments)
    deleted_ns = policy.delete_retention_ns
    return replace(
        policy,
        max_age_ns=None if policy.max_age_ns is None else policy.max_age_ns * SECOND,
        delete_retention_ns=None if deleted_ns is None else deleted_ns * SECOND,
        max_bytes=None if policy.max_bytes is None else policy.max_bytes * PER_BYTE,
    )


def limits_of(policy: Policy) -> dict[str, Any]:
    limits = {
        "max_msgs": policy.max_msgs,
        "max_bytes": policy.max_bytes,
        "max_msgs_per_subject": policy.max_msgs_per_subject,
        "max_subjects": policy.max_subjects,
        "delete_retention": policy.delete_retention_ns,
        "max_age": policy.max_age_ns,
    }
    chosen: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if policy.max_age_ns is not None:
        chosen["expiry"] = policy.expiry
    also = ("discard", "whole_segments", "retention", "unmatched")
    always = {"compact": {"min_files": 2, "dead_share": "0%"}}
    return always | chosen | {name: getattr(policy, name) for name in also}


def verdicts(stream: Stream, seqs: Iterable[int]) -> dict[int, tuple[bool, str | None]]:
    """Whether each message is removed, and the rule."""
    explained = {seq: stream.explain(seq) for seq in seqs}
    return {seq: (one.goes, one.rule) for seq, one in explained.items()}


def compact(stream: Stream, seqs: Iterable[int]) -> None:
    """Merge as much as possible; the verdict on every message must not change."""
    before, every = verdicts(stream, seqs), list(seqs)
    stream.compact().apply()
    assert verdicts(stream, every) == before


def seqs(warehouse: Warehouse) -> set[int]:
    return set(held(warehouse)["seq"].to_pylist())


def given_back(record: ConsumerRecord, found: ConsumerRecord | None) -> ConsumerRecord:
    return found or record


def released_by(world: World, policy: Policy, interests: Sequence[Interest]) -> dict[int, str]:
    """The messages of a world released by consumers."""
    return {
        message.seq: policy.retention
        for message in world.messages
        if goes(interests, message.seq, message.subject, policy.unmatched)
    }


def check_bounds(bounds: Estimate, plan: Plan) -> None:
    """Check that an estimate contains every number of the plan."""
    assert bounds.removed_messages.lower <= plan.removed_messages <= bounds.removed_messages.upper
    assert bounds.removed_bytes.lower <= plan.removed_bytes <= bounds.removed_bytes.upper
    assert set(plan.by_rule) <= set(bounds.by_rule)
    assert all(b.lower <= plan.by_rule.get(r, 0) <= b.upper for r, b in bounds.by_rule.items())
    kept, dropped = bounds.segments["kept"], bounds.segments["dropped"]
    assert dropped.lower <= plan.header.segments.dropped <= dropped.upper
    assert kept.lower <= plan.header.segments.kept <= kept.upper
    assert bounds.files_read.lower <= plan.header.read.files <= bounds.files_read.upper


def lay_world(stream: Stream, world: World, interests: Sequence[Interest]) -> None:
    """Write a world to disk, with its consumers."""
    files = [File(base, [laid(message) for message in part]) for base, part in world.files]
    lay(stream.opened, files, sealed=world.open_base > max(base for base, _ in world.files))
    for one in interests:
        ConsumerTable(stream.opened.root).update(one.consumer, partial(given_back, record_of(one)))


def check_report(report: RunReport, plan: Plan, before: State, after: State) -> None:
    """Check that a run's report agrees with its plan, and with the messages missing afterwards."""
    assert report.plan_id == plan.plan_id
    assert report.removed_messages == plan.removed_messages == before.messages - after.messages
    assert report.removed_bytes == plan.removed_bytes == before.bytes - after.bytes
    assert plan.header.segments.dropped == before.segments - after.segments
    assert after.last_seq == before.last_seq


def check_laws(
    folder: Path,
    format_: str,
    world: World,
    policy: Policy,
    as_of_ns: int,
    interests: Sequence[Interest] = (),
    *,
    compacted: bool = False,
) -> None:
    warehouse = warehouse_with(folder, format_, as_of_ns, **limits_of(policy))
    stream = warehouse.stream("ORDERS")
    lay_world(stream, world, interests)
    before, all_seqs = stream.state(), seqs(warehouse)
    if compacted:
        compact(stream, all_seqs)
        before = replace(before, segments=stream.state().segments)
    unlooked = estimate(stream.opened, as_of_ns)
    explained = {seq: stream.explain(seq) for seq in all_seqs}
    plan, bounds = stream.plan().plan, estimate(stream.opened, as_of_ns)
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    report, after = outcome.value, stream.state()

    gone = all_seqs - (seqs(warehouse) if after.messages else set())
    assert {seq for seq, one in explained.items() if one.goes} == gone
    assert Counter(one.rule for one in explained.values() if one.goes) == plan.by_rule
    if not policy.whole_segments:
        released = released_by(world, policy, interests)
        left = [real(message) for message in world.messages if message.seq not in released]
        expected = released | update(left, policy, as_of_ns)
        assert {seq: one.rule for seq, one in explained.items() if one.goes} == expected
    check_bounds(unlooked, plan)
    check_bounds(bounds, plan)
    check_report(report, plan, before, after)
    assert after.first_seq == min(all_seqs - gone, default=after.last_seq + 1)
    # Age may expose a deletion, which the next pass removes.
    uncovers = policy.delete_retention_ns is not None and policy.max_age_ns is not None
    assert stream.plan().plan.is_empty or policy.whole_segments or uncovers


def mortal(message: Message) -> Laid:
    """The message with headers for its deadline and for silent expiry."""
    pairs = []
    if message.silent and message.deletes:
        pairs.append((headers.KV_OPERATION, "PURGE"))
    elif message.silent:
        pairs.append((headers.MARKER_REASON, "of no operation"))
    elif message.deletes:
        pairs.append((headers.KV_OPERATION, "DEL"))
    if message.never:
        pairs.append((headers.TTL, "never"))
    elif message.deadline_ns is not None:
        pairs.append((headers.TTL, str(max(1, message.deadline_ns - message.ts_ns))))
    time = START + message.ts_ns * SECOND
    block = headers.build(pairs) if pairs else None
    return Laid(message.seq, message.subject, time, b"x" * message.size, headers=block)


def as_stored(message: Message, rows: dict[int, dict[str, Any]]) -> Message:
    """The message with the numbers of its row."""
    row = rows[message.seq]
    return replace(message, ts_ns=row["ts_ns"], size=row["size"], deadline_ns=row["deadline_ns"])


def ended(world: World, policy: Policy, as_of_ns: int) -> Server:
    """The server's messages after its update pass."""
    if policy.subject_delete_marker_ttl_ns is not None:
        return marked_update(world, policy, as_of_ns)
    gone = update(world.messages, policy, as_of_ns)
    return Server(policy, [m for m in world.messages if m.seq not in gone], gone)


def check_expiry(
    folder: Path, format_: str, world: World, policy: Policy, as_of_ns: int, *, compacted: bool
) -> None:
    limits = limits_of(policy) | {
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": policy.subject_delete_marker_ttl_ns or 0,
        "max_msg_size": -1 if policy.max_msg_size is None else policy.max_msg_size,
    }
    warehouse = warehouse_with(folder, format_, as_of_ns, **limits)
    stream = warehouse.stream("ORDERS")
    files = [File(base, [mortal(message) for message in part]) for base, part in world.files]
    lay(stream.opened, files)
    rows = {row["seq"]: row for row in held(warehouse).to_pylist()}
    before, next_seq = stream.state(), max(rows) + 1
    if compacted:
        compact(stream, rows)
    stored = World(
        tuple((base, tuple(as_stored(m, rows) for m in part)) for base, part in world.files),
        world.open_base,
    )
    server = ended(stored, policy, as_of_ns)
    explained = {seq for seq in rows if stream.explain(seq).goes}
    plan = stream.plan().plan
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence

    own = {seq: rule for seq, rule in server.gone.items() if seq < NEXT_SEQ}
    left = [
        (m.seq if m.seq < NEXT_SEQ else m.seq - NEXT_SEQ + next_seq, m.subject, m.size)
        for m in server.left
    ]
    after = stream.state()
    ours = held(warehouse).select(["seq", "subject", "size"]).to_pylist() if after.messages else []
    assert [tuple(row.values()) for row in ours] == left
    assert explained == set(own)
    assert plan.by_rule == outcome.value.by_rule == Counter(own.values())
    assert after.last_seq + 1 == next_seq + server.next_seq - NEXT_SEQ
    assert outcome.value.markers == sum(m.seq >= NEXT_SEQ for m in server.left)
    now = before.forecast.due[0]
    assert now.messages_at_least <= plan.removed_messages <= now.messages_at_most
    assert now.bytes_at_least <= plan.removed_bytes <= now.bytes_at_most


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(
    world=worlds.filter(lambda world: len(world.files) > 0),
    policy=st.builds(
        lambda policy, announces: replace(
            scaled(policy),
            max_bytes=policy.max_bytes and policy.max_bytes * 4,
            sealed=False,
            subject_delete_marker_ttl_ns=policy.subject_delete_marker_ttl_ns if announces else None,
        ),
        marking,
        st.sampled_from([True, True, False]),
    ),
    instant=marking_instants,
    compacted=st.booleans(),
)
@pytest.mark.always
def test_what_expires_and_is_announced_is_what_the_server_leaves(
    format_: str, world: World, policy: Policy, instant: int, compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        at = START + instant * SECOND
        check_expiry(Path(folder), format_, world, policy, at, compacted=compacted)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(
    world=worlds.filter(lambda world: len(world.files) > 0),
    policy=st.builds(
        # Deadlines of these worlds are bare numbers that no header could give.
        lambda policy, whole: replace(
            scaled(replace(policy, whole_segments=whole)), allow_msg_ttl=False
        ),
        policies,
        st.sampled_from([False, False, True]),
    ),
    instant=instants,
    compacted=st.booleans(),
)
@pytest.mark.always
def test_explain_plan_apply_and_state_agree(
    format_: str, world: World, policy: Policy, instant: int, compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        at = START + instant * SECOND
        check_laws(Path(folder), format_, world, policy, at, compacted=compacted)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(
    data=st.data(),
    world=worlds.filter(lambda world: len(world.files) > 0),
    policy=st.builds(
        lambda policy, kind, unmatched, whole: replace(
            scaled(replace(policy, whole_segments=whole)),
            allow_msg_ttl=False,
            retention=kind,
            unmatched=unmatched,
        ),
        policies,
        st.sampled_from(["interest", "workqueue"]),
        st.sampled_from(["keep", "remove"]),
        st.sampled_from([False, False, True]),
    ),
    instant=instants,
    compacted=st.booleans(),
)
@pytest.mark.always
def test_consumers_let_go_first_and_limits_judge_what_is_left(
    format_: str, data: Any, world: World, policy: Policy, instant: int, compacted: bool
) -> None:
    interests = data.draw(interests_of(world))
    if policy.retention == "workqueue":
        # Consumers of a work queue have disjoint filters.
        interests = interests[:1]
    with tempfile.TemporaryDirectory() as folder:
        at = START + instant * SECOND
        check_laws(Path(folder), format_, world, policy, at, interests, compacted=compacted)
