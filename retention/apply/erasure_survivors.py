"""The messages that stay when others are erased, whose strings no search looks for, and the places of other streams."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from retention.apply.archive_survey import ArchiveSurvey, archived_rows
from retention.apply.dropped_tables import erased_by_file
from retention.context.context import OpenedStream
from retention.core.progress import with_progress
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.erasure.copies import removed_rows
from retention.erasure.proof import directories_of_others
from retention.erasure.record import ErasureRecord
from retention.errors import VerificationError
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.parallel import in_threads

_TEXTS = ("subject", "headers", "payload", "msg_id")
_SURVIVING = ("seq", "ts_ns", *_TEXTS)


def survivors(
    opened: OpenedStream,
    record: ErasureRecord,
    messages: ErasedMessages,
    archives: ArchiveSurvey,
) -> Iterator[pa.Table]:
    """The texts of all messages that stay, live, removed by other runs, or archived, a file at a time.

    Raises:
        VerificationError: a message of the erasure is live.
    """
    if not opened.table.exists():
        return
    kept = opened.store.data_files(opened.store.snapshot().files)
    read = in_threads(
        lambda file: read_columns(file, _SURVIVING)[0],
        kept,
        files.read_parallelism(opened.root),
    )
    for rows in with_progress(read, len(kept), "reading messages that stay"):
        if live := int(messages.takes(rows).sum()):
            raise VerificationError(
                f"{opened.name}: the table still has {counted(live, 'message')} of erasure {record.id}, so that it is "
                f"unfinished; run {command('erase', opened.name, options='--resume')}"
            )
        yield rows.select(list(_TEXTS))
    wanted = erased_by_file(opened, messages)
    for path, rows in removed_rows(opened, [file.location for file in kept], _SURVIVING):
        # What should be deleted by now is no reason to keep its strings.
        yield rows.filter(pa.array(~wanted(path).takes(rows)))
    for directory in archives.directories:
        for rows in archived_rows(directory, _SURVIVING):
            # Rows of another history under such a sequence are other messages, whose strings the search may report.
            yield rows.filter(pa.array(~messages.takes(rows)))


def of_other_streams(opened: OpenedStream) -> Iterator[str]:
    """The directories of other streams, their histories, and tables in place."""
    yield files.join(opened.warehouse, "tables")
    yield from directories_of_others(opened.warehouse, "streams", opened.name)
