"""The durable steps of every write path, named so that a test can kill or stop a process right behind each."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

CRASH_AT = "RETENTION_CRASH_AT"
"""`<step>` or `<step>#<n>`: the process kills itself (SIGKILL) when it reaches the step for the n-th time."""
PAUSE_AT = "RETENTION_PAUSE_AT"
"""The same with SIGSTOP: the process stands still until somebody continues it."""
STEPS_LOG = "RETENTION_STEPS_LOG"
"""A file that gets a line for each step reached."""


class Step(StrEnum):
    """A durable step, by what is on the disk when it is reached; people, tests and the environment name it."""

    LEASE_TAKEN = "lease.taken"
    """A lease is held, and its file says by whom."""
    WRITE_SYNCED = "write.synced"
    """A file is whole beside its place, and not there yet; reached by every write but log entries."""
    FORMAT_WRITTEN = "create.format-written"
    """The stream's directory says which format it has."""
    MADE_NOTED = "create.made-noted"
    """The stream's directory records that its table is made."""
    TOPIC_KEPT = "create.topic-kept"
    """The topic's directory records the settings with which it was created, or to which it was updated."""
    OWNER_NOTED = "owner.noted"
    """The stream's directory records which configuration listed it last."""
    PLACE_LINKED = "create.place-linked"
    """`messages` links to a directory without percent signs (Delta)."""
    TABLE_MADE = "create.table-made"
    """The empty table exists."""
    DATA_WRITTEN = "data.written"
    """A data file is whole at the place where it is staged."""
    DATA_COUNTED = "data.counted"
    """A data file's subject counts are written."""
    COPY_WRITTEN = "run.copy-written"
    """A copy without the removed rows is written and read back."""
    ERASED = "run.erased"
    """No file holds what a run has erased (Parquet)."""
    STAGED_DISCARDED = "staged.discarded"
    """Staged files that no commit named are deleted."""
    CONSUMERS_KEPT = "import.consumers-kept"
    """The consumers of a backup are written."""
    OFFSETS_KEPT = "import.offsets-kept"
    """The stored offsets of a topic are written."""
    CONSUMER_WRITTEN = "consumer.written"
    """A version of a consumer's record is in its place."""
    CONSUMER_TIDIED = "consumer.tidied"
    """Versions of a consumer's record that nobody needs any more are deleted."""
    CONSUMER_COUNTED = "consumer.counted"
    """The message table's log counts an edit of a consumer; the consumer's record does not have it yet."""
    OFFSET_COUNTED = "offset.counted"
    """The message table's log counts a change of stored offsets; their document does not have it yet."""
    SEGMENTS_SEALED = "roll.segments-sealed"
    """The log records that active segments of a topic are sealed, because of their age."""
    FOUND_DISJOINT = "check.found-disjoint"
    """A cache records that overlapping files share no sequence."""
    STATS_CACHED = "stats.cached"
    """Statistics of files are in the cache."""
    STATS_MERGED = "stats.merged"
    """The many small files of the cache, now merged into one, are deleted."""
    LEDGER_PACKED = "ledger.packed"
    """Statistics of segments are in a new pack, which the inventory cache does not name yet (Delta)."""
    LEDGER_KEPT = "ledger.kept"
    """The inventory cache names its packs; those that it named before are not deleted yet (Delta)."""
    DUE_KEPT = "due.kept"
    """A cache records the instant before which nothing is due."""
    MEASURES_KEPT = "measures.kept"
    """A cache records the measures of a stream of which no file is dead."""
    CLOCK_PROBED = "reclaim.clock-probed"
    """An empty file was written beside the stream to read the storage's clock, and is deleted."""
    CLAIMING_NOTED = "reclaim.claiming-noted"
    """The stream's directory records that dead files are claimed: releases that do not know claims refuse it."""
    DROPPING_NOTED = "drop.noted"
    """The stream's directory records that the stream is about to be dropped: earlier releases refuse it."""
    TABLE_BEGUN = "create.table-begun"
    """The log begins another table in the place of a dropped one."""
    CLAIM_KEPT = "reclaim.claim-kept"
    """The dead files that are about to be deleted are written down; no commit counts the claim yet."""
    DEAD_DELETED = "reclaim.dead-deleted"
    """Some dead files that a claim names are deleted."""
    EVIDENCE_PREPARED = "reclaim.evidence-prepared"
    """A file holds exact ranges of runs, read from files that are about to be deleted."""
    EVIDENCE_FOLDED = "reclaim.evidence-folded"
    """A new file holds the evidence of a month; the files whose rows it repeats are not deleted yet."""
    EVIDENCE_REPLACED = "reclaim.evidence-replaced"
    """The files are deleted whose rows the newest file of a month repeats."""
    RECORDS_DELETED = "reclaim.records-deleted"
    """Records of runs whose files are gone for good are deleted."""
    SPENT_DELETED = "reclaim.spent-deleted"
    """Records of row tombstones that no version within the grace names, and notes on gone files, are deleted."""
    LOG_TRIMMED = "reclaim.log-trimmed"
    """Entries of the log for which a checkpoint or a full list stands, and which are old, are deleted."""
    COMPACTION_COUNTED = "compact.counted"
    """A note counts the bytes that compactions have met and written."""
    HISTORY_FORGOTTEN = "reclaim.history-forgotten"
    """Records of runs are deleted that are older than the configuration keeps them."""
    LEFTOVERS_NOTED = "reclaim.leftovers-noted"
    """A note records when each leftover of killed processes was first met; none is deleted yet."""
    CLAIMS_DROPPED = "reclaim.claims-dropped"
    """Claims are deleted of which every file is gone."""
    RELEASED_KEPT = "run.released-kept"
    """The record of row tombstones (rows deleted and still in live files) is written; no commit names it yet."""
    ARCHIVE_COPIED = "archive.file-copied"
    """A file that is to leave is copied to the archive and read back; no manifest names the copy yet."""
    PLACE_NOTED = "archive.place-noted"
    """The stream's directory records where the warehouse lies that archives it; nothing is copied yet."""
    ARCHIVE_TOLD = "archive.told"
    """A manifest of the archive names all files that a run is to remove; nothing is removed yet."""
    IDS_KEPT = "run.ids-kept"
    """The message ids that a run removes are written, as far as they still count; nothing is removed yet."""
    IDS_TIDIED = "run.ids-tidied"
    """Records of message ids that count no more, or that a new one repeats, are deleted."""
    UNSTORED_IDS_KEPT = "publish.ids-kept"
    """The ids of messages that are answered and not stored are written; no commit names the record yet."""
    UNDO_KEPT = "run.undo-kept"
    """The lists of the files that a run removes and adds, and of the sequences that it takes, are written."""
    TAKEN_RECORDED = "ingest.taken-recorded"
    """A record says how far a source is taken with the next batch; no commit names it yet."""
    TAKEN_SETTLED = "ingest.taken-settled"
    """A note says which record counts, and records before the last two are deleted."""
    HISTORY_BEGUN = "history.begun"
    """The run history has an entry for a run that is about to change files."""
    HISTORY_DONE = "history.done"
    """The run history has a run's outcome."""
    DELTA_COMMITTING = "delta.committing"
    """Everything is checked, nothing is committed (Delta)."""
    DELTA_COMMITTED = "delta.committed"
    """The log has the commit (Delta)."""
    COMMIT_LINKED = "delta.commit-linked"
    """The log entry of a commit has a second name beside the table (Delta on a local disk)."""
    COMMIT_LINKS_DELETED = "delta.commit-links-deleted"
    """These second names are deleted, of commits that are old, or that were lost and are committed again."""
    GRACE_FOLLOWED = "delta.grace-followed"
    """The table's properties have the configured time that removed files stay (Delta)."""
    GRACE_LEFT = "delta.grace-left"
    """A note records that these properties were left to the table's owner (Delta)."""
    LOOKED_THROUGH = "delta.looked-through"
    """A note records up to which version the log was searched for files that others brought back (Delta)."""
    CHECKPOINT_WRITTEN = "delta.checkpoint-written"
    """The log has a checkpoint (Delta)."""
    ENTRY_SYNCED = "parquet.entry-synced"
    """A log entry (Parquet), or a consumer's record, is whole beside its place: nothing is committed."""
    ENTRY_LINKED = "parquet.entry-linked"
    """The log entry is in its place: committed, and nothing is moved yet (Parquet); or a consumer's record is."""
    FILE_MOVED = "parquet.file-moved"
    """A data file was moved to its place, or to the trash (Parquet)."""
    MOVES_NOTED = "parquet.moves-noted"
    """A note records the entry up to which everything is moved (Parquet)."""
    LIST_WRITTEN = "parquet.list-written"
    """The full list stands beside a log entry (Parquet)."""
    DIRECTORIES_KEPT = "parquet.directories-kept"
    """A note records the state of directories in which every file is known (Parquet)."""
    FOREIGN_TAKEN_IN = "parquet.foreign-taken-in"
    """Files of another writer are in the log (Parquet)."""


def reached(step: Step) -> None:
    """Mark a step's effect as durable; does nothing unless the environment requests an action there."""
    if _watch is not None:
        _watch(step)


def watch(environment: Mapping[str, str]) -> None:
    """Act on these variables from now on: `CRASH_AT`, `PAUSE_AT`, `STEPS_LOG`."""
    global _watch  # noqa: PLW0603
    signals = [
        (environment[name], number)
        for name, number in ((CRASH_AT, signal.SIGKILL), (PAUSE_AT, signal.SIGSTOP))
        if environment.get(name)
    ]
    log = environment.get(STEPS_LOG)
    _watch = _watcher(signals, log) if signals or log else None


@contextmanager
def watched_by(watcher: Callable[[Step], None]) -> Iterator[None]:
    """Call `watcher` with every step that this process reaches during the block, in place of the environment."""
    global _watch  # noqa: PLW0603
    before, _watch = _watch, watcher
    try:
        yield
    finally:
        _watch = before


def _watcher(signals: list[tuple[str, signal.Signals]], log: str | None) -> Callable[[Step], None]:
    counts: Counter[Step] = Counter()

    def passed(step: Step) -> None:
        counts[step] += 1
        if log:
            with open(log, "ab", buffering=0) as file:  # noqa: PTH123
                file.write(f"{step}\n".encode())
        for wanted, number in signals:
            if wanted in (f"{step}#{counts[step]}", step if counts[step] == 1 else None):
                os.kill(os.getpid(), number)

    return passed


_watch: Callable[[Step], None] | None = None
watch(os.environ)
