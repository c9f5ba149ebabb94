"""Other programs that commit to a table on an object store; only some of them exclude rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from retention.errors import RefusedError
from retention.storage import files
from retention.stores.delta.internals import commit_info
from retention.stores.delta.log import damage_named, read_entry
from retention.stores.layout import Layout

TOKEN = "retentionCommit"  # noqa: S105  (the field that marks each of our commits)

TABLE = "retentionTable"
"""The field with the id of the table in each of our commits."""

WAYS = (
    "set exclusive: true if it never runs while this engine does, or let it write through deltalake from now on, and "
    "set exclusive: true until one commit of this engine has followed its last"
)
"""The remedies after a commit of such a program, in words."""
CONDITIONAL = "delta-rs"
"""The library that commits by conditional put; Polars also writes through it."""


def refuse_other_writers(layout: Layout, version: int) -> None:
    """Refuse to commit after a program that may overwrite or overlook one of our commits.

    Spark's default commit to S3 checks that the version does not exist and then writes it, without excluding a rival
    in between.

    Args:
        layout: the stream's layout.
        version: the newest version; entries are read back to our own last commit.

    Raises:
        RefusedError: names the version and the program.
    """
    if not files.is_remote(layout.root):
        return
    for number, program in unconditional_commits(layout, version):
        raise RefusedError(
            f"stream {layout.stream}: {program} committed version {number} of {layout.messages}, and on an object "
            f"store it can overwrite commits of others; nothing was changed; {WAYS}"
        )


def unconditional_commits(layout: Layout, version: int) -> Iterator[tuple[int, str]]:
    """Version and program of commits that do not exclude rivals, from `version` back to our own last commit."""
    entries = ((number, read_entry(layout, number)) for number in range(version, -1, -1))
    infos = ((number, _info(layout, number, entry)) for number, entry in entries)
    return unconditional_programs(infos, lambda info: TOKEN in info)


def _info(layout: Layout, version: int, entry: bytes | None) -> Mapping[str, Any] | None:
    with damage_named(layout, version):
        return None if entry is None else commit_info(entry)


def unconditional_programs(
    infos: Iterable[tuple[int, Mapping[str, Any] | None]],
    is_ours: Callable[[Mapping[str, Any]], bool],
) -> Iterator[tuple[int, str]]:
    """Version and program of commits that do not exclude rivals, up to our own last commit or a missing entry.

    Args:
        infos: version and `commitInfo` of entries, the newest first; None: the entry is missing.
        is_ours: whether an entry is one of ours.
    """
    for version, info in infos:
        if info is None or is_ours(info):
            return
        program = str(info.get("engineInfo") or "a program that does not say its name")
        if not program.startswith(CONDITIONAL):
            yield version, program
