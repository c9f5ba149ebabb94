"""Writing once: a writer's batches have numbers that rise, and one that is there already is not written again."""

from __future__ import annotations

from dataclasses import dataclass

from retention.errors import UsageError
from retention.passes.partitions import TURN
from retention.ports import Snapshot

_WRITER = "append"
"""The writer that an append has which names none."""


@dataclass(frozen=True)
class BatchIdentity:
    """Makes a write exactly once: a batch whose number is not above the writer's last is not written again."""

    writer: str
    batch: int
    also: str | None = None
    """A second name under which the commit keeps the same number."""

    def __post_init__(self) -> None:
        """Refuse the name under which topics count.

        Raises:
            UsageError: it is the writer's.
        """
        if self.writer == TURN:
            raise UsageError(f"the writer {TURN} is how topics count turns; name it otherwise")

    @property
    def batches(self) -> dict[str, int]:
        """What the commit keeps: names and numbers."""
        return {name: self.batch for name in (self.writer, self.also) if name is not None}


def batch_identity(writer: str | None, batch: int | None) -> BatchIdentity | None:
    """What makes a write exactly once; None if neither is given.

    Raises:
        UsageError: one is given without the other.
    """
    if writer is None and batch is None:
        return None
    if writer is None or batch is None:
        raise UsageError(
            "a writer and a batch number belong together: the writer's name, and a number that rises with each of its "
            "batches; give both or neither"
        )
    return BatchIdentity(writer, batch)


def append_identity(writer: str | None, batch: int | None) -> BatchIdentity | None:
    """What makes an append exactly once; its writer has a name of its own, if none is given.

    Raises:
        UsageError: a writer is given without a batch.
    """
    return batch_identity(_WRITER if writer is None and batch is not None else writer, batch)


def is_repeat(snapshot: Snapshot, identity: BatchIdentity | None) -> bool:
    """Whether the writer has written this batch, or a later one, already."""
    if identity is None:
        return False
    last = snapshot.counters.batches.get(identity.writer)
    return last is not None and identity.batch <= last
