"""Refusals of restores that could bring erased messages back."""

from __future__ import annotations

from retention.apply.erasure_run import erasures_of
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.errors import RefusedError
from retention.stores.archive_erasures import erasure_in, read_replacements


def refuse_unerased(opened: OpenedStream, directory: str) -> None:
    """Refuse an archive in which messages that a stream's erasures name may be left.

    Args:
        opened: the stream of the archive.
        directory: the archive's directory of one table.

    Raises:
        RefusedError: an erasure is unfinished, or the archive lacks the record of one.
        DamagedError: a record cannot be read.
    """
    table = directory.rpartition("/")[2]
    there = {document.link for document in read_replacements(directory).stored}
    # The same request again replaces copies that came back.
    newest = {record.request: record for record in erasures_of(opened).all()}
    for record in newest.values():
        if not record.is_done:
            raise RefusedError(
                f"{opened.name}: erasure {record.id} is unfinished, so the archive may still have its messages; "
                f"nothing was restored; finish it with {command('erase', opened.name, options='--resume')}"
            )
        for location in record.archive_records:
            if location.split("/")[-3] == table and erasure_in(location) not in there:
                raise RefusedError(
                    f"{opened.name}: {directory} lacks the record {location.rpartition('/')[2]} of an erasure, as "
                    "after a restore of the archive from a backup, so it may have erased messages again; nothing was "
                    "restored; erase again, with the same request, or restore the record from a copy of the archive"
                )
