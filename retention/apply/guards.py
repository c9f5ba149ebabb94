"""Refusals between a decision and its execution: instants, changed policies and consumers, large removals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from retention.apply.approval import Approved
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.units import format_instant
from retention.errors import BusyError, RefusedError, StalePlanError
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.exceeded_guards import findings_of
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.rules import WORKQUEUE

if TYPE_CHECKING:
    from retention.rules.removal_guards import GuardFinding, Loss, Unit


@dataclass(frozen=True)
class Guards:
    """The refusals that the caller lifts, and a person's approvals."""

    allow_future: bool = False
    allow_rewind: bool = False
    allow_large: bool = False
    """Whether a pass may remove more than the stream's `guards` permit at once."""
    reason: str | None = None
    """The caller's reason for lifting them, kept in the run's record."""
    approved: Mapping[str, Approved] | None = None
    """Approved plans, by stream; None: a person applies, and no approval is needed."""
    skip_superseded: bool = False
    """Whether a stream with a later applied instant is skipped instead of refused."""


class Opened(Protocol):
    """A stream or table, opened for one operation."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def clock(self) -> Callable[[], int]:
        """The wall clock, nanoseconds since the epoch."""
        ...

    @property
    def since_ns(self) -> int:
        """The start of the process's work, nanoseconds since the epoch."""
        ...


def check_instant(
    opened: Opened, history: History, as_of_ns: int, guards: Guards, unit: Unit = "message"
) -> None:
    """Refuse an instant later than the clock or earlier than the last applied one, unless the caller permits it.

    Raises:
        RefusedError: naming both instants.
        BusyError: the instant was the clock's, and another run has since applied a later one.
    """
    now = opened.clock()
    if as_of_ns > now and not guards.allow_future:
        raise RefusedError(
            f"{opened.name}: as_of {format_instant(as_of_ns)} is later than the clock ({format_instant(now)}); "
            f"young {unit}s would be removed; give an earlier instant, or --allow-future if you mean it"
        )
    last = history.last_as_of_ns()
    if last is None or as_of_ns >= last or guards.allow_rewind:
        return
    if opened.since_ns <= as_of_ns and last <= now:
        raise BusyError(
            f"{opened.name}: another run has applied a later instant ({format_instant(last)}) since this one began "
            f"({format_instant(as_of_ns)}); nothing was changed; run again"
        )
    if last > now and unit == "message":
        raise RefusedError(
            f"{opened.name}: as_of {format_instant(as_of_ns)} is earlier than the last applied one, "
            f"{format_instant(last)}, which is later than the clock; if a clock was wrong then, "
            f"{command('repair clock', opened.name, options='--yes')} settles it, and names the run without --yes; "
            "--allow-rewind permits this run"
        )
    raise RefusedError(
        f"{opened.name}: as_of {format_instant(as_of_ns)} is earlier than the last applied one "
        f"({format_instant(last)}); give a later instant, or --allow-rewind if you mean it"
    )


def superseded_answer(
    opened: OpenedStream, history: History, guards: Guards, as_of_ns: int
) -> RunReport | None:
    """Answer for a pass that a later one has superseded, where that is not an error; None: none has.

    An approval still unspent when a later instant was applied is void.
    """
    superseded = superseding(opened, history, guards, as_of_ns)
    if superseded is None:
        return None
    return replace(RunReport.of_nothing(opened.name, as_of_ns), superseded_by=superseded)


def superseding(
    opened: Opened, history: History, guards: Guards, as_of_ns: int
) -> dict[str, object] | None:
    """The later pass that supersedes one, `as_of_ns` and `run`, where that is not an error; None: none has."""
    is_skipped = guards.skip_superseded or opened.name in (guards.approved or {})
    if not is_skipped or guards.allow_rewind:
        return None
    last = history.last_as_of_ns()
    if last is None or not as_of_ns < last <= opened.clock():
        return None
    return {"as_of_ns": last, "run": history.run_at(last)}


def check_update(opened: OpenedStream, history: History) -> None:
    """Refuse a configuration change that a server would refuse for the stream (STREAM.UPDATE).

    Raises:
        RefusedError: with the server's error code.
        DamagedError: a consumer's record cannot be read.
    """
    before = history.last_policy() or {}
    if before.get("allow_msg_ttl") and not opened.config.allow_msg_ttl:
        raise _ttl_switched_off(opened)
    retention = before.get("retention", opened.config.retention)
    if retention != opened.config.retention and WORKQUEUE in {retention, opened.config.retention}:
        raise RefusedError(
            f"{opened.name}: retention was {retention} at the stream's last run, and it is "
            f"{opened.config.retention} now (stream configuration update can not change retention policy to/from "
            f"workqueue, server error 10052); nothing was changed; write retention: {retention} again, or configure "
            "another stream"
        )
    _check_limits_of_consumers(opened)


def _check_limits_of_consumers(opened: OpenedStream) -> None:
    """Refuse `consumer_limits` below those of a stored consumer; listed consumers take the listed values."""
    limits = opened.config.consumer_limits
    bounds = {key: bound for key, bound in limits if bound > 0}
    if not bounds or not opened.table.exists():
        return
    from retention.stores.consumer_table import ConsumerTable

    listed = {consumer.name for consumer in opened.config.consumers}
    records = ConsumerTable(opened.root).live(opened.store.snapshot().counters)
    above = [
        record.consumer
        for record in records
        if record.consumer not in listed
        and any(record.config.get(key, 0) > bound for key, bound in bounds.items())
    ]
    if above:
        raise RefusedError(
            f"{opened.name}: consumer_limits are lower than what stored consumers have (change to limits violates "
            f"consumers: {', '.join(above)}; server error 10069); nothing was changed; raise {' and '.join(bounds)} of "
            "consumer_limits, or update those consumers first"
        )


def _ttl_switched_off(opened: OpenedStream) -> RefusedError:
    return RefusedError(
        f"{opened.name}: allow_msg_ttl was on when the stream was worked on last, and it is off now (message TTL "
        "status can not be disabled, server error 10052); nothing was changed; write allow_msg_ttl: true again: "
        "messages rely on being gone in time"
    )


def check_policy(opened: OpenedStream, plan: Plan) -> None:
    """Refuse a plan made under another policy than the stream's current one.

    Raises:
        StalePlanError: naming the change.
    """
    refuse_other_policy(
        plan.header.stream, opened.config.policy().as_json(), plan.header.policy.as_json()
    )


def refuse_other_policy(name: str, now: Mapping[str, object], then: Mapping[str, object]) -> None:
    """Refuse a plan of a stream or table whose policy has changed since.

    Raises:
        StalePlanError: naming the change.
    """
    changed = [
        f"{name} {then.get(name)} → {now.get(name)}"
        for name in sorted(now.keys() | then.keys())
        if now.get(name) != then.get(name)
    ]
    if changed:
        raise StalePlanError(
            f"{name}: the policy has changed since this plan was made ({'; '.join(changed)}); "
            "nothing was changed; plan again"
        )


def guarded(opened: OpenedStream, plan: Plan, guards: Guards, loss: Loss | None = None) -> Plan:
    """Check a pass against the guards of its stream; the plan with their findings.

    A removal that a person requests is not a pass, and no guard applies to it.

    Args:
        opened: the stream.
        plan: the pass.
        guards: what the caller lifts.
        loss: the pass's loss in the current table; None: the plan was made from it.

    Raises:
        RefusedError: the pass removes more than a guard permits, and the caller does not lift that.
    """
    rule = opened.config.guards.rule()
    if loss is None:
        findings = findings_of(rule, plan)
    else:
        from retention.rules.removal_guards import guard_findings

        findings = guard_findings(rule, loss)
    return replace(plan, guards=permitted(opened.name, findings, guards))


def permitted(
    name: str, findings: tuple[GuardFinding, ...], guards: Guards
) -> tuple[GuardFinding, ...]:
    """The findings on a pass that continues, with those lifted that the caller lifts.

    Raises:
        RefusedError: the pass removes more than a guard permits, and the caller does not lift that.
    """
    if guards.allow_large:
        findings = tuple(replace(finding, lifted=finding.then == "refuse") for finding in findings)
    refusing = [finding.sentence for finding in findings if finding.refuses]
    if refusing:
        raise large_error(name, refusing)
    return findings


def large_error(stream: str, sentences: Sequence[str]) -> RefusedError:
    """The refusal of a pass that removes more than guards permit; the sentences say which limit is exceeded."""
    return RefusedError(
        f"{stream}: the pass {', and '.join(sentences)} (guards); nothing was changed; look at "
        f"{command('plan', stream)}, then write another limit, or let it through once with --allow-large"
    )


def check_archive(opened: OpenedStream, plan: Plan) -> None:
    """Refuse a plan made when files were archived to another location, or not at all.

    Raises:
        StalePlanError: naming both locations.
    """
    now, then = opened.config.archive, plan.header.policy.archive
    if now != then:
        raise StalePlanError(
            f"{plan.header.stream}: the archive was {then or 'none'} when this plan was made, and "
            f"is {now or 'none'} now; nothing was changed; plan again"
        )


def check_consumers(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> None:
    """Refuse a plan based on consumers that have been created, edited or deleted since.

    A consumer's progress does not matter: floors only rise, and released messages stay released.

    Args:
        opened: the stream.
        plan: the plan.
        snapshot: the version on which the plan commits, opened before consumers are read.

    Raises:
        StalePlanError: naming them.
        DamagedError: a consumer's record cannot be read.
    """
    if plan.pins.consumers is None:
        return
    now = _pinnable(opened, snapshot)
    then = {pin.consumer: (pin.revision, pin.version) for pin in plan.pins.consumers}
    nothing = (-1, -1)
    changed = [
        consumer
        for consumer in sorted(now.keys() | then.keys())
        if now.get(consumer, nothing)[0] != then.get(consumer, nothing)[0]
        or now[consumer][1] < then[consumer][1]
    ]
    if changed:
        raise StalePlanError(
            f"{plan.header.stream}: consumers that this plan rests on have been created, edited or deleted since "
            f"({', '.join(changed)}); nothing was changed; plan again"
        )


def _pinnable(opened: OpenedStream, snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """Revision and version of everything besides the table that a plan can depend on."""
    from retention.planners.topic import OFFSETS
    from retention.stores.consumer_table import ConsumerTable
    from retention.stores.offset_table import OffsetTable

    if opened.config.topic is not None:
        offsets = OffsetTable(opened.root).live(snapshot.counters)
        return {OFFSETS: (offsets.revision, offsets.version)}
    records = ConsumerTable(opened.root).live(snapshot.counters)
    return {record.consumer: (record.revision, record.version) for record in records}
