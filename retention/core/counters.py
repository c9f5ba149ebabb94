"""The counters of a stream's log, and the names under which logs keep those of a whole table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONSUMERS = "consumers"
"""The name under which logs keep the counter of consumers' edits."""
RELEASED = "released"
"""The name under which logs of earlier builds keep the number of a record of row tombstones."""
EPOCH = "epoch"
"""The name under which logs keep the epoch of a topic's counters."""
RUN = "run"
"""The name under which logs keep the start of the last recorded run that committed; it outlives the log entry."""
CLAIMS = "claims"
"""The name under which logs keep the number of claims on dead files."""
STAGING_CLAIMS = "staging_claims"
"""The name under which logs keep the number of claims on files staged and never committed."""
DROPPED = "dropped"
"""The name under which logs keep the instant at which the stream was dropped."""
GENERATION = "generation"
"""The name under which logs keep the epoch in which the last table began, after a drop."""
HISTORY_HEAD = "history_head"
"""The name under which logs keep the link of the last run in the chain of the run history."""
ARCHIVE_HEAD = "archive_head"
"""The name under which logs keep the number of the newest manifest of the table's archive."""
HOLDS = "holds"
"""The name under which logs keep the counter of legal holds placed and released."""
REPLAY = "replay"
"""The name under which logs keep the number of the record from which the next pass goes on with its replay."""


@dataclass(frozen=True)
class Counters:
    """The counters that commits carry in addition to files (docs/semantics/storage.md).

    None of them ever falls within an epoch; a purge of a topic begins a new epoch without counters.
    """

    next_seq: Mapping[int, int] = field(default_factory=dict)
    """Partition → the next sequence to assign."""
    open_base: Mapping[int, int] = field(default_factory=dict)
    """Partition → the base of the segment that appends go to."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """Writer → the number of its last batch."""
    edits: Mapping[str, int] = field(default_factory=dict)
    """`CONSUMERS` → the number of times that a consumer was created, edited or deleted; `RELEASED`
    → the number of the record; `EPOCH` → the epoch; `RUN` → the start of the last recorded run that
    committed; `CLAIMS` and `STAGING_CLAIMS` → the numbers of claims on dead files, and on files
    staged and never committed; `DROPPED` → when the stream was dropped; `GENERATION` → the epoch in
    which the table began; `ARCHIVE_HEAD` → the newest manifest of its archive; `HISTORY_HEAD` → the link of the last
    chained run; `HOLDS` → the number of records of legal holds; `REPLAY` → the record of a replay."""

    removed: Mapping[int, int] = field(default_factory=dict)
    """Partition → the highest sequence that commits removed from the table; empty in tables of earlier versions."""

    @property
    def consumers(self) -> int:
        """The number of times that a consumer was created, edited or deleted."""
        return self.edits.get(CONSUMERS, 0)

    @property
    def holds(self) -> int:
        """The number of records of legal holds that the log counts: of those placed, and of those released."""
        return self.edits.get(HOLDS, 0)

    @property
    def replay(self) -> int:
        """The number of the record from which the next pass goes on with its replay; 0: there is none."""
        return self.edits.get(REPLAY, 0)

    @property
    def released(self) -> int:
        """The number of an earlier build's record of row tombstones (deleted rows in live files); 0: no record."""
        return self.edits.get(RELEASED, 0)

    @property
    def claims(self) -> int:
        """The number of claims on dead files about to be deleted (decision 0035)."""
        return self.edits.get(CLAIMS, 0)

    @property
    def staging_claims(self) -> int:
        """The number of claims on files staged and never committed."""
        return self.edits.get(STAGING_CLAIMS, 0)

    @property
    def last_run_ns(self) -> int | None:
        """The start of the last recorded run that committed, nanoseconds since the epoch; None: not known."""
        return self.edits.get(RUN)

    @property
    def dropped_ns(self) -> int:
        """The instant at which the stream was dropped, nanoseconds since the epoch; 0: not dropped."""
        return self.edits.get(DROPPED, 0)

    @property
    def generation(self) -> int:
        """The epoch in which the table began, after a drop of its predecessor; 0: it is the first table."""
        return self.edits.get(GENERATION, 0)

    @property
    def archive_head(self) -> int:
        """The number of the newest manifest of the table's archive (`stores.archive_manifest`); 0: it has none."""
        return self.edits.get(ARCHIVE_HEAD, 0)

    @property
    def history_head(self) -> int:
        """The number of the link of the last run that committed (`history.chain`); 0: no run is chained."""
        return self.edits.get(HISTORY_HEAD, 0)

    @property
    def epoch(self) -> int:
        """The epoch of the other counters; 0: the topic was never purged."""
        return self.edits.get(EPOCH, 0)
