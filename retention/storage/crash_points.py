"""The durable steps of every write path, named so that a test can kill or pause a process right after each."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

CRASH_AT = "RETENTION_CRASH_AT"
"""`<step>` or `<step>#<n>`: the process kills itself (SIGKILL) when it reaches the step for the n-th time."""
PAUSE_AT = "RETENTION_PAUSE_AT"
"""The same with SIGSTOP: the process is paused until it gets SIGCONT."""
STEPS_LOG = "RETENTION_STEPS_LOG"
"""A file that gets a line for each step reached."""


class Step(StrEnum):
    """A durable step, named by the state on disk when it is reached; tests and the environment use its value."""

    LEASE_TAKEN = "lease.taken"
    """A lease is held, and its file names the holder."""
    WRITE_SYNCED = "write.synced"
    """A complete temporary file is beside its final location; reached by every write except log entries."""
    FORMAT_WRITTEN = "create.format-written"
    """The stream's directory records its format."""
    MADE_NOTED = "create.made-noted"
    """The stream's directory records that its table was created."""
    TOPIC_KEPT = "create.topic-kept"
    """The topic's directory records its settings from creation or the latest update."""
    OWNER_NOTED = "owner.noted"
    """The stream's directory records the configuration that last listed it."""
    PAUSE_RECORDED = "pause.recorded"
    """A record pauses removals, or allows them again."""
    VERIFYING_NOTED = "verify.noted"
    """A note has the start of a verification, or the results of a round of files."""
    VERIFIED = "verify.recorded"
    """A record has the time and result of the last verification; its progress is not deleted yet."""
    VERIFYING_DELETED = "verify.progress-deleted"
    """The progress of a finished or an outdated verification is deleted."""
    HOLDING_NOTED = "hold.noted"
    """The stream's directory records that it has legal holds; earlier releases refuse it."""
    HOLD_RANGES_WRITTEN = "hold.ranges-written"
    """The ranges of a legal hold are in a file; no record names it yet."""
    HOLD_RECORDED = "hold.recorded"
    """A record places or releases a legal hold; the table's log does not count it yet."""
    HOLD_COUNTED = "hold.counted"
    """The table's log counts a legal hold placed or released."""
    HOLD_NAMED = "hold.named"
    """A second list has the name of a record of a legal hold of a table in place."""
    LEDGER_BEGUN = "ledger.begun"
    """A new ledger has its mark; the warehouse does not know it yet."""
    LEDGER_NOTED = "ledger.noted"
    """The warehouse has the mark of its ledger."""
    LEDGER_HOLD_COPIED = "ledger.hold-copied"
    """A file of a legal hold that the ledger or the warehouse lacked is there; the log does not count it yet."""
    LEDGER_MESSAGES_WRITTEN = "ledger.messages-written"
    """The ledger has the identities of the messages of an erasure; no entry names them yet."""
    LEDGER_ERASURE_WRITTEN = "ledger.erasure-written"
    """The ledger has an entry of an erasure; its messages are not removed yet."""
    TABLE_COMMITTING = "table.committing-noted"
    """The warehouse records that a run on a table in place is committing; it reads the legal holds after that."""
    TABLE_COMMITTED = "table.committing-deleted"
    """The record of a committing run that has ended is deleted."""
    NEEDLES_WRITTEN = "erase.needles-written"
    """The encrypted file of an erasure's needles is complete."""
    NEEDLES_OVERWRITTEN = "erase.needles-overwritten"
    """The encrypted file of an erasure's needles has only zeros."""
    NEEDLES_DELETED = "erase.needles-deleted"
    """The encrypted file of an erasure's needles no longer exists."""
    PLACE_LINKED = "create.place-linked"
    """`messages` links to a directory without percent signs (Delta)."""
    TABLE_MADE = "create.table-made"
    """The empty table exists."""
    PART_WRITTEN = "sync.part-written"
    """A part of a batch was handed to the file that the whole batch gets; the rest is still to be read."""
    DATA_WRITTEN = "data.written"
    """A data file is complete at its staging location."""
    DATA_COUNTED = "data.counted"
    """A data file's subject counts are written."""
    COPY_WRITTEN = "run.copy-written"
    """A copy without the removed rows is written and read back."""
    ROWS_HIDDEN = "run.rows-hidden"
    """A vector hides removed rows of a data file once a commit names it; it was read back."""
    VECTORS_WRITTEN = "table.vectors-written"
    """Deletion vectors are in a file; no commit names it yet."""
    CHANGES_WRITTEN = "table.changes-written"
    """The rows that a rewrite removes are in a file of the change data feed; no commit names it yet."""
    CHANGES_NOTED = "table.changes-noted"
    """The warehouse records the files that a run on a table in place is about to change."""
    EVIDENCE_NOTED = "table.evidence-noted"
    """The warehouse has keys and times of the rows that a run on a table in place is about to remove."""
    ERASURE_RECORDED = "erase.recorded"
    """A record has an erasure, or its end; the request lies encrypted beside it until then."""
    ERASED_IDS_FORGOTTEN = "erase.ids-forgotten"
    """No record of message ids has one of a message about to be erased."""
    ERASED_COPIES_DELETED = "erase.copies-deleted"
    """No removed or abandoned file has an erased message."""
    ARCHIVE_REWRITTEN = "erase.archive-rewritten"
    """An archive has a copy without the erased rows; no document names it yet."""
    ARCHIVE_ERASURE_TOLD = "erase.archive-told"
    """An archive names the copies that an erasure replaced; these are not deleted yet."""
    ARCHIVE_ERASED = "erase.archive-deleted"
    """The copies with erased rows of one table's archive are deleted."""
    ERASED_LOG_FORGOTTEN = "erase.log-forgotten"
    """The log begins with the newest checkpoint (Delta)."""
    ERASED_DIGESTS_DELETED = "erase.digests-deleted"
    """Subject digests and vectors of deleted files are deleted."""
    EVIDENCE_HASHED = "erase.evidence-hashed"
    """The evidence of a run on a table in place has hashes instead of keys."""
    CHANGES_ERASED = "erase.changes-erased"
    """The record of the files that a run on a table in place changed names none of them any more."""
    HISTORY_VALUES_ERASED = "erase.history-values"
    """A record of the run history lost values that name an erased message, with their salts."""
    HOLD_CONCEALED = "erase.hold-concealed"
    """The record of an ended legal hold has keyed hashes in place of what names an erased message."""
    NEEDLES_TIDIED = "erase.needles-tidied"
    """The needles of erasures that were killed before they were recorded are deleted."""
    ERASURE_REPORTED = "erase.reported"
    """The report of an erasure is stored; its needles are not destroyed yet."""
    STAGED_DISCARDED = "staged.discarded"
    """Uncommitted staged files are deleted."""
    CONSUMERS_KEPT = "import.consumers-kept"
    """The consumers of a backup are written."""
    SERVER_CONFIG_KEPT = "sync.config-kept"
    """The configuration of a server's stream is beside its copy."""
    OFFSETS_KEPT = "import.offsets-kept"
    """The stored offsets of a topic are written."""
    CONSUMER_WRITTEN = "consumer.written"
    """A version of a consumer's record is at its final location."""
    CONSUMER_TIDIED = "consumer.tidied"
    """Old versions of a consumer's record are deleted."""
    CONSUMER_COUNTED = "consumer.counted"
    """The message table's log counts an edit of a consumer; the consumer's record does not have it yet."""
    OFFSET_COUNTED = "offset.counted"
    """The message table's log counts a change of stored offsets; their document does not have it yet."""
    SEGMENTS_SEALED = "roll.segments-sealed"
    """The log records that active segments of a topic are sealed because of their age."""
    FOUND_DISJOINT = "check.found-disjoint"
    """A cache records that overlapping files share no sequence."""
    STATS_CACHED = "stats.cached"
    """Statistics of files are in the cache."""
    STATS_MERGED = "stats.merged"
    """The small files of the cache, now merged into one, are deleted."""
    LEDGER_PACKED = "ledger.packed"
    """Statistics of segments are in a new pack; the inventory cache does not name it yet (Delta)."""
    LEDGER_KEPT = "ledger.kept"
    """The inventory cache names its new packs; the previous ones are not deleted yet (Delta)."""
    DUE_KEPT = "due.kept"
    """A cache records the instant before which nothing is due."""
    MEASURES_KEPT = "measures.kept"
    """A cache records the measures of a stream without dead files."""
    CLOCK_PROBED = "reclaim.clock-probed"
    """An empty file, written beside the stream to read the storage's clock, is deleted."""
    CLAIMING_NOTED = "reclaim.claiming-noted"
    """The stream's directory records that dead files are claimed; releases without claims refuse it."""
    DROPPING_NOTED = "drop.noted"
    """The stream's directory records that the stream is about to be dropped; earlier releases refuse it."""
    TABLE_BEGUN = "create.table-begun"
    """The log begins another table in place of a dropped one."""
    CLAIM_KEPT = "reclaim.claim-kept"
    """A claim lists the dead files about to be deleted; no commit counts the claim yet."""
    DEAD_DELETED = "reclaim.dead-deleted"
    """Some dead files of a claim are deleted."""
    EVIDENCE_PREPARED = "reclaim.evidence-prepared"
    """A file contains the exact ranges of runs, read from files about to be deleted."""
    EVIDENCE_FOLDED = "reclaim.evidence-folded"
    """A new file contains the evidence of a month; the files that it replaces are not deleted yet."""
    EVIDENCE_REPLACED = "reclaim.evidence-replaced"
    """The evidence files that the newest file of a month replaced are deleted."""
    RECORDS_DELETED = "reclaim.records-deleted"
    """Records of files of runs are deleted after the files themselves."""
    SPENT_DELETED = "reclaim.spent-deleted"
    """Notes on removed files are deleted."""
    COPIES_FORGOTTEN = "reclaim.copies-forgotten"
    """The archive records which copies are about to be deleted, or that they are."""
    MANIFESTS_DELETED = "reclaim.manifests-deleted"
    """The manifests of an archive that are no longer kept are deleted, and their copies not yet."""
    COPIES_DELETED = "reclaim.copies-deleted"
    """The copies that no manifest of an archive names any more are deleted."""
    LOG_TRIMMED = "reclaim.log-trimmed"
    """Old log entries that a checkpoint or a full listing replaces are deleted."""
    COMPACTION_COUNTED = "compact.counted"
    """A note counts the bytes that compactions found and wrote."""
    HISTORY_CHECKPOINT = "reclaim.history-checkpoint"
    """The checkpoint has the digests of records that are about to be deleted, or only those that a link still needs."""
    HISTORY_FORGOTTEN = "reclaim.history-forgotten"
    """Records of runs older than the configured history are deleted."""
    LEFTOVERS_NOTED = "reclaim.leftovers-noted"
    """A note records when each leftover of killed processes was first found; none is deleted yet."""
    CLAIMS_DROPPED = "reclaim.claims-dropped"
    """Claims with all files deleted are deleted."""
    ARCHIVE_COPIED = "archive.file-copied"
    """A file about to be removed is copied to the archive and read back; no manifest names the copy yet."""
    PLACE_NOTED = "archive.place-noted"
    """The stream's directory records the place of the warehouse that archives it; nothing is copied yet."""
    ARCHIVE_TOLD = "archive.told"
    """A manifest of the archive names all files that a run will remove; nothing is removed yet."""
    IDS_KEPT = "run.ids-kept"
    """The message ids that a run removes and that still count are written; nothing is removed yet."""
    IDS_TIDIED = "run.ids-tidied"
    """Records of message ids that no longer count, or that a new record replaces, are deleted."""
    UNSTORED_IDS_KEPT = "publish.ids-kept"
    """The ids of acknowledged, unstored messages are written; no commit names the record yet."""
    REPLAY_KEPT = "run.replay-kept"
    """The state from which the next pass goes on with its replay is written; no commit names the record yet."""
    REPLAY_TIDIED = "run.replay-tidied"
    """Records of replays that no undo needs any more are deleted."""
    UNDO_KEPT = "run.undo-kept"
    """The lists of the files that a run removes and adds, and of the sequences that it removes, are written."""
    TAKEN_RECORDED = "ingest.taken-recorded"
    """A record has a source's position after the next batch; no commit names it yet."""
    TAKEN_SETTLED = "ingest.taken-settled"
    """A note names the current record, and records before the last two are deleted."""
    HISTORY_BEGUN = "history.begun"
    """The run history has an entry of a run about to change files."""
    HISTORY_DONE = "history.done"
    """The run history has a run's outcome."""
    DELTA_COMMITTING = "delta.committing"
    """All checks are done and nothing is committed (Delta)."""
    DELTA_COMMITTED = "delta.committed"
    """The log has the commit (Delta)."""
    COMMIT_LINKED = "delta.commit-linked"
    """The log entry of a commit has a second name beside the table (Delta on a local disk)."""
    COMMIT_LINKS_DELETED = "delta.commit-links-deleted"
    """Second names of old commits, or of lost commits that were committed again, are deleted."""
    GRACE_FOLLOWED = "delta.grace-followed"
    """The table's properties have the configured retention of removed files (Delta)."""
    GRACE_LEFT = "delta.grace-left"
    """A note records that these properties were left to the table's owner (Delta)."""
    LOOKED_THROUGH = "delta.looked-through"
    """A note records the version up to which the log was scanned for files that other writers resurrected (Delta)."""
    CHECKPOINT_WRITTEN = "delta.checkpoint-written"
    """The log has a checkpoint (Delta)."""
    ENTRY_SYNCED = "parquet.entry-synced"
    """A complete log entry (Parquet) or consumer's record is beside its final location; nothing is committed."""
    ENTRY_LINKED = "parquet.entry-linked"
    """The log entry is committed and nothing is moved yet (Parquet), or a consumer's record is at its location."""
    FILE_MOVED = "parquet.file-moved"
    """A data file was moved to its live location or to the trash (Parquet), or out of a table in place, or back."""
    MOVES_NOTED = "parquet.moves-noted"
    """A note records the entry up to which all moves are done (Parquet)."""
    LIST_WRITTEN = "parquet.list-written"
    """A full listing is beside a log entry (Parquet)."""
    DIRECTORIES_KEPT = "parquet.directories-kept"
    """A note records the stamps of directories without unknown files (Parquet)."""
    REMOVED_FILE_LINKED = "table.removed-file-linked"
    """A file that a run moved out of a directory of Parquet files has its old name again, beside the other."""
    FOREIGN_TAKEN_IN = "parquet.foreign-taken-in"
    """Files of another writer are in the log (Parquet)."""


def reached(step: Step) -> None:
    """Mark a step's effect as durable; does nothing unless the environment requests an action there."""
    if _watch is not None:
        _watch(step)


def watch(environment: Mapping[str, str]) -> None:
    """Act on the variables `CRASH_AT`, `PAUSE_AT` and `STEPS_LOG` of an environment from now on."""
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
    """Call `watcher` with every step of this process during the block, instead of following the environment."""
    global _watch  # noqa: PLW0603
    before, _watch = _watch, watcher
    try:
        yield
    finally:
        _watch = before


def _watcher(signals: list[tuple[str, signal.Signals]], log: str | None) -> Callable[[Step], None]:
    counts: Counter[Step] = Counter()
    counting = threading.Lock()

    def passed(step: Step) -> None:
        with counting:
            counts[step] += 1
            number = counts[step]
        if log:
            with open(log, "ab", buffering=0) as file:  # noqa: PTH123
                file.write(f"{step}\n".encode())
        for wanted, sent in signals:
            if wanted in (f"{step}#{number}", step if number == 1 else None):
                os.kill(os.getpid(), sent)

    return passed


_watch: Callable[[Step], None] | None = None
watch(os.environ)
