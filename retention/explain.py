"""Why one message stays or goes: one sentence, and the arithmetic behind it, rule by rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.engines.choice import Engines
from retention.errors import UsageError
from retention.opened import OpenedStream
from retention.planning import Look, look
from retention.policy import Policy
from retention.probe import read_span
from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MAX_MSGS_PER_SUBJECT, RULES
from retention.rules.judge import STAYS, judge
from retention.units import format_duration, format_instant, format_size
from schemas.messages import NEVER


@dataclass(frozen=True)
class Explanation:
    """The fate of one message in one pass."""

    stream: str
    partition: int
    seq: int
    subject: str
    ts_ns: int
    size: int
    goes: bool
    rule: str | None
    """The rule that lets it go; None if it stays."""
    sentence: str
    arithmetic: tuple[str, ...]
    """One line for each rule of the policy, with the numbers that were compared."""

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return asdict(self) | {"arithmetic": list(self.arithmetic)}


@dataclass(frozen=True)
class _Facts:
    """What the rules compare about one message."""

    seq: int
    subject: str
    ts_ns: int
    size: int
    never: bool
    newer: int
    """Messages with higher sequences."""
    bytes_with_newer: int
    newer_on_subject: int
    age_ns: int
    scan_end: int | None
    """The message at which the age scan ends, if that comes before this one."""


def explain(
    opened: OpenedStream, seq: int, as_of_ns: int, engines: Engines, partition: int = 0
) -> Explanation:
    """Explain one message, as a pass at `as_of_ns` would treat it.

    Raises:
        UsageError: no message with that sequence is in the stream.
        RefusedError, DamagedError: as planning.
    """
    if not opened.store.exists():
        raise UsageError(f"{opened.name}: the stream holds nothing yet, so there is no message {seq}")
    seen = look(opened, as_of_ns, engines)
    span, row, rows = _find(opened, seen, seq, partition)
    facts = _facts(opened, seen, span, row, rows)
    rule = _rule(seen, span, row, rows, facts)
    file_goes = rule is not None and _is_planned(seen, partition, seq)
    policy = seen.plan.policy
    lines = tuple(_line(name, policy, facts) for name in RULES if _is_set(policy, name))
    return Explanation(
        stream=opened.name,
        partition=partition,
        seq=seq,
        subject=facts.subject,
        ts_ns=facts.ts_ns,
        size=facts.size,
        goes=file_goes,
        rule=rule if file_goes else None,
        sentence=_sentence(opened.name, policy, facts, rule, goes=file_goes),
        arithmetic=lines,
    )


def _find(opened: OpenedStream, seen: Look, seq: int, partition: int) -> tuple[int, int, pa.Table]:
    """The span, the row number in it, and the span's rows."""
    spans = seen.decided.spans
    holds = (spans.partition == partition) & (spans.min_seq <= seq) & (seq <= spans.max_seq)
    for span in np.flatnonzero(holds):
        first, end = (int(number) for number in spans.first_file[span : span + 2])
        found = opened.store.data_files(seen.inventory.files.slice(first, end - first))
        rows, _, _ = read_span(tuple(found))
        at = int(np.searchsorted(rows["seq"].to_numpy(), seq))
        if at < rows.num_rows and rows["seq"][at].as_py() == seq:
            return int(span), at, rows
    held = f"{spans.min_seq[0]:,} to {spans.max_seq[-1]:,}" if len(spans) else "none"
    raise UsageError(
        f"{opened.name}: there is no message {seq} (sequences held: {held}); it was never stored, or an earlier run "
        "or the broker removed it: `retention history` lists the runs"
    )


def _facts(opened: OpenedStream, seen: Look, span: int, row: int, rows: pa.Table) -> _Facts:
    spans = seen.decided.spans
    message = rows.slice(row, 1).to_pylist()[0]
    sizes = rows["size"].to_numpy()
    same = pc.equal(rows["subject"], message["subject"]).to_numpy()
    scan_end = _scan_end(seen)
    return _Facts(
        seq=message["seq"],
        subject=message["subject"],
        ts_ns=message["ts_ns"],
        size=message["size"],
        never=message["deadline_ns"] == NEVER,
        newer=int(spans.messages[span + 1 :].sum()) + rows.num_rows - row - 1,
        bytes_with_newer=int(spans.bytes[span + 1 :].sum() + sizes[row:].sum()),
        newer_on_subject=int(same[row + 1 :].sum()) + _newer_on_subject(opened, seen, span, message),
        age_ns=seen.plan.as_of_ns - message["ts_ns"],
        scan_end=scan_end if scan_end is not None and scan_end < message["seq"] else None,
    )


def _newer_on_subject(opened: OpenedStream, seen: Look, span: int, message: dict[str, Any]) -> int:
    if seen.plan.policy.max_msgs_per_subject is None:
        return 0
    first_newer = int(seen.decided.spans.first_file[span + 1])
    counts = opened.store.subject_counts(seen.inventory.files.slice(first_newer))
    on_subject = counts.filter(pc.equal(counts["subject"], message["subject"]))
    return int(pc.sum(on_subject["messages"], min_count=0).as_py())


def _scan_end(seen: Look) -> int | None:
    """The message at which the age scan ends; None if it never does, or does not run."""
    age = seen.decided.age
    if age is None:
        return None
    stops = [answer.stop_seq for answer in seen.answers if answer.stop_seq is not None]
    if stops:
        return min(stops)
    return int(seen.decided.spans.min_seq[age.reach - 1]) if _ends_by_metadata(seen) else None


def _ends_by_metadata(seen: Look) -> bool:
    age, spans = seen.decided.age, seen.decided.spans
    if age is None or not len(spans) or seen.decided.ask[age.reach - 1]:
        return False
    return bool(spans.max_ts_ns[age.reach - 1] > age.cutoff_ns)


def _rule(seen: Look, span: int, row: int, rows: pa.Table, facts: _Facts) -> str | None:
    """The first rule that lets the message go by itself, segments aside."""
    verdicts, _ = judge(rows, seen.decided.question(span))
    verdict = int(verdicts[row])
    if verdict == STAYS or (RULES[verdict] == MAX_AGE and facts.scan_end is not None):
        return None
    return RULES[verdict]


def _is_planned(seen: Look, partition: int, seq: int) -> bool:
    """Whether the plan removes the message: with `whole_segments` a rule alone is not enough."""
    if not seen.plan.policy.whole_segments:
        return True
    planned = seen.plan.files
    inside = (
        (planned["partition"].to_numpy() == partition)
        & (planned["min_seq"].to_numpy() <= seq)
        & (seq <= planned["max_seq"].to_numpy())
    )
    return bool(inside.any())


def _is_set(policy: Policy, rule: str) -> bool:
    limits = {
        MAX_MSGS: policy.max_msgs,
        MAX_BYTES: policy.max_bytes,
        MAX_MSGS_PER_SUBJECT: policy.max_msgs_per_subject,
        MAX_AGE: policy.max_age_ns,
    }
    return limits[rule] is not None


def _line(rule: str, policy: Policy, facts: _Facts) -> str:
    """What one rule compares, with the numbers."""
    if rule in (MAX_MSGS, MAX_BYTES) and policy.discard == "new":
        return f"{rule}: discard is new, so this limit refuses new messages and never removes stored ones"
    if rule == MAX_MSGS:
        return f"max_msgs {policy.max_msgs:,}: {facts.newer:,} newer messages; it goes from {policy.max_msgs:,} on"
    if rule == MAX_BYTES:
        limit = policy.max_bytes or 0
        return (
            f"max_bytes {format_size(limit)}: it and everything newer are {facts.bytes_with_newer:,} bytes; "
            f"it goes above {limit:,}"
        )
    if rule == MAX_MSGS_PER_SUBJECT:
        limit = policy.max_msgs_per_subject or 0
        return (
            f"max_msgs_per_subject {limit:,}: {facts.newer_on_subject:,} newer on {facts.subject}; "
            f"it goes from {limit:,} on"
        )
    return _age_line(policy.max_age_ns or 0, facts)


def _age_line(max_age_ns: int, facts: _Facts) -> str:
    line = f"max_age {format_duration(max_age_ns)}: age {_age(facts)}, stored {format_instant(facts.ts_ns)}"
    if facts.age_ns < max_age_ns:
        return f"{line}; it goes at {format_instant(facts.ts_ns + max_age_ns)}"
    if facts.never:
        return f"{line}; its Nats-TTL is never, so age does not remove it"
    if facts.scan_end is not None:
        return (
            f"{line}; the scan from the oldest sequence ended before it, at message {facts.scan_end:,}, which is "
            "young enough to stay"
        )
    return f"{line}; that is old enough"


def _age(facts: _Facts) -> str:
    return format_duration(facts.age_ns) if facts.age_ns >= 0 else f"-{format_duration(-facts.age_ns)}"


def _sentence(stream: str, policy: Policy, facts: _Facts, rule: str | None, *, goes: bool) -> str:
    named = f"{stream} {facts.seq:,} ({facts.subject})"
    if rule is not None and goes:
        return f"{named} goes: {_line(rule, policy, facts)}."
    if rule is not None:
        return (
            f"{named} stays: {_line(rule, policy, facts)}; but whole_segments is set, and its segment is open or "
            "holds messages that stay."
        )
    limits = [_line(name, policy, facts) for name in RULES if _is_set(policy, name)]
    return f"{named} stays: {'; '.join(limits) if limits else 'no limit is set'}."
