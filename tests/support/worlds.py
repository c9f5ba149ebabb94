"""Small worlds: streams of a few messages in a few files, and a plain model of the server's update pass."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from retention.core import headers
from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.read_count import ReadCount
from retention.core.spans import Spans
from retention.datafile.subject_digest import count_subjects
from retention.plan.build import make_plan
from retention.plan.plan import Plan
from retention.plan.remaining import RemainingMessages, RemainingRow, all_remaining
from retention.plan.rule_rows import planned_parts
from retention.planners import retention
from retention.planners.context import PlanningContext
from retention.planners.delete_markers import MarkedPass, MarkerPlanner, without_markers
from retention.planners.retention import plan
from retention.planners.rows import Deletions, Rule, SpanRowsReader, Told
from retention.rules.fold import Evaluation, Vetoed
from retention.rules.jetstream.max_msgs_per_subject import surplus
from retention.rules.row_verdicts import Answer, Question, SpanRows, answer_question
from retention.rules.rule import SubjectExcess
from retention.schemas.deadlines import NEVER
from retention.schemas.files import DELETIONS, FILE_STATS, SUBJECT_COUNTS_OF_FILES

NEXT_SEQ = 10_000
DELETES = headers.build([(headers.KV_OPERATION, "DEL")])


@dataclass(frozen=True)
class Message:
    seq: int
    subject: str
    ts_ns: int
    size: int
    never: bool
    deadline_ns: int | None = None
    """The deadline, unless the TTL is `never`."""
    silent: bool = False
    deletes: bool = False

    @property
    def stored_deadline_ns(self) -> int | None:
        return NEVER if self.never else self.deadline_ns


@dataclass(frozen=True)
class World:
    """Files in order, each as (segment base, messages)."""

    files: tuple[tuple[int, tuple[Message, ...]], ...]
    open_base: int

    @property
    def messages(self) -> list[Message]:
        return sorted((m for _, file in self.files for m in file), key=lambda m: m.seq)

    def without(self, gone: set[int]) -> World:
        kept = [(base, tuple(m for m in file if m.seq not in gone)) for base, file in self.files]
        return World(tuple((base, file) for base, file in kept if file), self.open_base)

    @cached_property
    def inventory(self) -> Inventory:
        rows = [_stats(number, base, file) for number, (base, file) in enumerate(self.files)]
        table = pa.Table.from_pylist(rows, schema=FILE_STATS)
        table = table.sort_by(
            [(name, "ascending") for name in ("partition", "segment", "min_seq", "path")]
        )
        return Inventory("WORLD", "table", 1, table, Counters({0: NEXT_SEQ}, {0: self.open_base}))

    def rows(self, path: str) -> pa.Table:
        _, file = self.files[int(path)]
        return rows_of(file)


@cache
def rows_of(messages: tuple[Message, ...]) -> pa.Table:
    ordered = sorted(messages, key=lambda m: m.seq)
    return pa.table(
        {
            "seq": pa.array([m.seq for m in ordered], pa.int64()),
            "subject": pa.array([m.subject for m in ordered], pa.string()),
            "ts_ns": pa.array([m.ts_ns for m in ordered], pa.int64()),
            "size": pa.array([m.size for m in ordered], pa.int64()),
            "marker": pa.array([m.silent for m in ordered], pa.bool_()),
            "deadline_ns": pa.array([m.stored_deadline_ns for m in ordered], pa.int64()),
            "headers": pa.array([DELETES if m.deletes else None for m in ordered], pa.binary()),
        }
    )


def _stats(number: int, base: int, file: tuple[Message, ...]) -> dict[str, object]:
    ordered = sorted(file, key=lambda m: m.seq)
    times = [m.ts_ns for m in ordered]
    deadlines = [m.deadline_ns for m in ordered if m.deadline_ns is not None and not m.never]
    return {
        "path": str(number),
        "partition": 0,
        "segment": base,
        "file_bytes": 100,
        "modified_ms": 0,
        "messages": len(file),
        "bytes": sum(m.size for m in file),
        "min_seq": ordered[0].seq,
        "max_seq": ordered[-1].seq,
        "min_ts_ns": min(times),
        "max_ts_ns": max(times),
        "first_ts_ns": times[0],
        "last_ts_ns": times[-1],
        "never": sum(m.never for m in file),
        "deadlines": len(deadlines),
        "min_deadline_ns": min(deadlines, default=None),
        "max_deadline_ns": max(deadlines, default=None),
        "markers": sum(m.silent for m in file),
        "in_time_order": times == sorted(times),
    }


def in_segments(policy: Policy, *, whole: bool) -> Policy:
    """The policy with or without `whole_segments`, which excludes the rules that remove subjects."""
    if not whole:
        return replace(policy, whole_segments=False)
    return replace(policy, whole_segments=True, delete_retention_ns=None, max_subjects=None)


def update(messages: list[Message], policy: Policy, as_of_ns: int) -> dict[int, str]:
    """STREAM.UPDATE from an unlimited config, message by message; returns sequence → the rule that removes it."""
    steps = (
        _trim_count,
        _trim_bytes,
        _trim_subjects,
        _drop_subjects,
        _purge,
        _expire,
        _pass_deadlines,
    )
    gone: dict[int, str] = {}
    left = list(messages)
    for step in steps:
        removed, rule = step(left, policy, as_of_ns)
        gone |= dict.fromkeys((m.seq for m in removed), rule)
        left = [m for m in left if m not in removed]
    return gone


def _trim_count(left: list[Message], policy: Policy, _: int) -> tuple[list[Message], str]:
    limit = policy.max_msgs if policy.discard == "old" else None
    return left[: max(0, len(left) - limit)] if limit is not None else [], "max_msgs"


def _trim_bytes(left: list[Message], policy: Policy, _: int) -> tuple[list[Message], str]:
    removed: list[Message] = []
    limit = policy.max_bytes if policy.discard == "old" else None
    while limit is not None and sum(m.size for m in left[len(removed) :]) > limit:
        removed.append(left[len(removed)])
    return removed, "max_bytes"


def _trim_subjects(left: list[Message], policy: Policy, _: int) -> tuple[list[Message], str]:
    limit, held, removed = policy.max_msgs_per_subject, Counter(m.subject for m in left), []
    for message in left:
        if limit is not None and held[message.subject] > limit:
            held[message.subject] -= 1
            removed.append(message)
    return removed, "max_msgs_per_subject"


def _drop_subjects(left: list[Message], policy: Policy, _: int) -> tuple[list[Message], str]:
    last = {m.subject: m.seq for m in left}
    newest = sorted(last, key=lambda subject: -last[subject])[: policy.max_subjects]
    return [m for m in left if m.subject not in newest], "max_subjects"


def _purge(left: list[Message], policy: Policy, as_of_ns: int) -> tuple[list[Message], str]:
    last = {m.subject: m for m in left}
    gone = {
        m.subject
        for m in last.values()
        if policy.delete_retention_ns is not None
        if m.deletes and as_of_ns - m.ts_ns >= policy.delete_retention_ns
    }
    return [m for m in left if m.subject in gone], "delete_retention"


def _expire(left: list[Message], policy: Policy, as_of_ns: int) -> tuple[list[Message], str]:
    if policy.max_age_ns is None:
        return [], "max_age"
    cutoff = as_of_ns - policy.max_age_ns
    if policy.expiry == "each":
        return [m for m in left if m.ts_ns <= cutoff and not m.never], "max_age"
    old = itertools.takewhile(lambda m: m.ts_ns <= cutoff, left)
    return [m for m in old if not m.never], "max_age"


def _pass_deadlines(
    left: list[Message], policy: Policy, as_of_ns: int
) -> tuple[list[Message], str]:
    due = [
        m
        for m in left
        if policy.allow_msg_ttl and not m.never and m.deadline_ns is not None
        if m.deadline_ns <= as_of_ns
    ]
    return due, "msg_ttl"


def digests(world: World, files: pa.Table) -> pa.Table:
    parts = [SUBJECT_COUNTS_OF_FILES.empty_table()]
    for number, path in enumerate(files["path"].to_pylist()):
        counted = count_subjects(world.rows(path))
        numbers = pa.array([number] * counted.num_rows, pa.int64())
        parts.append(counted.add_column(0, SUBJECT_COUNTS_OF_FILES.field("file"), numbers))
    return pa.concat_tables(parts)


def decide(world: World, policy: Policy, as_of_ns: int) -> Evaluation:
    return retention.decide(all_remaining(world.inventory), policy, as_of_ns, WorldRows(world))


def answers(world: World, decided: Evaluation) -> list[Answer]:
    questions = [decided.question(int(span)) for span in np.flatnonzero(decided.ask)]
    return asks(world, answer_question, decided.spans, questions)


def asks(
    world: World, rule: Rule[Question, Told], spans: Spans, questions: Sequence[Question]
) -> list[Told]:
    """Answer questions from a world's rows, like `probe.RemainingRows` from files."""
    return [rule(_span_rows(world, spans, question.span), question) for question in questions]


def _span_rows(world: World, spans: Spans, span: int) -> SpanRows:
    first, end = (int(number) for number in spans.first_file[span : span + 2])
    paths = world.inventory.files["path"].to_pylist()[first:end]
    tables = [world.rows(path) for path in paths]
    rows = pa.concat_tables(tables)
    order = np.argsort(rows["seq"].to_numpy(), kind="stable")
    of_row = np.repeat(np.arange(first, end), [t.num_rows for t in tables])[order]
    return SpanRows(rows.take(pa.array(order)), of_row, ReadCount())


def announced(world: World, policy: Policy, as_of_ns: int) -> MarkedPass:
    """A pass, decided by metadata, rows and markers."""
    decided = decide(world, policy, as_of_ns)
    told = without_markers(Vetoed(decided, answers(world, decided)))
    if policy.subject_delete_marker_ttl_ns is None:
        return told
    announcer = MarkerPlanner(
        policy,
        as_of_ns,
        NEXT_SEQ,
        lambda: digests(world, world.inventory.files),
        partial(asks, world),
    )
    return announcer.announce(told.vetoed)


@dataclass(frozen=True)
class WorldRows:
    """A world's rows, in memory; implements `retention.planners.rows.StreamRows`."""

    world: World

    def of(self, remaining: RemainingMessages) -> SpanRowsReader:
        assert remaining.files is self.world.inventory.files
        return partial(asks, self.world)

    def subject_counts(self, files: pa.Table) -> pa.Table:
        stored = self.world.inventory.files
        first = stored["path"].to_pylist().index(files["path"][0].as_py()) if len(files) else 0
        assert files.equals(stored.slice(first, len(files)))
        return digests(self.world, files)

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        paths = remaining.stored["path"].take(pa.array(wanted, pa.int64())).to_pylist()
        found = [
            {"subject": m.subject, "seq": m.seq, "ts_ns": m.ts_ns}
            for path in paths
            for m in self.world.files[int(path)][1]
            if m.deletes
        ]
        return Deletions(pa.Table.from_pylist(found, schema=DELETIONS))

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        counts = remaining.subject_counts(self)
        return surplus(limit, counts, spans.span_of_file, len(spans))


def plan_of(world: World, policy: Policy, as_of_ns: int) -> Plan:
    context = PlanningContext(world.inventory, policy, as_of_ns, next_seq=NEXT_SEQ)
    return plan(context, WorldRows(world)).plan


def planned(world: World, policy: Policy, as_of_ns: int, told: MarkedPass) -> Plan:
    plan = make_plan(all_remaining(world.inventory), policy, as_of_ns, told.vetoed)
    actions = replace(plan.actions, markers=told.markers, sequences=told.sequences)
    return replace(plan, effects=actions)


def removed_by(world: World, plan: Plan) -> dict[int, str | None]:
    """Sequence → rule for the removals of a plan; the rule is None in completely removed files."""
    gone: dict[int, str | None] = {}
    parts = planned_parts(plan.actions.removed.table)
    for number, row in enumerate(plan.actions.files.to_pylist()):
        if row["action"] == "drop":
            gone |= dict.fromkeys(world.rows(row["path"])["seq"].to_pylist())
        else:
            for part in parts.filter(pa.compute.equal(parts["file"], number)).to_pylist():
                for seq in range(part["first_seq"], part["last_seq"] + 1):
                    gone[seq] = part["rule"]
    return gone


message_parts = st.tuples(
    st.integers(1, 3),
    st.sampled_from("abc"),
    st.integers(0, 20),
    st.integers(1, 9),
    st.sampled_from([False, False, False, True]),
    st.none() | st.integers(-3, 35),
    st.sampled_from([False, False, False, True]),
    st.booleans(),
)
layouts = st.lists(
    st.tuples(
        st.integers(1, 6), st.sampled_from(["one", "adjoining", "interleaved", "by deadline"])
    ),
    min_size=14,
    max_size=14,
)


def _world(
    parts: list[tuple[int, str, int, int, bool, int | None, bool, bool]],
    layout: list[tuple[int, str]],
    *,
    sealed: bool,
) -> World:
    seqs = itertools.accumulate(step for step, *_ in parts)
    messages = [
        Message(seq, subject, ts_ns, size, never, deadline_ns, silent, deletes)
        for seq, (_, subject, ts_ns, size, never, deadline_ns, silent, deletes) in zip(
            seqs, parts, strict=True
        )
    ]
    files: list[tuple[int, tuple[Message, ...]]] = []
    base = 1
    for length, how in layout:
        segment, messages = messages[:length], messages[length:]
        if segment:
            base = segment[0].seq
            files += [(base, part) for part in _split(how, segment)]
    return World(tuple(files), base + 10 if sealed else base)


def _split(how: str, segment: list[Message]) -> list[tuple[Message, ...]]:
    """Divide a segment's messages into one file, two adjoining or interleaved files, or several by deadline."""
    if how == "by deadline":
        slices = [
            None if m.stored_deadline_ns is None else m.stored_deadline_ns // 8 for m in segment
        ]
        return [
            tuple(m for m, own in zip(segment, slices, strict=True) if own == slice_)
            for slice_ in dict.fromkeys(slices)
        ]
    cuts = {
        "one": (segment, []),
        "adjoining": (segment[:1], segment[1:]),
        "interleaved": (segment[::2], segment[1::2]),
    }
    return [tuple(part) for part in cuts[how] if part]


worlds = st.builds(_world, st.lists(message_parts, max_size=14), layouts, sealed=st.booleans())
limit = st.none() | st.integers(1, 10)
policies = st.builds(
    Policy,
    max_msgs=limit,
    max_bytes=st.none() | st.integers(1, 50),
    max_msgs_per_subject=st.none() | st.integers(1, 4),
    max_subjects=st.none() | st.integers(1, 3),
    delete_retention_ns=st.none() | st.none() | st.integers(1, 12),
    max_age_ns=st.none() | st.integers(1, 20),
    expiry=st.sampled_from(["head", "each"]),
    discard=st.sampled_from(["old", "old", "new"]),
    allow_msg_ttl=st.booleans(),
)
instants = st.integers(0, 30)
