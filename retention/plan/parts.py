"""Parts: what goes of files that do not go whole, in memory, or in a file that one task writes and another reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.errors import DamagedError
from retention.storage import files
from schemas.plan import PLANNED_PARTS


class Part(Protocol):
    """Ranges of sequences that rules take of some files; picklable."""

    def rows(self) -> pa.Table:
        """The ranges, shape `PLANNED_PARTS`."""
        ...


@dataclass(frozen=True)
class PartInMemory:
    """A part that whoever plans holds in memory."""

    table: pa.Table

    def rows(self) -> pa.Table:
        """The ranges, shape `PLANNED_PARTS`."""
        return self.table


@dataclass(frozen=True)
class PartAtPath:
    """A part that lies in a file: its place and digest are all that travels."""

    location: str
    sha256: str

    def rows(self) -> pa.Table:
        """The ranges, shape `PLANNED_PARTS`.

        Raises:
            DamagedError: the file is missing, or not the one that was written.
        """
        content = files.read_bytes(self.location)
        if content is None or hashlib.sha256(content).hexdigest() != self.sha256:
            state = "is missing" if content is None else "is not what was written"
            raise DamagedError(
                f"{self.location}: this part of a plan {state}; nothing was changed; plan again"
            )
        return pa.ipc.open_file(pa.BufferReader(content)).read_all().cast(PLANNED_PARTS)


def write_part(location: str, rows: pa.Table) -> PartAtPath:
    """Write a part, shape `PLANNED_PARTS`, as an Arrow file; whoever has what this returns can read it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, PLANNED_PARTS) as writer:
        writer.write_table(rows.cast(PLANNED_PARTS).unify_dictionaries())
    content = sink.getvalue().to_pybytes()
    files.replace(location, content)
    return PartAtPath(location, hashlib.sha256(content).hexdigest())


def ranges_by_file(part: Part, numbers: Array) -> list[Array]:
    """The ranges of sequences of some files, both ends inclusive, ascending; shape (n, 2) each.

    Args:
        part: of a plan's files, ascending by `file`.
        numbers: row numbers of the plan's files.
    """
    rows = part.rows()
    bounds = np.searchsorted(rows["file"].to_numpy(), np.stack([numbers, numbers + 1]))
    ends = np.stack([rows["first_seq"].to_numpy(), rows["last_seq"].to_numpy()], axis=1)
    return [ends[start:end] for start, end in bounds.T.tolist()]
