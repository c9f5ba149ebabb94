"""A survey for an erasure: the live files to rewrite, the files to delete, and the legal holds that forbid either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.archive_survey import ArchiveSurvey, archives_of, held_in, survey_archives
from retention.apply.deletion_vectors import resolving_vectors
from retention.apply.dropped_tables import erased_by_file, path_in_log
from retention.apply.undo_records import kept_runs, read_record
from retention.context.context import OpenedStream
from retention.context.holds import holds_of
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spoken_commands import command
from retention.core.vector_paths import data_path
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.erasure.copies import DeadCopy, dead_copies, erased_rows, held_rows, rows_of
from retention.errors import MissingMessageError, RefusedError
from retention.history.runs import history_of
from retention.plan.actions import REWRITE
from retention.planners.cached import Planned
from retention.planners.requests import plan_removal
from retention.ports import Snapshot
from retention.rules.erase import Erase, ErasedMessages
from retention.schemas.deadlines import NEVER
from retention.schemas.plan import PLANNED_FILES
from retention.stores.holds import Hold

Instants = Iterable[tuple[int, int]]
_WITH_IDS = ("seq", "subject", "ts_ns", "msg_id")
_WITH_TIMES = ("seq", "subject", "ts_ns")
_NOTHING = "nothing was changed"


@dataclass(frozen=True)
class ErasureSurvey:
    """Everything that an erasure changes, at one version of the table."""

    opened: OpenedStream
    request: Erase
    planned: Planned
    """The removal of the live messages; files of which only hidden rows go are rewritten as well."""
    copies: tuple[DeadCopy, ...]
    """The files that are not live and are deleted."""
    hidden: frozenset[str]
    """The live files with erased messages that a deletion vector hides."""
    archives: ArchiveSurvey = field(default_factory=ArchiveSurvey)
    """The archives of the stream."""

    @cached_property
    def locations(self) -> list[str]:
        """The locations of all files with readable erased messages of the present table, live ones first."""
        changed = self.opened.store.data_files(self.planned.plan.actions.files)
        readable = (copy for copy in self.copies if copy.rows)
        of_table = (copy.location for copy in readable if copy.messages == self.request.messages)
        return [*(file.location for file in changed), *of_table]

    def rows(self) -> Iterator[pa.Table]:
        """The erased messages, in all files and archives, in batches."""
        for location, messages in chain(self._of_history, self._of_dropped_tables):
            yield from erased_rows(location, messages)

    def narrow_rows(self) -> Iterator[pa.Table]:
        """The sequences, subjects and times of the erased messages, in all files and archives, in batches."""
        for location, messages in chain(self._of_history, self._of_dropped_tables):
            yield from erased_rows(location, messages, _WITH_TIMES)

    @property
    def _of_history(self) -> Iterator[tuple[str, ErasedMessages]]:
        """The location of each file of the present table, and in archives, with erased messages, and which they are."""
        yield from ((location, self.request.messages) for location in self.locations)
        # A copy that a killed run left torn cannot be read.
        yield from ((copy.location, copy.messages) for copy in self.archives.copies if copy.rows)

    @property
    def _of_dropped_tables(self) -> Iterator[tuple[str, ErasedMessages]]:
        """The location of each file of a dropped table with erased messages, and which they are."""
        others = (copy for copy in self.copies if copy.messages != self.request.messages)
        return ((copy.location, copy.messages) for copy in others if copy.rows)

    @property
    def instants(self) -> set[tuple[int, int]]:
        """The sequences and times of the live messages, by which their copies in other histories are recognized.

        A removed file may be of an earlier table, whose sequences are other messages.
        """
        live = self.opened.store.data_files(self.planned.plan.actions.files)
        return {
            (row["seq"], row["ts_ns"])
            for file in live
            for rows in erased_rows(file.location, self.request.messages, _WITH_TIMES)
            for row in rows.to_pylist()
        }

    @cached_property
    def ids(self) -> pa.Table:
        """The sequences and message ids of the erased messages, each once."""
        narrow = (
            rows.select([name for name in ("seq", "msg_id") if name in rows.schema.names])
            for location, messages in self._of_history
            for rows in erased_rows(location, messages, _WITH_IDS)
        )
        empty = pa.table({"seq": pa.array([], pa.int64()), "msg_id": pa.array([], pa.string())})
        every = pa.concat_tables([empty, *narrow], promote_options="permissive")
        return every.group_by(["seq", "msg_id"]).aggregate([])

    @cached_property
    def lost_undos(self) -> list[str]:
        """The runs that can no longer be undone, because a file that they removed is deleted."""
        gone = {path_in_log(copy.path) for copy in self.copies}
        gone |= {data_path(path) for path in self.planned.plan.actions.files["path"].to_pylist()}
        history = history_of(self.opened.warehouse, self.opened.name)
        return [
            run
            for run, names in kept_runs(self.opened).items()
            if "removed" in names and history.undone_by(run) is None
            if not gone.isdisjoint(map(data_path, removed_by(self.opened, run)))
        ]

    def refuse_missing(self) -> None:
        """Refuse sequences of which no file has a message.

        Raises:
            MissingMessageError: names the first.
        """
        missing = np.setdiff1d(self.request.messages.wanted, self.ids["seq"].to_numpy())
        if len(missing):
            more = f", nor {len(missing) - 1:,} more of those named" if len(missing) > 1 else ""
            name = self.opened.name
            raise MissingMessageError(
                f"{name}: there is no message {missing[0]}{more} in the table, in any removed file or in an archive "
                "that can be reached; nothing was changed; leave out the missing ones: "
                f"{command('messages', name)} lists the stored ones"
            )


def survey_erasure(
    opened: OpenedStream,
    request: Erase,
    engines: Engines,
    known: Instants = (),
    without: Sequence[str] = (),
) -> ErasureSurvey:
    """Survey an erasure; only caches are written.

    Args:
        opened: the stream.
        request: the erasure.
        engines: where rows are read.
        known: sequences and times of erased messages, as far as an earlier survey found them.
        without: archives that no longer exist, as a person said.

    Raises:
        RefusedError: a legal hold covers a message that would be lost; or as `planners.requests.plan_removal`.
        DamagedError: a required file or record cannot be read.
    """
    planned = resolving_vectors(opened, partial(plan_removal, opened, request, engines), engines)
    holds = holds_of(opened)
    kept = planned.plan.kept_by_holds or {}
    _refuse_held(opened, holds, (hold for hold, messages in kept.items() if messages))
    live: list[str] = []
    hidden: frozenset[str] = frozenset()
    if planned.snapshot is not None:
        live = [file.location for file in opened.store.data_files(planned.snapshot.files)]
        hidden = _hidden(opened, planned, planned.snapshot, request)
        planned = _with_hidden(opened, planned, hidden)
        refuse_held_rows(opened, holds, _held_under_vectors(opened, planned, holds))
    copies = dead_copies(opened, live, erased_by_file(opened, request.messages), holds)
    refuse_held_rows(opened, holds, (row for copy in copies for row in copy.held))
    survey = ErasureSurvey(opened, request, planned, tuple(copies), hidden)
    return replace(survey, archives=archives_surveyed(survey, holds, known, without))


def archives_surveyed(
    survey: ErasureSurvey, holds: Sequence[Hold], known: Instants, without: Sequence[str]
) -> ArchiveSurvey:
    """The archives of a stream whose files are surveyed.

    Raises:
        RefusedError: a legal hold covers a message of an archive that would be lost.
    """
    opened, messages = survey.opened, survey.request.messages
    if not archives_of(opened):
        return ArchiveSurvey()
    if messages.times:
        elsewhere = messages
    else:
        instants = sorted({*known, *(survey.instants if messages.seqs else ())})
        seqs, times = (
            (tuple(each) for each in zip(*instants, strict=True)) if instants else ((), ())
        )
        elsewhere = ErasedMessages(messages.subjects, seqs, NEVER, times)
    archives = survey_archives(opened, messages, elsewhere, holds, without)
    refuse_held_in(opened, holds, archives)
    return archives


def refuse_held_in(
    opened: OpenedStream, holds: Sequence[Hold], archives: ArchiveSurvey, so_far: str = _NOTHING
) -> None:
    """Refuse an erasure that would lose held messages of archives, as `refuse_held_rows`.

    Raises:
        RefusedError: as `refuse_held_rows`.
    """
    refuse_held_rows(opened, holds, held_in(archives.copies, is_own=True), so_far)
    held = (hold for _, hold in held_in(archives.copies, is_own=False))
    _refuse_held(opened, holds, held, so_far)


def _hidden(
    opened: OpenedStream, planned: Planned, snapshot: Snapshot, request: Erase
) -> frozenset[str]:
    """The live files, unless they change anyway, with erased messages that a deletion vector hides."""
    vectors = opened.store.hidden_rows(snapshot)
    changed = set(planned.plan.actions.files["path"].to_pylist())
    wanted = pa.array(sorted(set(vectors) - changed), pa.string())
    live = snapshot.files
    files = opened.store.data_files(live.filter(pc.is_in(live["path"], value_set=wanted)))
    return frozenset(
        file.path
        for file in files
        if next(erased_rows(file.location, request.messages, _WITH_TIMES), None) is not None
    )


def _with_hidden(opened: OpenedStream, planned: Planned, hidden: Iterable[str]) -> Planned:
    """The removal with rewrites of files that lose hidden rows only."""
    paths = pa.array(sorted(hidden), pa.string())
    if not len(paths) or planned.snapshot is None:
        return planned
    stored = opened.store.inventory(planned.snapshot).files
    rows = stored.filter(pc.is_in(stored["path"], value_set=paths))
    nothing = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
    actions = pa.array([REWRITE] * rows.num_rows, pa.string())
    for name, values in (
        ("action", actions),
        ("removed_messages", nothing),
        ("removed_bytes", nothing),
    ):
        rows = rows.append_column(PLANNED_FILES.field(name), values)
    plan = planned.plan
    files = pa.concat_tables(
        [plan.actions.files, rows.select(PLANNED_FILES.names).cast(PLANNED_FILES)]
    )
    return replace(planned, plan=replace(plan, effects=replace(plan.actions, files=files)))


def _held_under_vectors(
    opened: OpenedStream, planned: Planned, holds: Sequence[Hold]
) -> Iterator[tuple[int, str]]:
    """The held rows that deletion vectors hide in files about to be rewritten, each with the hold's id."""
    if not holds:
        return
    for file in opened.store.data_files(planned.plan.actions.files):
        ranges = ranges_in(file.hidden)
        for rows in rows_of(file.location, _WITH_TIMES):
            inside = in_ranges(rows["seq"].to_numpy(), ranges)
            yield from held_rows(rows.filter(pa.array(inside)), holds)


def refuse_held_rows(
    opened: OpenedStream,
    holds: Sequence[Hold],
    held: Iterable[tuple[int, str]],
    so_far: str = _NOTHING,
) -> None:
    """Refuse an erasure that would lose held messages, of which the table has no live copy.

    Args:
        opened: the stream.
        holds: the legal holds in effect.
        held: sequences of rows about to be lost, each with the id of a legal hold.
        so_far: what the erasure has changed, as a part of a sentence.

    Raises:
        RefusedError: names the legal holds, their owners and reasons.
    """
    rows = sorted(set(held))
    if rows:
        live = _live_among(opened, np.array([seq for seq, _ in rows]))
        _refuse_held(opened, holds, (hold for seq, hold in rows if seq not in live), so_far)


def _live_among(opened: OpenedStream, seqs: np.ndarray) -> set[int]:
    """The sequences, of some in ascending order, that live messages have."""
    if not opened.table.exists():
        return set()
    stored = opened.store.inventory(opened.store.snapshot()).files
    begin = np.searchsorted(seqs, stored["min_seq"].to_numpy(), side="left")
    end = np.searchsorted(seqs, stored["max_seq"].to_numpy(), side="right")
    near = opened.store.data_files(stored.filter(pa.array(end > begin)))
    columns = (read_columns(file, ("seq",))[0]["seq"].to_numpy() for file in near)
    return {seq for column in columns for seq in seqs[np.isin(seqs, column)].tolist()}


def _refuse_held(
    opened: OpenedStream, holds: Sequence[Hold], held: Iterable[str], so_far: str = _NOTHING
) -> None:
    """Refuse an erasure that would lose held messages.

    Raises:
        RefusedError: names the legal holds, their owners and reasons.
    """
    wanted = sorted(set(held))
    if not wanted:
        return
    named = [hold for hold in holds if hold.id in wanted]
    first = named[0]
    owner = "" if first.owner is None else f" of {first.owner}"
    more = f" and {counted(len(named) - 1, 'other hold')}" if len(named) > 1 else ""
    raise RefusedError(
        f"{opened.name}: legal hold {first.id}{owner} ({first.reason}){more} keeps messages that the erasure would "
        f"destroy, and a legal hold wins; {so_far}; erase after "
        f"{command('hold release', first.id, options='--reason …')}"
    )


def removed_by(opened: OpenedStream, run: str) -> list[str]:
    """The paths of the files that a run removed, by its record."""
    paths: list[str] = read_record(opened, run, "removed")["path"].to_pylist()
    return paths
