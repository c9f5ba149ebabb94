"""The stored offsets of a topic: how far each consumer and each group has read every partition, as one document."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from retention import files
from retention.checks import checked, unchecked
from retention.errors import BusyError, DamagedError
from retention.rules.iggy import barrier_of
from retention.segments import Counters
from retention.stores.versions import versions_in

DIRECTORY = "offsets"
"""Below the topic's root."""
ATTEMPTS = 50
_LONGEST_PAUSE_S = 0.05

ReaderKind = Literal["consumer", "group"]


@dataclass(frozen=True, order=True)
class Reader:
    """Somebody who reads a partition."""

    partition: int
    kind: ReaderKind
    name: str
    """The number by which Iggy knows it, in decimal: that of a named consumer is the XXH32 of its name."""


@dataclass(frozen=True)
class StoredOffset:
    """How far a reader has come."""

    offset: int
    """Of the last message that it has read."""
    stored_ns: int
    """When it said so, nanoseconds since the epoch; of an import, when that was."""


@dataclass(frozen=True)
class Offsets:
    """All stored offsets of a topic."""

    of: Mapping[Reader, StoredOffset] = field(default_factory=dict)
    version: int = 0
    """How many documents there were before this one, and this one; 0: it is not written yet."""
    revision: int = 0
    """How often a partition came to be held longer: by somebody new, or by one who went back."""
    counted: bool = True
    """Whether the message table's log counts the last of those changes."""
    origin: str | None = None
    """The writer's batch that brought them: they belong to nothing unless that batch was committed."""

    @property
    def barriers(self) -> dict[int, int]:
        """Partition → the lowest offset that anybody has stored; partitions that nobody holds are left out."""
        partitions = {reader.partition for reader in self.of}
        found = {
            partition: barrier_of(
                stored.offset for reader, stored in self.of.items() if reader.partition == partition
            )
            for partition in partitions
        }
        return {partition: barrier for partition, barrier in found.items() if barrier is not None}


Change = Callable[[Offsets], Offsets]
"""From what is to what shall be; applied again, also to its own outcome, it changes nothing more."""


class OffsetTable:
    """Reads and writes the stored offsets of one topic."""

    def __init__(self, root: str) -> None:
        self._versions = versions_in(files.join(root, DIRECTORY))

    def live(self, counters: Counters) -> Offsets:
        """The offsets that count.

        Args:
            counters: of the message table: they tell which imports were committed.

        Raises:
            DamagedError: the document is not what was written.
        """
        found = self.read()
        if found.origin is None or counters.batches.get(found.origin) is not None:
            return found
        return replace(found, of={})

    def read(self) -> Offsets:
        """The newest document.

        Raises:
            DamagedError: it is not what was written.
        """
        newest = self._versions.newest()
        if newest is None:
            return Offsets()
        location, version, content = newest
        try:
            return _parsed(json.loads(content), version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(
                f"{location}: these stored offsets cannot be read ({error}); what consumers have not read yet cannot "
                "be told, so nothing was changed; restore the file from a copy"
            ) from error

    def update(self, change: Change) -> Offsets:
        """Put the changed document in place of the newest one; nothing is written if it is the same.

        Raises:
            DamagedError: the newest document is not what was written.
            BusyError: rivals kept coming first.
        """
        for _ in range(ATTEMPTS):
            before = self.read()
            after = replace(change(before), version=before.version)
            if after == before:
                return after
            after = replace(after, version=before.version + 1)
            if self._versions.add(after.version, _content(after)):
                self._versions.tidy()
                return after
            time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311
        raise BusyError(
            f"{self._versions.directory}: {ATTEMPTS} times another process stored an offset first; this one was not "
            "stored; try again later"
        )


def _content(offsets: Offsets) -> bytes:
    rows = [
        [reader.partition, reader.kind, reader.name, stored.offset, stored.stored_ns]
        for reader, stored in sorted(offsets.of.items())
    ]
    said = {**vars(offsets), "of": rows}
    return json.dumps(checked(said), separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(said: dict[str, object], version: int) -> Offsets:
    fields = unchecked(said)
    rows = fields.pop("of")
    of = {
        Reader(part, kind, name): StoredOffset(offset, ns) for part, kind, name, offset, ns in rows
    }
    found = Offsets(of=of, **fields)
    if found.version != version:
        raise ValueError(f"it is version {found.version}")
    return found
