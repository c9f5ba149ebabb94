"""Programs that commit to a table in place on an object store, and may overwrite a commit of ours there."""

from __future__ import annotations

from retention.delta import entries, log_files
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.delta.foreign_writers import unconditional_programs
from retention.tables.opened import OpenedTable

NEWEST = 50
"""The number of newest entries whose programs are looked at."""


def refuse_rivals(table: OpenedTable, current: DeltaSnapshot) -> None:
    """Refuse to commit where a rival's commit of the same version is not excluded.

    Spark's default commit to S3 looks for the version and then writes it. Entries are looked at from the newest back to
    our own last one.

    Raises:
        RefusedError: the object store has no conditional put; or names the version and program of a commit without.
        StorageError: the store failed.
    """
    refuse_without_exclusion(table.location)
    if table.exclusive or not files.is_remote(table.location):
        return
    versions = range(current.version, max(current.version - NEWEST, -1), -1)
    places = [log_files.entry_place(table.location, version) for version in versions]
    contents = in_threads(files.read_unchanging, places, files.read_parallelism(table.location))
    infos = (
        (
            version,
            None if content is None else entries.commit_info(entries.split(content, place).others),
        )
        for version, place, content in zip(versions, places, contents, strict=True)
    )
    rivals = unconditional_programs(infos, lambda info: info.get("engineInfo") == entries.ENGINE)
    for version, program in rivals:
        raise RefusedError(
            f"{table.name}: {program} committed version {version} of {table.location}, and on an object store it "
            "can overwrite commits of others; nothing was changed; set exclusive: true if it never writes the "
            "table while this engine does, or let it commit through deltalake, and set exclusive: true until one "
            "commit of this engine has followed its last"
        )
