"""Settling what interrupted runs left: the table knows whether they committed, and the run history is told."""

from __future__ import annotations

from retention.opened import OpenedStream
from retention.passes.erasing import erase_recorded
from retention.passes.history import History


def settle_interrupted(opened: OpenedStream, history: History) -> None:
    """Give every interrupted run its outcome, under the maintenance lease; no live file of the table is touched."""
    for run in history.unfinished():
        begun = history.begun(run) or {}
        version = opened.store.find_commit(run)
        if version is None:
            history.finish(run, begun | {"status": "abandoned"})
        else:
            erase_recorded(opened, begun)
            history.finish(
                run, begun | {"status": "done", "settled": True, "version_after": version}
            )
