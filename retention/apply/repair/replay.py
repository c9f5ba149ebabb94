"""Repair of a stream whose replay cannot go on, because the record of its last pass is missing or damaged."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.core.json_object import JsonObject
from retention.core.labels import on_stream
from retention.core.table_requirements import AssertReplay
from retention.core.table_updates import SetReplay
from retention.errors import DamagedError
from retention.ports import Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.stores.replay_states import ReplayStates


@dataclass(frozen=True)
class ReplayRepair:
    """A replay that may not be able to go on."""

    stream: str
    reason: str | None
    """Why the record cannot be read; None: the next pass can go on."""
    is_done: bool = False
    """Whether the next pass begins anew."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return self.reason is not None

    def as_json(self) -> JsonObject:
        """The repair as JSON values."""
        return {"stream": self.stream, "reason": self.reason, "repaired": self.is_done}


@on_stream
def find_lost_replay(opened: OpenedStream) -> ReplayRepair:
    """Find out whether the next pass can go on with the replay; nothing is changed."""
    if not opened.table.exists():
        return ReplayRepair(opened.name, None)
    try:
        ReplayStates(opened.layout, opened.store.snapshot().counters).read()
    except DamagedError as error:
        return ReplayRepair(opened.name, str(error))
    return ReplayRepair(opened.name, None)


@on_stream
def repair_lost_replay(opened: OpenedStream) -> ReplayRepair:
    """Let the next pass replay what is stored from the beginning, if it cannot go on from the last one.

    Raises:
        BusyError: another run is in progress.
    """
    with maintaining(opened):
        lost = find_lost_replay(opened)
        if not lost.is_needed:
            return lost
        snapshot = opened.store.snapshot()
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=FILE_STATS.empty_table(),
            metadata={"run": f"repair-{uuid.uuid4().hex}"},
            requirements=[AssertReplay(snapshot.counters.replay)],
            updates=[SetReplay(0)],
        )
        opened.store.commit(swap, snapshot)
        return replace(lost, is_done=True)
