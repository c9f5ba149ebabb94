"""The run history: the intent and the outcome of every run, append-only, one stream at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from retention.core import run_names
from retention.core.counters import Counters
from retention.core.run_names import RunName
from retention.core.subjects import path_name
from retention.errors import RefusedError
from retention.history.chain import (
    ChainedOutcome,
    StoredRun,
    committed,
    digest_of,
    next_of,
    outcome_of,
)
from retention.history.checkpoint import add_to_checkpoint, prune_checkpoint, read_checkpoint
from retention.history.initiator import initiator
from retention.history.kinds import (
    Applied,
    Dropped,
    NewerRun,
    PermittedRun,
    Repaired,
    TableApplied,
    TableUndone,
    Undone,
    record_of,
)
from retention.history.record import ABANDONED, BEGUN, FORMAT, RunRecord
from retention.history.record_files import (
    BEGUN_SUFFIX,
    DONE_SUFFIX,
    damage_named,
    finished_in,
    read_fields,
    refuse_misplaced,
    unfinished_in,
    write_fields,
)
from retention.storage import files
from retention.storage.crash_points import Step, reached

Chained = TypeVar("Chained", bound=RunRecord)


@dataclass(frozen=True)
class History:
    """The records of one stream's runs, `<warehouse>/runs/<stream>/`.

    A committing run writes two records: one before the commit, with everything for its undo, and one after it, with
    the outcome. A run without its second record was interrupted; the table shows whether it committed. Run names sort
    by time.
    """

    directory: str

    def name_run(self, started_ns: int) -> str:
        """A new name for a run that sorts after every run of this stream, even after a clock was set back."""
        newest = self._newest()
        if newest is None:
            return RunName(0, started_ns).written()
        return RunName(newest.era, max(started_ns, newest.started_ns + 1)).written()

    def name_repair(self, now_ns: int) -> str:
        """A new name for the repair of a clock; later names have the real time again."""
        newest = self._newest()
        if newest is None or newest.started_ns < now_ns:
            return self.name_run(now_ns)
        return RunName(newest.era + 1, now_ns).written()

    def chained(self, intent: Chained, counter: int | None) -> Chained:
        """The intent of a run in its place in the chain, with commitments (`history.chain`).

        Args:
            intent: the intent, complete.
            counter: the table's counter of the last link; None: the table has none.
        """
        return committed(intent.updated(chain=next_of(self._chained_outcomes(), counter)))

    def begin(self, intent: RunRecord) -> str:
        """Record the intent and initiator of a run before its commit; durable when this returns.

        Returns:
            The link by which the commit and the next run name the run.
        """
        return digest_of(self._write(intent.run + BEGUN_SUFFIX, intent, Step.HISTORY_BEGUN))

    def finish(self, outcome: RunRecord) -> None:
        """Record a run's outcome, with the highest next sequences of all runs so far; durable when this returns.

        The initiator is this process, unless the record has another (`who`), or None if unknown.
        """
        if outcome.chain is not None and outcome.link is None and outcome.status != ABANDONED:
            intent = self._fields(outcome.run + BEGUN_SUFFIX)
            outcome = outcome.updated(link=None if intent is None else digest_of(intent))
        self._write(outcome.run + DONE_SUFFIX, self._with_floor(outcome), Step.HISTORY_DONE)

    def begun_location(self, run: str) -> str:
        """The location of the record of a run's intent."""
        return files.join(self.directory, run + BEGUN_SUFFIX)

    def done_location(self, run: str) -> str:
        """The location of the record of a run's outcome."""
        return files.join(self.directory, run + DONE_SUFFIX)

    def begun(self, run: str) -> RunRecord | None:
        """A run's intent; None if there is no such run."""
        return self._read(run + BEGUN_SUFFIX)

    def done(self, run: str) -> RunRecord | None:
        """A run's outcome; None if there is none."""
        return self._read(run + DONE_SUFFIX)

    def forget(self, runs: Iterable[str]) -> None:
        """Delete the records of runs but a checkpoint; intents first, so that no run looks interrupted after a kill."""
        runs = list(runs)
        outcomes = [each for run in runs if (each := self._chained_outcome(run)) is not None]
        if outcomes:
            add_to_checkpoint(self.directory, outcomes)
        for run in runs:
            files.delete([self.begun_location(run), self.done_location(run)])
        if outcomes:
            prune_checkpoint(self.directory, min(self.finished(), default=None))
        reached(Step.HISTORY_FORGOTTEN)

    def unfinished(self) -> list[str]:
        """Runs with an intent and no outcome, oldest first."""
        return unfinished_in(files.names(self.directory))

    def interrupted(self) -> list[RunRecord]:
        """The intents of runs without an outcome, oldest first; checks first that every run has a known kind.

        Raises:
            RefusedError: a newer release recorded a run of a kind unknown to this one.
        """
        names = files.names(self.directory)
        intents = (self.begun(run) for run in unfinished_in(names))
        known = [intent for intent in intents if intent is not None]
        self._refuse_newer(itertools.chain(known, self._outcomes(finished_in(names))))
        return known

    def refuse_newer(self) -> None:
        """Refuse to change a stream with a run of a kind unknown to this release.

        Raises:
            RefusedError: names the run, its kind, and the remedy.
        """
        self.interrupted()

    def finished(self) -> list[str]:
        """Runs with an outcome, newest first."""
        return finished_in(files.names(self.directory))

    def outcomes(self) -> Iterator[RunRecord]:
        """Outcomes, newest first."""
        return self._outcomes(self.finished())

    def since(self, run: str) -> list[RunRecord]:
        """Outcomes of the runs that began after `run`, newest first."""
        return list(itertools.takewhile(lambda record: record.run > run, self.outcomes()))

    def above(self, counters: Counters) -> Counters:
        """Raise the next sequences in a table's counters to the highest that runs recorded.

        A table restored from a copy has lower ones than before; the sequences in between were already assigned.
        """
        floors = self.next_seqs(counters.epoch)
        raised = {p: max(seq, counters.next_seq.get(p, 0)) for p, seq in floors.items() if seq}
        return replace(counters, next_seq={**counters.next_seq, **raised})

    def next_seq(self, partition: int, epoch: int) -> int:
        """The next sequence of a partition from `next_seqs`; 0 if there is none."""
        return self.next_seqs(epoch).get(partition, 0)

    def next_seqs(self, epoch: int) -> dict[int, int]:
        """Partition → the highest next sequence that any run of an epoch read or set.

        Each outcome has the highest of all runs up to it (`floor`), so the newest ones suffice. Earlier versions of
        this program recorded only each run's own. A table restored to a state before a repair continues after the
        repair.
        """
        outcomes = self.outcomes()
        newest = next(outcomes, None)
        if newest is None:
            return {}
        if newest.epoch != epoch:
            epoch = self.continuing(epoch)[-1]
        floors: dict[int, int] = {}
        for record in itertools.chain([newest], outcomes):
            if record.status == ABANDONED:
                continue
            if record.ends_epoch == epoch:
                _raise(floors, record.ended_next_seq or {})
            if record.epoch == epoch:
                _raise(floors, record.next_seq or {})
                if record.floor is not None:
                    _raise(floors, record.floor)
                    break
        return floors

    def last_epoch(self) -> int:
        """The highest epoch that a run began or returned to; a restored table may not have it."""
        return max((record.epoch for record in self.outcomes()), default=0)

    def possible_next_seqs(self, epoch: int, highest: int) -> dict[int, int]:
        """Partition → the highest next sequence, up to `highest`, that any run of an epoch recorded."""
        epochs, next_seqs = self.continuing(epoch), dict[int, int]()
        for record in self.outcomes():
            if record.epoch in epochs:
                seqs = (record.next_seq or {}).items()
                _raise(next_seqs, {part: seq for part, seq in seqs if seq <= highest})
        return next_seqs

    def continuing(self, epoch: int) -> list[int]:
        """An epoch, and the epochs that successively continue its sequences after repairs."""
        newest = next(self.outcomes(), None)
        if newest is None or newest.epoch == epoch:
            return [epoch]
        repairs = {
            record.ends_epoch: record.epoch
            for record in self.outcomes()
            if isinstance(record, Repaired) and record.ends_epoch is not None and record.is_done
        }
        epochs = [epoch]
        while epochs[-1] in repairs:
            epochs.append(repairs.pop(epochs[-1]))
        return epochs

    def last_as_of_ns(self) -> int | None:
        """The latest instant at which a run applied rules since the last repair of a clock; None if there was none.

        Each outcome has the latest instant up to it, so the newest one suffices. Outcomes without it after a crash
        (settled later) count by their own instant. The repair of a clock resets it.
        """
        latest = None
        for record in self._of_this_table():
            if isinstance(record, Applied) and record.may_count:
                latest = max(latest or record.as_of_ns, record.as_of_ns)
            if record.latest_as_of_ns is not None:
                return max(latest or 0, record.latest_as_of_ns)
        return latest

    def run_at(self, as_of_ns: int) -> str | None:
        """The newest run that applied rules at an instant; None if there is no longer a record of it."""
        runs = self._of_this_table()
        passes = (record for record in runs if isinstance(record, Applied | TableApplied))
        return next((record.run for record in passes if record.as_of_ns == as_of_ns), None)

    def last_policy(self) -> dict[str, object] | None:
        """The stream's policy at its last finished run with a policy; None if there was none."""
        done = (record for record in self._of_this_table() if record.is_done)
        return next((record.policy for record in done if record.policy is not None), None)

    def last_applied_policy(self) -> dict[str, object] | None:
        """The stream's policy at its last finished pass; None if there was none."""
        passes = (record for record in self._of_this_table() if isinstance(record, Applied))
        return next((record.policy for record in passes if record.is_done), None)

    def spending(self, digest: str) -> PermittedRun | None:
        """The newest run that spent or may have spent an approval, by the digest of its report; None if none did."""
        planned = (record for record in self.outcomes() if isinstance(record, PermittedRun))
        return next((run for run in planned if run.may_count and _digest_of(run) == digest), None)

    def about_to_spend(self, digest: str) -> str | None:
        """A run without an outcome that is about to spend an approval; None if there is none."""
        intents = (self.begun(run) for run in self.unfinished())
        planned = (intent for intent in intents if isinstance(intent, PermittedRun))
        return next((intent.run for intent in planned if _digest_of(intent) == digest), None)

    def undone_by(self, run: str) -> str | None:
        """The run that undid or may have undone another one; None if none did."""
        undos = (each for each in self.since(run) if isinstance(each, Undone | TableUndone))
        return next((undo.run for undo in undos if undo.may_count and undo.undoes == run), None)

    def last_drop(self) -> str | None:
        """The last run that dropped the stream and is not undone; None if there is none."""
        return next((record.run for record in self._in_force() if _drops(record)), None)

    def _of_this_table(self) -> Iterator[RunRecord]:
        """Outcomes, newest first, back to the last drop of the stream; earlier ones belong to another table."""
        return itertools.takewhile(lambda record: not _drops(record), self._in_force())

    def _in_force(self) -> Iterator[RunRecord]:
        """Outcomes, newest first, without undone drops of the stream."""
        undone: set[str] = set()
        for record in self.outcomes():
            if isinstance(record, Undone):
                undone.add(record.undoes)
            if not (_drops(record) and record.run in undone):
                yield record

    def stored(self) -> Iterator[StoredRun]:
        """The records of each run as stored, oldest first.

        Raises:
            DamagedError: one is damaged.
        """
        names = files.names(self.directory)
        for run in sorted({*finished_in(names), *unfinished_in(names)}):
            yield StoredRun(run, self._fields(run + BEGUN_SUFFIX), self._fields(run + DONE_SUFFIX))

    def forgotten(self) -> list[ChainedOutcome]:
        """The checkpoint of the runs with deleted records, oldest first.

        Raises:
            DamagedError: it is damaged.
        """
        return read_checkpoint(self.directory)

    def _chained_outcome(self, run: str) -> ChainedOutcome | None:
        return outcome_of(StoredRun(run, None, self._fields(run + DONE_SUFFIX)))

    def _chained_outcomes(self) -> Iterator[ChainedOutcome]:
        """The outcomes, newest first, and then the forgotten ones."""
        outcomes = map(self._chained_outcome, self.finished())
        yield from (outcome for outcome in outcomes if outcome is not None)
        yield from reversed(self.forgotten())

    def _outcomes(self, runs: Iterable[str]) -> Iterator[RunRecord]:
        return (record for run in runs if (record := self.done(run)) is not None)

    def _refuse_newer(self, records: Iterable[RunRecord]) -> None:
        """Refuse a run of an unknown kind, back to a record by a release that checked all records before it."""
        for record in records:
            if isinstance(record, NewerRun):
                raise self.newer_error(record)
            if record.status != BEGUN and record.format is not None and record.format <= FORMAT:
                return

    def newer_error(self, record: NewerRun) -> RefusedError:
        """The refusal to change a stream with a run of a newer release."""
        is_begun = record.status == BEGUN
        repair = (record.model_extra or {}).get("repair")
        kind = record.kind if repair is None else f"{record.kind} {repair}"
        place = self.begun_location(record.run) if is_begun else self.done_location(record.run)
        return RefusedError(
            f"{place}: a newer release of this program recorded a run of a kind that this one does not know "
            f"({kind}, {record.status}); nothing was changed; use that release, or a later one, to "
            "remove or restore messages of the stream (this one can still read it)"
        )

    def _with_floor(self, outcome: RunRecord) -> RunRecord:
        """The outcome with its `floor`: the highest next sequences of its epoch up to it."""
        if outcome.next_seq is None or outcome.status == ABANDONED:
            return outcome
        floors = self.next_seqs(outcome.epoch)
        _raise(floors, outcome.next_seq)
        return outcome.updated(floor=floors)

    def _newest(self) -> RunName | None:
        """The newest run with a record."""
        known = (run_names.parse_run_name(name) for name in reversed(files.names(self.directory)))
        return next((name for name in known if name is not None), None)

    def _write(self, name: str, record: RunRecord, step: Step) -> dict[str, object]:
        who = {} if record.names_initiator else {"who": initiator()}
        fields = committed(record.updated(format=FORMAT, **who)).as_stored()
        write_fields(files.join(self.directory, name), fields, step)
        return fields

    def _read(self, name: str) -> RunRecord | None:
        fields = self._fields(name)
        if fields is None:
            return None
        with damage_named(files.join(self.directory, name)):
            record = record_of(fields)
            refuse_misplaced(record.run, name)
            return record

    def _fields(self, name: str) -> dict[str, Any] | None:
        """The fields of a record as stored; None: there is none."""
        if "/" in name or "\0" in name:
            # No run has such a name.
            return None
        return read_fields(files.join(self.directory, name))


def _digest_of(record: PermittedRun) -> str | None:
    return None if record.approval is None else record.approval.digest


def _drops(record: RunRecord) -> bool:
    return isinstance(record, Dropped) and record.is_done


def _raise(floors: dict[int, int], seqs: Mapping[int, int]) -> None:
    for partition, seq in seqs.items():
        floors[partition] = max(floors.get(partition, 0), seq)


def history_of(warehouse: str, stream: str) -> History:
    """The run history of one stream of a warehouse."""
    return History(files.join(warehouse, "runs", path_name(stream)))
