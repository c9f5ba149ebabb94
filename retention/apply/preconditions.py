"""Preconditions of a swap's commit: pinned files are unchanged, staged copies match the plan's counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.core.wording import counted
from retention.datafile.rewrite import RewriteResult
from retention.errors import StalePlanError, VerificationError
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.schemas.files import LOGGED_FILES

_PIN = LOGGED_FILES.names


def check_pins(plan: Plan, snapshot: Snapshot) -> None:
    """Compare the files that a plan pinned with the live files.

    Raises:
        StalePlanError: a pinned file is gone or has changed; the message counts and names them. Or the topic was
            purged, or a legal hold was placed or released.
    """
    if plan.header.epoch != snapshot.counters.epoch:
        raise StalePlanError(
            f"{plan.header.stream}: was purged or dropped since this plan was made; "
            "nothing was changed; plan again"
        )
    depends_on_holds = not plan.is_empty or plan.kept_by_holds
    if depends_on_holds and plan.pins.holds != snapshot.counters.holds:
        raise StalePlanError(
            f"{plan.header.stream}: a legal hold was placed or released since this plan was made; nothing was changed; "
            "plan again"
        )
    live = snapshot.files
    pinned = plan.actions.files.select(_PIN)
    changed = pinned.join(live.select(_PIN), keys=_PIN, join_type="left anti")
    if changed.num_rows:
        raise StalePlanError(
            f"{plan.header.stream}: {changed.num_rows} of {counted(pinned.num_rows, 'file')} of this plan "
            f"were removed or changed, such as {sorted(changed['path'].to_pylist())[0]}; "
            "nothing was changed; plan again"
        )


def check_copy(stream: str, planned: Mapping[str, Any], written: RewriteResult) -> None:
    """Compare a staged copy, as read back, with the remainder that the plan expects.

    Args:
        stream: the stream's name.
        planned: the rewritten file's row of `PLANNED_FILES`.
        written: the copy, in one file or several.

    Raises:
        VerificationError: messages or bytes differ.
    """
    for name, copied in (("messages", written.messages), ("bytes", written.bytes)):
        expected = planned[name] - planned[f"removed_{name}"]
        if copied != expected:
            raise VerificationError(
                f"{stream}: the copy of {planned['path']} has {copied:,} {name}, and the plan says "
                f"{expected:,}: the file contradicts its statistics; nothing was committed; restore the file from a "
                "copy"
            )
