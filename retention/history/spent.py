"""Records of the run history that nothing reads any more: a rule over them, newest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from retention.core.run_names import started_ns
from retention.history.runs import ABANDONED, REPAIR

_FLOOR, _LATEST, _POLICY = "floor", "latest_as_of_ns", "policy"


def spent_runs(
    outcomes: Iterable[Mapping[str, Any]], kept: Collection[str], cutoff_ns: int
) -> list[str]:
    """The runs whose records may go, oldest first.

    A record stays while files of its run can come back, while it is younger than the cutoff, and as long as no newer
    one says what it says for all before it: the sequences of its epoch, the latest instant of a pass, the policy. The
    newest record stays, and so do those of repairs, of purges that ended an epoch, and of runs without a certain
    outcome.

    Args:
        outcomes: all outcomes of a stream, newest first.
        kept: runs of which records of files are kept.
        cutoff_ns: runs that began at that instant or later stay, nanoseconds since the epoch.
    """
    carried: set[object] = set()
    spent = []
    for number, record in enumerate(outcomes):
        if number and _needs(record) <= carried and _may_go(record, kept, cutoff_ns):
            spent.append(str(record["run"]))
        carried |= _carries(record)
    return spent[::-1]


def _needs(record: Mapping[str, Any]) -> set[object]:
    """The facts that a newer record has to carry before this one may go."""
    needs: set[object] = set()
    if "next_seq" in record:
        needs.add((_FLOOR, record.get("epoch", 0)))
    if record.get("kind") == "apply" or _LATEST in record:
        needs.add(_LATEST)
    if _POLICY in record:
        needs.add(_POLICY)
    return needs


def _carries(record: Mapping[str, Any]) -> set[object]:
    """The facts that a record states for all before it."""
    if record.get("status") != "done":
        return set()
    carries: set[object] = {name for name in (_LATEST, _POLICY) if name in record}
    return carries | ({(_FLOOR, record.get("epoch", 0))} if _FLOOR in record else set())


def _may_go(record: Mapping[str, Any], kept: Collection[str], cutoff_ns: int) -> bool:
    is_certain = record.get("status") in {"done", ABANDONED}
    is_plain = record.get("kind") != REPAIR and "ends_epoch" not in record
    is_old = started_ns(record["run"], cutoff_ns) < cutoff_ns
    return is_certain and is_plain and is_old and record["run"] not in kept
