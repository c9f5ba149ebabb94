"""The run history: the intent and the outcome of every run, append-only, one stream at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from retention.core import run_names
from retention.core.documents import RunRecord, judge
from retention.core.inventory import Counters
from retention.core.run_names import RunName
from retention.core.subjects import path_name
from retention.errors import DamagedError
from retention.history.initiator import initiator
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

REPAIR = "repair"
"""Kind of the records of runs that repair a stream."""
DROP = "drop"
"""Kind of the records of runs that drop a stream."""
_BEGUN = ".begun.json"
_DONE = ".done.json"
ABANDONED = "abandoned"
"""The status of a run that was interrupted and changed nothing."""
UNKNOWN = "unknown"
"""The status of a run of which it cannot be known any more whether it committed."""


@dataclass(frozen=True)
class History:
    """The records of one stream's runs, `<warehouse>/runs/<stream>/`.

    A run that commits writes two records: one before the commit, with everything that undoing it needs, and one
    after it, with the outcome. A run without its second record was interrupted; whether it committed is a question
    to the table. Run names sort by time.
    """

    directory: str

    def name_run(self, started_ns: int) -> str:
        """A new name for a run, which sorts after every run of this stream, also after a clock was set back."""
        newest = self._newest()
        if newest is None:
            return RunName(0, started_ns).written()
        return RunName(newest.era, max(started_ns, newest.started_ns + 1)).written()

    def name_repair(self, now_ns: int) -> str:
        """A new name for the repair of a clock: names after it are of the real time again."""
        newest = self._newest()
        if newest is None or newest.started_ns < now_ns:
            return self.name_run(now_ns)
        return RunName(newest.era + 1, now_ns).written()

    def begin(self, run: str, record: Mapping[str, Any]) -> None:
        """Record the intent of a run before its commit, and who runs it; durable when this returns."""
        self._write(run + _BEGUN, {"who": initiator(), **record, "run": run})
        reached(Step.HISTORY_BEGUN)

    def finish(self, run: str, record: Mapping[str, Any]) -> None:
        """Record a run's outcome, with the highest next sequences of all runs so far; durable when this returns.

        Who ran it is this process, unless the record has another (`who`), or None where nobody knows.
        """
        self._write(run + _DONE, {"who": initiator(), **record, "run": run, **self._floor(record)})
        reached(Step.HISTORY_DONE)

    def begun_location(self, run: str) -> str:
        """The location of the record of a run's intent."""
        return files.join(self.directory, run + _BEGUN)

    def done_location(self, run: str) -> str:
        """The location of the record of a run's outcome."""
        return files.join(self.directory, run + _DONE)

    def begun(self, run: str) -> dict[str, Any] | None:
        """A run's intent, None if there is no such run."""
        return self._read(run + _BEGUN)

    def done(self, run: str) -> dict[str, Any] | None:
        """A run's outcome, None if there is none."""
        return self._read(run + _DONE)

    def forget(self, runs: Iterable[str]) -> None:
        """Delete the records of runs; intents first, so that no run looks interrupted after a kill."""
        for run in runs:
            files.delete([self.begun_location(run), self.done_location(run)])
        reached(Step.HISTORY_FORGOTTEN)

    def unfinished(self) -> list[str]:
        """Runs that began and have no outcome, oldest first."""
        names = files.names(self.directory)
        done = {name.removesuffix(_DONE) for name in names if name.endswith(_DONE)}
        begun = (name.removesuffix(_BEGUN) for name in names if name.endswith(_BEGUN))
        return [run for run in begun if run not in done]

    def finished(self) -> list[str]:
        """Runs that have an outcome, newest first."""
        names = reversed(files.names(self.directory))
        return [name.removesuffix(_DONE) for name in names if name.endswith(_DONE)]

    def outcomes(self) -> Iterator[dict[str, Any]]:
        """Outcomes, newest first."""
        for run in self.finished():
            if (record := self.done(run)) is not None:
                yield record

    def since(self, run: str) -> list[dict[str, Any]]:
        """Outcomes of the runs that began after `run`, newest first."""
        return list(itertools.takewhile(lambda record: record["run"] > run, self.outcomes()))

    def above(self, counters: Counters) -> Counters:
        """Raise the next sequences in a table's counters to those that runs have seen.

        A table that was put back from a copy has lower ones than it had: those in between were given out.
        """
        floors = self.next_seqs(counters.epoch)
        raised = {p: max(seq, counters.next_seq.get(p, 0)) for p, seq in floors.items() if seq}
        return replace(counters, next_seq={**counters.next_seq, **raised})

    def next_seq(self, partition: int, epoch: int) -> int:
        """The next sequence of a partition, as `next_seqs` has it; else 0."""
        return self.next_seqs(epoch).get(partition, 0)

    def next_seqs(self, epoch: int) -> dict[int, int]:
        """Partition → the highest next sequence that any run of an epoch saw or set.

        Outcomes carry the highest of all up to them (`floor`), so that the newest ones answer. Earlier versions of
        this program wrote only what each run saw. A table that was put back to before a repair goes on behind it.
        """
        outcomes = self.outcomes()
        newest: dict[str, Any] = next(outcomes, {"status": ABANDONED})
        if newest.get("epoch", 0) != epoch:
            epoch = self.continuing(epoch)[-1]
        floors: dict[int, int] = {}
        for record in itertools.chain([newest], outcomes):
            if record.get("status") == ABANDONED:
                continue
            if record.get("ends_epoch") == epoch:
                _raise(floors, record.get("ended_next_seq", {}))
            if record.get("epoch", 0) == epoch:
                _raise(floors, record.get("next_seq", {}))
                if "floor" in record:
                    _raise(floors, record["floor"])
                    break
        return floors

    def last_epoch(self) -> int:
        """The highest epoch that a run began or went back to; a table that was put back does not know it."""
        return max((record.get("epoch", 0) for record in self.outcomes()), default=0)

    def possible_next_seqs(self, epoch: int, highest: int) -> dict[int, int]:
        """Partition → the highest next sequence that any run of an epoch has seen, of those up to `highest`."""
        epochs, next_seqs = self.continuing(epoch), dict[int, int]()
        for record in self.outcomes():
            if record.get("epoch", 0) in epochs:
                for partition, seq in record.get("next_seq", {}).items():
                    if seq <= highest:
                        next_seqs[int(partition)] = max(seq, next_seqs.get(int(partition), 0))
        return next_seqs

    def continuing(self, epoch: int) -> list[int]:
        """An epoch, and those in which its sequences go on one after the other, because they were repaired."""
        if next(self.outcomes(), {}).get("epoch", 0) == epoch:
            return [epoch]
        repairs = {
            record["ends_epoch"]: record["epoch"]
            for record in self.outcomes()
            if record.get("kind") == REPAIR
            and "ends_epoch" in record
            and record["status"] == "done"
        }
        epochs = [epoch]
        while epochs[-1] in repairs:
            epochs.append(repairs.pop(epochs[-1]))
        return epochs

    def last_as_of_ns(self) -> int | None:
        """The latest instant that a run applied rules at since a clock was repaired; None if there was none.

        Each outcome carries the latest instant up to it, so that the newest one answers; outcomes that a crash kept
        from carrying it (settled later) count by their own instant. The repair of a clock sets it anew.
        """
        latest = None
        for record in self._of_this_table():
            if record.get("kind") == "apply" and record.get("status") in {"done", UNKNOWN}:
                latest = max(latest or record["as_of_ns"], record["as_of_ns"])
            if "latest_as_of_ns" in record:
                return max(latest or 0, int(record["latest_as_of_ns"]))
        return latest

    def last_policy(self) -> dict[str, Any] | None:
        """The stream's policy at its last finished run that had one; None if there was none."""
        done = (record for record in self._of_this_table() if record.get("status") == "done")
        policies = (record["policy"] for record in done if "policy" in record)
        return next(policies, None)

    def last_applied_policy(self) -> dict[str, Any] | None:
        """The stream's policy at its last finished pass; None if there was none."""
        passes = (record for record in self._of_this_table() if record.get("kind") == "apply")
        done = (record for record in passes if record.get("status") == "done")
        return next((record["policy"] for record in done), None)

    def last_drop(self) -> str | None:
        """The last run that dropped the stream and is not undone; None if there is none."""
        return next((record["run"] for record in self._in_force() if _drops(record)), None)

    def _of_this_table(self) -> Iterator[dict[str, Any]]:
        """Outcomes, newest first, back to where the stream was dropped: those before are of another table."""
        return itertools.takewhile(lambda record: not _drops(record), self._in_force())

    def _in_force(self) -> Iterator[dict[str, Any]]:
        """Outcomes, newest first, without runs that dropped the stream and are undone."""
        undone: set[str] = set()
        for record in self.outcomes():
            undone.add(record.get("undoes", ""))
            if not (_drops(record) and record["run"] in undone):
                yield record

    def _floor(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The `floor` of an outcome: the highest next sequences of its epoch up to it."""
        if "next_seq" not in record or record.get("status") == ABANDONED:
            return {}
        floors = self.next_seqs(record.get("epoch", 0))
        _raise(floors, record["next_seq"])
        return {"floor": {str(partition): seq for partition, seq in sorted(floors.items())}}

    def _newest(self) -> RunName | None:
        """The newest run that has a record."""
        known = (run_names.parse_run_name(name) for name in reversed(files.names(self.directory)))
        return next((name for name in known if name is not None), None)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        text = json.dumps(with_checksum(record), indent=1, sort_keys=True, ensure_ascii=False)
        files.replace(files.join(self.directory, name), text.encode())

    def _read(self, name: str) -> dict[str, Any] | None:
        if "/" in name or "\0" in name:
            # No run has such a name.
            return None
        location = files.join(self.directory, name)
        content = files.read_bytes(location)
        if content is None:
            return None
        try:
            record = verified(parse_json(content))
            judge(RunRecord, record)
            _refuse_misplaced(record["run"], name)
        except (ValueError, AttributeError) as error:
            raise DamagedError(
                f"{location}: this record of the run history is damaged ({error}); nothing was changed; restore it "
                "from a copy, or remove it if the run does not matter any more"
            ) from error
        return record


def _drops(record: Mapping[str, Any]) -> bool:
    return record.get("kind") == DROP and record.get("status") == "done"


def _refuse_misplaced(run: str, name: str) -> None:
    if name not in (run + _BEGUN, run + _DONE):
        raise ValueError(f"run is {run}, whose record this is not")


def _raise(floors: dict[int, int], seqs: Mapping[str, int]) -> None:
    for partition, seq in seqs.items():
        floors[int(partition)] = max(floors.get(int(partition), 0), seq)


def history_of(warehouse: str, stream: str) -> History:
    """The run history of one stream of a warehouse."""
    return History(files.join(warehouse, "runs", path_name(stream)))
