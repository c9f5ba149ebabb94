"""The run history: what every run set out to do and what became of it, append-only, one stream at a time."""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from retention import files
from retention.checks import checked, unchecked
from retention.errors import DamagedError
from retention.steps import Step, reached
from retention.subjects import path_name
from retention.units import SECOND, format_instant, parse_instant

_BEGUN = ".begun.json"
_DONE = ".done.json"
_INSTANT = re.compile(r"\d{8}T\d{6}\.\d{9}Z-")


@dataclass(frozen=True)
class History:
    """The records of one stream's runs, `<warehouse>/runs/<stream>/`.

    A run that commits writes two records: one before the commit, with everything that undoing it needs, and one
    after it, with the outcome. A run without its second record was interrupted; whether it committed is a question
    to the table. Run names sort by time.
    """

    directory: str

    def name_run(self, started_ns: int) -> str:
        """A new name for a run; it sorts behind every run of this stream, also after a clock was set back."""
        newest = next(
            (name for name in reversed(files.names(self.directory)) if _INSTANT.match(name)), None
        )
        if newest is not None:
            started_ns = max(started_ns, _instant_of(newest) + 1)
        return f"{_stamp(started_ns)}-{secrets.token_hex(3)}"

    def begin(self, run: str, record: Mapping[str, Any]) -> None:
        """Record what a run is about to commit; durable when this returns."""
        self._write(run + _BEGUN, {"run": run, **record})
        reached(Step.HISTORY_BEGUN)

    def finish(self, run: str, record: Mapping[str, Any]) -> None:
        """Record a run's outcome; durable when this returns."""
        self._write(run + _DONE, {"run": run, **record})
        reached(Step.HISTORY_DONE)

    def begun_location(self, run: str) -> str:
        """Where the record of what a run set out to do lies."""
        return files.join(self.directory, run + _BEGUN)

    def begun(self, run: str) -> dict[str, Any] | None:
        """What a run set out to do, None if there is no such run."""
        return self._read(run + _BEGUN)

    def done(self, run: str) -> dict[str, Any] | None:
        """A run's outcome, None if there is none."""
        return self._read(run + _DONE)

    def unfinished(self) -> list[str]:
        """Runs that began and have no outcome, oldest first."""
        names = files.names(self.directory)
        done = {name.removesuffix(_DONE) for name in names if name.endswith(_DONE)}
        begun = (name.removesuffix(_BEGUN) for name in names if name.endswith(_BEGUN))
        return [run for run in begun if run not in done]

    def outcomes(self) -> Iterator[dict[str, Any]]:
        """Outcomes, newest first."""
        for name in reversed(files.names(self.directory)):
            if name.endswith(_DONE) and (record := self._read(name)) is not None:
                yield record

    def since(self, run: str) -> list[dict[str, Any]]:
        """Outcomes of the runs that began after `run`, newest first."""
        return list(itertools.takewhile(lambda record: record["run"] > run, self.outcomes()))

    def next_seq(self, partition: int, epoch: int) -> int:
        """The next sequence of a partition, as `next_seqs` has it; else 0."""
        return self.next_seqs(epoch).get(partition, 0)

    def next_seqs(self, epoch: int) -> dict[int, int]:
        """Partition → the next sequence when an epoch's last run looked, lest the table forget and give one twice."""
        runs = (record for record in self.outcomes() if record.get("epoch", 0) == epoch)
        newest = next((record for record in runs if "next_seq" in record), {})
        said = newest.get("next_seq", {})
        return {int(partition): int(seq) for partition, seq in said.items()}

    def last_as_of_ns(self) -> int | None:
        """The latest instant that a run applied rules at; None if there was none.

        Each outcome carries the latest instant up to it, so that the newest one answers; outcomes that a crash kept
        from carrying it (settled later) count by their own instant.
        """
        latest = None
        for record in self.outcomes():
            if record.get("kind") == "apply" and record.get("status") == "done":
                latest = max(latest or record["as_of_ns"], record["as_of_ns"])
                if "latest_as_of_ns" in record:
                    return max(latest, int(record["latest_as_of_ns"]))
        return latest

    def last_policy(self) -> dict[str, Any] | None:
        """The policy that the stream had when it was last worked on; None if that never was."""
        done = (record for record in self.outcomes() if record.get("status") == "done")
        policies = (record["policy"] for record in done if "policy" in record)
        return next(policies, None)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        text = json.dumps(checked(record), indent=1, sort_keys=True, ensure_ascii=False)
        files.replace(files.join(self.directory, name), text.encode())

    def _read(self, name: str) -> dict[str, Any] | None:
        location = files.join(self.directory, name)
        content = files.read_bytes(location)
        if content is None:
            return None
        try:
            record = unchecked(json.loads(content))
        except (ValueError, AttributeError) as error:
            raise DamagedError(
                f"{location}: this record of the run history is damaged ({error}); nothing was changed; restore it "
                "from a copy, or remove it if the run does not matter any more"
            ) from error
        return record


def _stamp(instant_ns: int) -> str:
    """An instant as the head of a run's name, to the nanosecond: `20261121T103209.739426394Z`."""
    seconds, fraction = divmod(instant_ns, SECOND)
    text = format_instant(seconds * SECOND).replace("-", "").replace(":", "").rstrip("Z")
    return f"{text}.{fraction:09d}Z"


def _instant_of(name: str) -> int:
    """The instant in a run's name, nanoseconds since the epoch."""
    date, time = name[:8], name[9:15]
    text = f"{date[:4]}-{date[4:6]}-{date[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}{name[15:26]}"
    return parse_instant(text)


def history_of(warehouse: str, stream: str) -> History:
    """The run history of one stream of a warehouse."""
    return History(files.join(warehouse, "runs", path_name(stream)))
