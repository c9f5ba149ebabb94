"""Explaining one missing message: the run that removed it and why, or the limits of what is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.position import Position, locate
from retention.core.units import format_instant
from retention.core.wording import counted
from retention.errors import MissingMessageError
from retention.history.kinds import Dropped, Repaired, RestoredRun
from retention.history.runs import History, history_of
from retention.inspect.removals import Recovery, RemovalRun, removals_of, rows_of
from retention.plan.explanation import Explanation
from retention.planners.plan_rows import MessageRef
from retention.rules import RULES
from retention.rules.facts import spell_age
from retention.schemas.deadlines import NEVER
from retention.schemas.messages import RULE_COLUMNS


@dataclass(frozen=True)
class _Taken:
    """A message that a run removed, or may have."""

    removal: RemovalRun
    row: dict[str, Any]
    """The range that included it, a row of `RUN_RANGES`."""
    is_certain: bool
    """Whether the range had it; False: the range encloses it and has holes, and the deciding file is deleted."""


def explain_removed(opened: OpenedStream, ref: MessageRef, now_ns: int) -> Explanation:
    """Explain a message that is not in a stream.

    The explanation names the newest run in force that removed it. A run of an earlier version of this program recorded
    whole files only: it may have removed the message, and the explanation says only that.

    Args:
        opened: the stream, which has a table.
        ref: partition and sequence of the message.
        now_ns: the clock, which decides whether grace is over.

    Raises:
        MissingMessageError: no record names it; the sentence says what that does and does not imply.
        RefusedError, DamagedError: the table or a record cannot be read.
    """
    history, position = history_of(opened.warehouse, opened.name), locate(opened)
    outcomes = list(history.outcomes())
    removals = list(removals_of(opened, outcomes))
    epoch = position.snapshot.counters.epoch
    counting = {known for known in _epochs(removals) if history.continuing(known)[-1] == epoch}
    here = [removal for removal in removals if removal.epoch in counting]
    restores = [record.run for record in outcomes if isinstance(record, RestoredRun)]
    taker, undone = _taker(here, ref, restores)
    if taker is not None:
        return _explained(taker, ref, now_ns)
    next_seq = position.tail(ref[0]).next_seq
    if ref[1] < next_seq:
        for removal in here:
            if removal.undone_by is None and _may_have_taken(removal, ref):
                return _perhaps(removal, ref, now_ns)
        deleted = [
            removal for removal in here if removal.undone_by is None and removal.is_forgotten()
        ]
        if deleted:
            raise MissingMessageError(
                f"{_named(opened, ref)} is missing, and it is unknown whether a run removed it: "
                f"{_deleted(deleted)}"
            )
        raise MissingMessageError(_unrecorded(opened, position, ref, undone))
    before = [removal for removal in removals if removal.epoch not in counting]
    earlier = next((hit for hit in _taken(before, ref) if hit.removal.undone_by is None), None)
    if earlier is not None:
        return _explained(earlier, ref, now_ns, _of_epoch(history, earlier.removal))
    deleted = [removal for removal in before if removal.is_forgotten()]
    if deleted:
        raise MissingMessageError(
            f"{_named(opened, ref)} is missing: the next message gets {next_seq:,}; it is unknown whether one with "
            f"that sequence was stored before the sequences started again: {_deleted(deleted)}"
        )
    raise MissingMessageError(
        f"{_named(opened, ref)} was never stored: the next message gets {next_seq:,}; `retention state` shows the "
        "first and last sequence"
    )


def _epochs(removals: Sequence[RemovalRun]) -> set[int]:
    return {removal.epoch for removal in removals}


def _taker(
    removals: Sequence[RemovalRun], ref: MessageRef, restores: Sequence[str]
) -> tuple[_Taken | None, list[RemovalRun]]:
    """The newest run in force that removed a message, or otherwise may have; and the newer ones that were undone.

    A restore from an archive may have brought the message back, so that a newer run that may have removed it counts.
    """
    undone: list[RemovalRun] = []
    perhaps: _Taken | None = None
    for taken in _taken(removals, ref):
        if taken.removal.undone_by is not None:
            undone += [taken.removal] if taken.is_certain else []
        elif taken.is_certain:
            if perhaps is not None and any(
                taken.removal.run < restore < perhaps.removal.run for restore in restores
            ):
                break
            return taken, undone
        else:
            perhaps = perhaps or taken
    return perhaps, undone


def _taken(removals: Sequence[RemovalRun], ref: MessageRef) -> Iterator[_Taken]:
    for removal in removals:
        reaching = removal.taken.reaching(removal.run, *ref)
        for row in rows_of(reaching.filter(pc.is_valid(reaching["rules"])), ref[1]):
            held = removal.holds(row, ref[1])
            if held is not False:
                yield _Taken(removal, row, is_certain=held is True)


def _explained(taken: _Taken, ref: MessageRef, now_ns: int, of_epoch: str = "") -> Explanation:
    removal, rules = taken.removal, taken.row["rules"]
    message = _message(taken, ref[1])
    recovery = removal.recovery(now_ns)
    is_certain = taken.is_certain and removal.outcome.is_done
    named = _named(removal.opened, ref, message)
    reasons = [removal.reason(rule) for rule in rules]
    earlier = "" if taken.is_certain else " or an earlier one"
    why = " or ".join(reasons) if reasons else _what(removal)
    return Explanation(
        removal.opened.name,
        *ref,
        subject=message.get("subject"),
        ts_ns=message.get("ts_ns"),
        size=message.get("size", taken.row["bytes"] if taken.row["messages"] == 1 else None),
        goes=False,
        rule=rules[0] if len(rules) == 1 else None,
        sentence=(
            f"{named}{of_epoch} was removed by {_by_run(removal)}{earlier}: {why}; {recovery.sentence}."
        ),
        arithmetic=tuple(_lines(taken, message)),
        removed=_as_json(removal, rules, recovery, certain=is_certain),
    )


def _perhaps(removal: RemovalRun, ref: MessageRef, now_ns: int) -> Explanation:
    """Explain a message in the range of a file that a run of an earlier version removed."""
    rules = [rule for rule in RULES if rule in removal.outcome.by_rule]
    recovery = removal.recovery(now_ns)
    return Explanation(
        removal.opened.name,
        *ref,
        subject=None,
        ts_ns=None,
        size=None,
        goes=False,
        rule=None,
        sentence=(
            f"{_named(removal.opened, ref)} may have been removed by {_by_run(removal)}: an earlier version of this "
            "program recorded the files that a run removed, not the messages, and the sequences of one include it; "
            f"{recovery.sentence}, if so."
        ),
        arithmetic=(*(removal.reason(rule) for rule in rules), f"run by {removal.who()}"),
        removed=_as_json(removal, rules, recovery, certain=False),
    )


def _may_have_taken(removal: RemovalRun, ref: MessageRef) -> bool:
    """Whether a run without a record of its ranges removed a file with a range that encloses a message."""
    reaching = removal.taken.reaching(removal.run, *ref)
    of_files = reaching.filter(pc.is_null(reaching["rules"]))
    reaches = pc.any(pc.greater(of_files["messages"], 0), min_count=0)
    return bool(removal.messages) and bool(reaches.as_py())


def _unrecorded(
    opened: OpenedStream, position: Position, ref: MessageRef, undone: Sequence[RemovalRun]
) -> str:
    """The words for a message that was assigned, is missing, and is not known to be removed by a run in force."""
    named = _named(opened, ref)
    if undone:
        removal = undone[0]
        return (
            f"{named} is missing, and no run in force removed it: run {removal.run} did, run "
            f"{removal.undone_by} restored it, and its later removal is not in the run history: another program "
            "removed it, or an older copy of the table was restored"
        )
    highest = position.inventory.counters.removed.get(ref[0])
    expired = (
        f"; the table says that removals reach up to {highest:,}, so a run without records may have removed it"
        if highest is not None and ref[1] <= highest
        else ""
    )
    return (
        f"{named} is missing, and no recorded run removed it{expired}. It may have existed: another program may have "
        "removed it, or the server before it was copied here; or its sequence was assigned, but nothing was stored; "
        "`retention history` lists the runs"
    )


def _deleted(removals: Sequence[RemovalRun]) -> str:
    """The words for runs with removed messages that are no longer known, the newest one first."""
    newest, *others = removals
    more = f", nor of {counted(len(others), 'run')} before it" if others else ""
    return (
        f"run {newest.run} of {format_instant(newest.removed_ns)} removed {counted(newest.messages, 'message')}, but "
        f"their sequences are not recorded{more}: earlier versions of this program kept no such record, or reclaim "
        "deleted it; `retention history` lists the runs"
    )


def _named(opened: OpenedStream, ref: MessageRef, message: dict[str, object] | None = None) -> str:
    partition = f" of partition {ref[0]}" if opened.dialect.is_topic else ""
    subject = f" ({message['subject']})" if message and not opened.dialect.is_topic else ""
    return f"{opened.name} {ref[1]:,}{partition}{subject}"


def _by_run(removal: RemovalRun) -> str:
    unknown = "" if removal.outcome.is_done else " (it is unknown whether it committed)"
    return f"run {removal.run} of {format_instant(removal.removed_ns)}{unknown}"


def _what(removal: RemovalRun) -> str:
    if isinstance(removal.outcome, Repaired):
        return f"a repair ({removal.outcome.repair})"
    return "an undo of the run that wrote it, a delete marker"


def _of_epoch(history: History, removal: RemovalRun) -> str:
    """The words for a message of an epoch that a purge or a drop ended."""
    ends = (
        record
        for record in history.outcomes()
        if record.ends_epoch == removal.epoch and record.is_done
    )
    end = next(ends, removal.outcome)
    if isinstance(end, Dropped):
        return f", of the table that run {end.run} dropped,"
    return f", of the offsets that ended when run {end.run} purged the topic,"


def _message(taken: _Taken, seq: int) -> dict[str, Any]:
    """The narrow columns of the message, from its former file; empty if the file no longer exists."""
    rows = taken.removal.read(taken.row, RULE_COLUMNS)
    messages = [] if rows is None else rows.filter(pc.equal(rows["seq"], seq)).to_pylist()
    return dict(messages[0]) if messages else {}


def _lines(taken: _Taken, message: dict[str, Any]) -> Iterator[str]:
    row, outcome = taken.row, taken.removal.outcome
    if message:
        age = spell_age(outcome.as_of_ns - message["ts_ns"])
        yield f"it was stored {format_instant(message['ts_ns'])}, and {age} old then; {message['size']:,} bytes"
    if message and message["deadline_ns"] not in (None, NEVER):
        yield f"its own TTL ended {format_instant(message['deadline_ns'])}"
    if not message:
        yield "its subject and its time are not recorded: its file is deleted"
    yield f"the run was as of {format_instant(outcome.as_of_ns)}"
    if len(row["rules"]) > 1:
        shares = zip(row["rules"], row["counts"], strict=True)
        counted = ", ".join(f"{rule} {number:,}" for rule, number in shares)
        yield (
            f"of {row['messages']:,} messages in its range the number by rule is on record ({counted}), not the rule "
            "of each"
        )
    yield f"it was in segment {row['segment']} ({row['path']})"
    yield f"run by {taken.removal.who()}"


def _as_json(
    removal: RemovalRun, rules: Sequence[str], recovery: Recovery, *, certain: bool
) -> dict[str, Any]:
    outcome = removal.outcome
    return {
        "run": removal.run,
        "kind": outcome.kind,
        "removed_ns": removal.removed_ns,
        "as_of_ns": outcome.as_of_ns,
        "rules": list(rules),
        "who": outcome.who,
        "spark_application": outcome.spark_application,
        "certain": certain,
        "recovery": recovery.as_json(),
    }
