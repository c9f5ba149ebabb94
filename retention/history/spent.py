"""The rule for records of the run history that are no longer needed, applied newest first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from retention.core.run_names import started_ns
from retention.history.kinds import Applied, PermittedRun, Repaired
from retention.history.record import RunRecord

_FLOOR, _LATEST, _POLICY = "floor", "latest_as_of_ns", "policy"
_FACTS = {_FLOOR, _LATEST, _POLICY}
_Fact: TypeAlias = tuple[str, int | None]
"""A fact that a record states for all earlier ones; the floor of sequences has its epoch."""


def spent_runs(
    runs: Iterable[str],
    read: Callable[[str], RunRecord | None],
    kept: Collection[str],
    cutoff_ns: int,
) -> list[str]:
    """The runs with deletable records, oldest first.

    A record is kept while files of its run can be restored, while it is younger than the cutoff, and until a newer
    record states the same facts for all earlier ones: the sequences of its epoch, the latest instant of a pass, the
    policy. The newest record is always kept, and so are records of repairs, of purges that ended an epoch, of runs
    without a certain outcome, and of runs that spent an approval (it could be spent again otherwise).

    Args:
        runs: all runs of a stream with an outcome, newest first.
        read: gives the outcome of a run; not called for young runs after newer ones stated every fact.
        kept: runs with records of files.
        cutoff_ns: runs that began at that instant or later are kept, nanoseconds since the epoch.
    """
    carried: set[_Fact] = set()
    spent = []
    for number, run in enumerate(runs):
        is_old = started_ns(run, cutoff_ns) < cutoff_ns
        if not is_old and {name for name, _ in carried} == _FACTS:
            continue
        record = read(run)
        if record is None:
            continue
        if number and is_old and run not in kept and _needs(record) <= carried and _may_go(record):
            spent.append(run)
        carried |= _carries(record)
    return spent[::-1]


def _needs(record: RunRecord) -> set[_Fact]:
    """The facts that a newer record must state before this one may be deleted."""
    needs: set[_Fact] = set()
    if record.next_seq is not None:
        needs.add((_FLOOR, record.epoch))
    if isinstance(record, Applied) or record.latest_as_of_ns is not None:
        needs.add((_LATEST, None))
    if record.policy is not None:
        needs.add((_POLICY, None))
    return needs


def _carries(record: RunRecord) -> set[_Fact]:
    """The facts that a record states for all earlier ones."""
    if not record.is_done:
        return set()
    epochs = {_FLOOR: record.epoch}
    return {(name, epochs.get(name)) for name in _FACTS if getattr(record, name) is not None}


def _may_go(record: RunRecord) -> bool:
    spends = isinstance(record, PermittedRun) and record.approval is not None
    is_last_word = isinstance(record, Repaired) or record.ends_epoch is not None or spends
    return record.is_certain and not is_last_word
