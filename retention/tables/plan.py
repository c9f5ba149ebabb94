"""The plan of a pass over a table in place: the files that go, and the rows that go from others."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyroaring import BitMap64

from retention.core.table_policy import LIMITS, TablePolicy
from retention.delta.entries import vector_id
from retention.rules.removal_guards import GuardFinding


@dataclass(frozen=True)
class FileRemovals:
    """The rows that go from one file."""

    add: Mapping[str, Any]
    """The file's `add` action when the plan was made; a commit finds the file live with this vector, or refuses."""
    rows: Mapping[str, BitMap64 | None]
    """Limit → positions of the rows that go by it; None: all rows that its vector has left."""
    live: int
    """The number of rows that its vector has left."""

    @property
    def is_whole(self) -> bool:
        """Whether no row of the file stays."""
        return self.removed == self.live

    @cached_property
    def by_limit(self) -> dict[str, int]:
        """Limit → the number of rows that go by it."""
        return {
            limit: self.live if rows is None else len(rows) for limit, rows in self.rows.items()
        }

    @property
    def removed(self) -> int:
        """The number of rows that go."""
        return sum(self.by_limit.values())

    @cached_property
    def dead(self) -> BitMap64:
        """The positions of the rows that go from a file that stays."""
        return BitMap64.union(
            BitMap64(), *(rows for rows in self.rows.values() if rows is not None)
        )

    def digested(self) -> Iterator[bytes]:
        """The bytes by which a plan's id depends on these removals."""
        identity = (
            vector_id(self.add.get("deletionVector")),
            self.add["size"],
            self.add.get("tags"),
        )
        yield json.dumps([self.add["path"], *identity], sort_keys=True).encode()
        for limit in LIMITS:
            if limit in self.rows:
                rows = self.rows[limit]
                yield limit.encode() + (b"" if rows is None else rows.serialize())


@dataclass(frozen=True)
class Unlimited:
    """Rows that stay because a limit does not concern them, or not yet."""

    without_time: int = 0
    """Rows without a time, of which none goes by age, nor by a count."""
    without_key: int = 0
    """Rows without a key, of which none goes by `max_rows_per_key`."""
    without_size: int = 0
    """Rows without a size, which count as 0 bytes."""
    ahead: int = 0
    """Rows whose time is later than the plan's instant."""


@dataclass(frozen=True)
class TablePlan:
    """One pass over a table at one instant, as decided; applied later it does exactly this, or is refused."""

    table: str
    location: str
    table_id: str
    version: int
    as_of_ns: int
    policy: TablePolicy
    removals: tuple[FileRemovals, ...]
    """In order of paths."""
    files: int
    """The live files of the table."""
    unlimited: Unlimited = field(default_factory=Unlimited)
    """Counted in the files whose rows were read."""
    files_read: int = 0
    bytes_read: int = 0
    rows: int = 0
    """The live rows of the table."""
    guards: tuple[GuardFinding, ...] = ()
    """The guards of the table that it exceeds; neither part of its id nor of a saved plan."""
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """Reason → the number of files of a directory that stay whatever rows of them the limits remove."""

    holds: tuple[str, ...] = ()
    """The legal holds under which it was made."""
    kept_by_holds: Mapping[str, int] | None = None
    """Legal hold → the rows that it keeps from limits; None: none is in effect."""

    @cached_property
    def plan_id(self) -> str:
        """SHA-256 over all that the plan decides; equal plans have equal ids."""
        head = {
            "table": self.table,
            "location": self.location,
            "table_id": self.table_id,
            "as_of_ns": self.as_of_ns,
            "policy": self.policy.as_json(),
        }
        if self.holds:
            head["holds"] = self.holds
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        for removals in self.removals:
            for part in removals.digested():
                digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes."""
        return not self.removals

    @property
    def dropped(self) -> list[FileRemovals]:
        """The files that go whole."""
        return [removals for removals in self.removals if removals.is_whole]

    @property
    def cut(self) -> list[FileRemovals]:
        """The files that keep some rows."""
        return [removals for removals in self.removals if not removals.is_whole]

    @cached_property
    def by_limit(self) -> dict[str, int]:
        """Limit → the number of rows that go by it, in the order of limits."""
        counts: Counter[str] = Counter()
        for removals in self.removals:
            counts.update(removals.by_limit)
        return {limit: counts[limit] for limit in LIMITS if counts[limit]}

    @property
    def removed_rows(self) -> int:
        """The number of rows that go."""
        return sum(self.by_limit.values())

    @property
    def removed_bytes(self) -> int:
        """The bytes of the files that go whole."""
        return sum(int(removals.add["size"]) for removals in self.dropped)
