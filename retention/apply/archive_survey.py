"""A survey of a stream's archives for an erasure: the copies that have its messages, and the archives out of reach."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import pyarrow as pa

from retention.apply.archive_place import other_place, place_phrase
from retention.apply.own_manifests import home_of, own_manifests
from retention.apply.reclaim.archived import forgotten
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.subjects import path_name
from retention.core.wording import counted
from retention.erasure.copies import erased_rows, held_rows, rows_of
from retention.errors import DamagedError, RetentionError
from retention.history.record import RunRecord
from retention.history.runs import history_of
from retention.ports import Snapshot
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.archive_erasures import Replacements, read_replacements
from retention.stores.archive_manifest import (
    ArchivedFile,
    ArchiveOrigin,
    StoredManifest,
    copies_of,
    manifests_of,
    place_of,
    read_manifests,
)
from retention.stores.holds import Hold
from retention.stores.layout import is_ours
from retention.stores.sidecar.warehouse_place import noted_places, place_of_stream

_NARROW = ("seq", "subject", "ts_ns")
_TAIL = 3
"""The parts of a manifest's location that name it in any archive of the stream: table, `manifests`, and file."""


@dataclass(frozen=True)
class ArchivedCopy:
    """A file of an archive with messages of an erasure."""

    directory: str
    """The archive's directory of one table."""
    path: str
    """The path below `messages/` of the directory."""
    messages: ErasedMessages
    """The messages to erase from it; in files of other tables and histories never by sequences alone."""
    bytes: int
    rows: int
    """Its rows of the erasure; 0 for a copy that a killed run did not write to its end."""
    named: ArchivedFile | None
    """The file as a manifest or an earlier erasure names it; None: nothing names it, or another copy replaced it."""
    held: tuple[tuple[int, str], ...] = ()
    """The sequences of these rows under legal holds, each with the hold's id."""
    is_own: bool = True
    """Whether the file is of the present table's own history."""

    @property
    def location(self) -> str:
        """The location of the file."""
        return place_of(self.directory, self.path)

    def rows_of_erasure(self) -> Iterator[pa.Table]:
        """The rows of the erasure, whole, in batches."""
        return erased_rows(self.location, self.messages)


@dataclass(frozen=True)
class ArchivedTable:
    """The archive of one table, which this warehouse wrote."""

    directory: str
    replacements: Replacements
    copies: tuple[ArchivedCopy, ...]
    """The files with messages of the erasure, sorted by path."""


@dataclass(frozen=True)
class ArchiveSurvey:
    """The archives of a stream, as far as they can be reached."""

    tables: tuple[ArchivedTable, ...] = ()
    unreached: tuple[str, ...] = ()
    """Sentences, one for each archive that may have messages of the erasure and that cannot be examined."""
    outside: tuple[str, ...] = ()
    """Directories of other warehouses in these archives: theirs to erase."""
    others: tuple[str, ...] = ()
    """Directories of other streams in these archives."""
    without: frozenset[str] = field(default=frozenset())
    """Archives that no longer exist, as a person said."""

    @cached_property
    def copies(self) -> list[ArchivedCopy]:
        """The files with messages of the erasure."""
        return [copy for table in self.tables for copy in table.copies]

    @property
    def of_others(self) -> list[str]:
        """The directories that the search leaves to others."""
        return [*self.outside, *self.others]

    @property
    def directories(self) -> list[str]:
        """The directories of the tables, which the search reads."""
        return [table.directory for table in self.tables]


@dataclass(frozen=True)
class _Search:
    """The messages to find in the archives of a stream, and the means to recognize them."""

    opened: OpenedStream
    messages: ErasedMessages
    elsewhere: ErasedMessages
    """The messages to erase from files of other tables and histories, where a sequence may be another message."""
    holds: Sequence[Hold]
    recorded: Mapping[str, str]
    """Name of a manifest → its location, by the run history."""
    snapshot: Snapshot | None

    @property
    def origin(self) -> ArchiveOrigin | None:
        """The origin of the present table's archive."""
        if self.snapshot is None:
            return None
        counters = self.snapshot.counters
        return ArchiveOrigin(self.opened.name, self.snapshot.table_id, counters.epoch)


def survey_archives(
    opened: OpenedStream,
    messages: ErasedMessages,
    elsewhere: ErasedMessages,
    holds: Sequence[Hold],
    without: Sequence[str] = (),
) -> ArchiveSurvey:
    """Look for messages of an erasure in all archives that runs of a stream wrote; nothing is changed.

    Args:
        opened: the stream.
        messages: the erased messages.
        elsewhere: the same in files of other tables and histories: by subjects, or by sequences and times.
        holds: the legal holds in effect.
        without: archives that no longer exist, as a person said.
    """
    gone = frozenset(map(canonical_place, without))
    recorded = _recorded(opened)
    snapshot = opened.store.snapshot() if opened.table.exists() else None
    wanted = _Search(opened, messages, elsewhere, holds, recorded, snapshot)
    surveys = [_surveyed(wanted, place) for place in _places(opened, recorded) if place not in gone]
    survey = ArchiveSurvey(
        tuple(table for each in surveys for table in each.tables),
        tuple(text for each in surveys for text in each.unreached),
        tuple(each for survey in surveys for each in survey.outside),
        tuple(each for survey in surveys for each in survey.others),
        gone,
    )
    return replace(survey, unreached=(*survey.unreached, *_missing(wanted, survey)))


def archives_of(opened: OpenedStream) -> list[str]:
    """The archives that a stream has or had, by its configuration and its run history."""
    return _places(opened, _recorded(opened))


def archived_rows(directory: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All rows of one table's archive, in batches; a file that cannot be read has none.

    Args:
        directory: the archive's directory of the table.
        columns: the columns to read, `seq` and `subject` among them.
    """
    for path in files.walk(copies_of(directory)):
        with suppress(OSError, pa.ArrowException, KeyError):
            yield from rows_of(place_of(directory, path), columns)


def held_in(copies: Sequence[ArchivedCopy], *, is_own: bool) -> list[tuple[int, str]]:
    """The held rows of an erasure in archived files, with the id of each hold.

    Args:
        copies: the files.
        is_own: those of the present table's own history, or of all other ones.
    """
    return [row for copy in copies if copy.is_own is is_own for row in copy.held]


def name_of(location: str) -> str:
    """The part of a manifest's location that names it in any archive of the stream.

    >>> name_of("s3://kept/ORDERS/t-0/manifests/p.json")
    't-0/manifests/p.json'
    """
    return "/".join(location.split("/")[-_TAIL:])


def _recorded(opened: OpenedStream) -> dict[str, str]:
    """Name of a manifest → its location when it was written, for the runs in the history that committed."""
    outcomes: Sequence[RunRecord] = list(history_of(opened.warehouse, opened.name).outcomes())
    locations = (run.archived.manifest for run in outcomes if run.archived and run.is_done)
    stream = path_name(opened.name)
    return {
        name_of(location): location
        for location in locations
        if location.split("/")[-_TAIL - 1 : -_TAIL] == [stream]
    }


def _places(opened: OpenedStream, recorded: Mapping[str, str]) -> list[str]:
    """The archives, each once, the configured one first."""
    written = (location.rsplit("/", _TAIL + 1)[0] for location in recorded.values())
    configured = () if opened.config.archive is None else (opened.config.archive,)
    return list(dict.fromkeys(map(canonical_place, (*configured, *written))))


def canonical_place(place: str) -> str:
    """The location of an archive without symbolic links, by which it is known."""
    return place.rstrip("/") if files.is_remote(place) else os.path.realpath(place)


def _surveyed(wanted: _Search, place: str) -> ArchiveSurvey:
    """The survey of one archive; one that cannot be examined is a sentence."""
    opened = wanted.opened
    configured = opened.config.archive
    if configured is not None and canonical_place(configured) == place:
        other = other_place(opened)
        if other is not None:
            remedy = command("repair place", opened.name, options="--yes")
            why = f"{place_phrase(*other)}; give a copy an `archive:` of its own, or run {remedy}"
            return ArchiveSurvey(unreached=(why,))
    try:
        return _of_place(wanted, place)
    except (RetentionError, OSError) as error:
        text = str(error).replace("; nothing was changed", "")
        return ArchiveSurvey(unreached=(f"{place}: this archive cannot be examined: {text}",))


def _of_place(wanted: _Search, place: str) -> ArchiveSurvey:
    base = files.join(place, path_name(wanted.opened.name))
    tables: list[ArchivedTable] = []
    outside: list[str] = []
    for name in files.directories(base):
        directory = files.join(base, name)
        manifests = list(read_manifests(directory))
        if _is_ours(wanted, name, manifests, place):
            tables.append(_table(wanted, directory, name, manifests))
        else:
            outside.append(directory)
    stream = path_name(wanted.opened.name)
    streams = (each for each in files.directories(place) if each != stream)
    others = tuple(files.join(place, each) for each in streams)
    return ArchiveSurvey(tuple(tables), outside=tuple(outside), others=others)


def _is_ours(wanted: _Search, name: str, manifests: Sequence[StoredManifest], place: str) -> bool:
    """Whether a table's archive is of this warehouse: of the present table, or of one that its runs archived.

    The history of a copied warehouse names the archive of the original; there, only the writer of a manifest counts.
    """
    configured = wanted.opened.config.archive
    if configured is not None and canonical_place(configured) == place:
        # `repair place` lets only one warehouse write there.
        if wanted.origin is not None and name == wanted.origin.name:
            return True
        if any(recorded.startswith(f"{name}/") for recorded in wanted.recorded):
            return True
    noted = noted_places(wanted.opened.root, place)
    is_same = noted is not None and noted.has(
        place_of_stream(wanted.opened.root, wanted.opened.warehouse)
    )
    known = {each.warehouse for each in noted.places} if noted and is_same else set[str]()
    here = {canonical_place(wanted.opened.warehouse), *known}
    writers = (manifest.content.writer for manifest in manifests)
    return any(
        writer is not None and canonical_place(writer.warehouse) in here for writer in writers
    )


def _table(
    wanted: _Search, directory: str, name: str, manifests: Sequence[StoredManifest]
) -> ArchivedTable:
    replacements = read_replacements(directory)
    is_present = wanted.origin is not None and name == wanted.origin.name
    accepted: Sequence[StoredManifest] = ()
    if wanted.snapshot is not None and is_present:
        accepted = own_manifests(manifests, home_of(wanted.opened, wanted.snapshot))
    named = _named(replacements, manifests)
    _refuse_lost(directory, sorted(named))
    owned = set(_named(replacements, accepted, every=True))
    every = set(_named(replacements, manifests, every=True))
    candidates = [
        _Candidate(path, named.get(path), is_present and (path in owned or path not in every))
        for path in files.walk(copies_of(directory))
    ]
    threads = files.read_parallelism(directory)
    examined = in_threads(partial(_examined, wanted, directory), candidates, threads)
    return ArchivedTable(
        directory, replacements, tuple(copy for copy in examined if copy is not None)
    )


def _named(
    replacements: Replacements, manifests: Sequence[StoredManifest], *, every: bool = False
) -> dict[str, ArchivedFile]:
    """Path → the file, for the present copies of manifests; with `every` also for those that others replaced."""
    named: dict[str, ArchivedFile] = {}
    for manifest in manifests:
        for copy in manifest.content.files:
            if every:
                named |= dict.fromkeys(replacements.paths(copy.path), copy)
            else:
                named |= {each.path: each for each in replacements.last(copy)}
    return named


def _refuse_lost(directory: str, paths: Iterable[str]) -> None:
    """Refuse an archive of which a copy is missing: it may be elsewhere, with messages of the erasure."""
    places = [place_of(directory, path) for path in paths]
    lost = [
        place for place, length in zip(places, files.lengths(places), strict=True) if length is None
    ]
    if lost:
        raise DamagedError(
            f"{counted(len(lost), 'copy is', 'copies are')} missing, such as {lost[0]}, and may be elsewhere with "
            "messages of the erasure; restore it from a copy of the archive"
        )


@dataclass(frozen=True)
class _Candidate:
    """A file of an archive, as manifests know it."""

    path: str
    named: ArchivedFile | None
    is_own: bool


def _examined(wanted: _Search, directory: str, candidate: _Candidate) -> ArchivedCopy | None:
    path, named = candidate.path, candidate.named
    location = place_of(directory, path)
    messages = wanted.messages if candidate.is_own else wanted.elsewhere
    taken, held = 0, set[tuple[int, str]]()
    try:
        for rows in rows_of(location, _NARROW):
            mask = messages.takes(rows)
            if mask.any():
                taken += int(mask.sum())
                held.update(held_rows(rows.filter(pa.array(mask)), wanted.holds))
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, KeyError):
        # A run was killed while it copied; a copy that a manifest names is damaged, which the search tells.
        if named is not None or not is_ours(path):
            return None
        return ArchivedCopy(directory, path, messages, files.length(location) or 0, 0, None)
    if not taken:
        return None
    size = files.length(location) or 0
    return ArchivedCopy(
        directory, path, messages, size, taken, named, tuple(sorted(held)), candidate.is_own
    )


def _missing(wanted: _Search, survey: ArchiveSurvey) -> Iterator[str]:
    """Sentences for the archives whose manifests, by the run history, are nowhere."""
    there: set[str] = set()
    emptied: set[str] = set()
    for directory in survey.directories:
        table = directory.rpartition("/")[2]
        there |= {f"{table}/manifests/{name}" for name in files.names(manifests_of(directory))}
        if forgotten(directory):
            emptied.add(table)
    lost = [
        location
        for name, location in wanted.recorded.items()
        if name not in there and name.partition("/")[0] not in emptied
    ]
    by_place = Counter(canonical_place(location.rsplit("/", _TAIL + 1)[0]) for location in lost)
    spoken = {text.partition(": ")[0] for text in survey.unreached}
    for place, count in by_place.items():
        if place not in survey.without and place not in spoken:
            yield (
                f"{place}: this archive lacks {counted(count, 'manifest')} that runs of {wanted.opened.name} wrote "
                "there: it is not mounted, moved, incomplete, or of a warehouse of which this is a copy; mount it, or "
                "name its present place with archive:"
            )
