"""The files of a Delta log, read without opening the table: versions, checkpoints and the runs of commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from retention.errors import DamagedError
from retention.ports import VersionToken
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.parallel import in_threads
from retention.stores.delta import internals
from retention.stores.layout import Layout
from retention.stores.seals import seal_at


def versions(layout: Layout) -> tuple[list[int], list[int]]:
    """The versions with an entry in the log, and those with a checkpoint; both ascending."""
    entries, checkpoints = internals.log_files(layout.messages)
    return entries, sorted(checkpoints)


def newest_version_token(layout: Layout) -> VersionToken | None:
    """The token of the newest version; the bytes of its entry distinguish it from another table's same version."""
    entries, _ = versions(layout)
    return version_token_of(layout, entries[-1]) if entries else None


def version_token_of(layout: Layout, version: int) -> VersionToken | None:
    """The token of a version; None if its entry was removed."""
    seal = seal_at(place_of(layout, version))
    return None if seal is None else VersionToken(version, seal)


def read_entry(layout: Layout, version: int) -> bytes | None:
    """One entry of the log; None if it does not exist."""
    return internals.read_entry(layout.messages, version)


def read_entries(layout: Layout, versions: Sequence[int]) -> Iterator[bytes | None]:
    """Entries of the log in the order of `versions`; None for each missing entry."""
    return in_threads(partial(read_entry, layout), versions, files.read_parallelism(layout.root))


def find_token(layout: Layout, token: str, after: int) -> int | None:
    """The version later than `after` with a unique token in its entry; None if there is none."""
    version = after + 1
    while (entry := read_entry(layout, version)) is not None:
        if token.encode() in entry:
            return version
        version += 1
    return None


def find_run(layout: Layout, run: str, after: int) -> int | None:
    """The newest version later than `after` that a run committed; None if no remaining entry names the run."""
    later = (version for version in reversed(versions(layout)[0]) if version > after)
    for version in later:
        with damage_named(layout, version):
            metadata = metadata_of(read_entry(layout, version) or b"")
        if run in (metadata.get("run"), metadata.get("again")):
            return version
    return None


def run_of(entry: bytes) -> object:
    """The run that an entry names; None if another program wrote the entry."""
    return metadata_of(entry).get("run")


def runs_in(layout: Layout, version: int, entry: bytes) -> frozenset[str]:
    """The runs that an entry of the log names, read to its last line.

    Raises:
        DamagedError: a line is not an action.
    """
    with damage_named(layout, version):
        _first, *_others = internals.actions(entry)
        metadata = metadata_of(entry)
    named = (metadata.get("run"), metadata.get("again"))
    return frozenset(run for run in named if isinstance(run, str))


@contextmanager
def damage_named(layout: Layout, version: int) -> Iterator[None]:
    """Name the entry that the block cannot parse.

    Raises:
        DamagedError: the entry is no list of actions.
    """
    try:
        yield
    except (ValueError, AttributeError) as error:
        raise DamagedError(
            f"{place_of(layout, version)}: this entry of the log of stream {layout.stream} cannot be read ({error}); "
            "nothing was changed; restore it from a copy"
        ) from error


def metadata_of(entry: bytes) -> dict[str, Any]:
    """The metadata of our own commit in its entry; empty if another program wrote the entry.

    `again` is the run of an earlier, lost commit that this commit repeats.
    """
    text = internals.commit_info(entry).get("userMetadata") or "{}"
    try:
        metadata = parse_json(text)
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def foreign_act(layout: Layout, after: int, names: Sequence[bytes]) -> tuple[int, str] | None:
    """The first commit of another program after a version that names one of the given files: version, description.

    None if there is none, or its entry was removed.
    """
    for version in (number for number in versions(layout)[0] if number > after):
        entry = read_entry(layout, version) or b""
        if any(name in entry for name in names):
            with damage_named(layout, version):
                info = internals.commit_info(entry)
            if "retentionCommit" not in info:
                program = str(
                    info.get("engineInfo") or info.get("clientVersion") or "another program"
                )
                return version, f"{info.get('operation', 'a commit')} by {program}"
    return None


def place_of(layout: Layout, version: int) -> str:
    """The location of a version's entry."""
    return internals.entry_place(layout.messages, version)
