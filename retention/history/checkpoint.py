"""The checkpoint of a run history: the digests of forgotten records, by which later links are still verified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retention.history.chain import ChainedOutcome, pruned
from retention.history.record_files import damage_named, read_fields, write_fields
from retention.storage import files
from retention.storage.crash_points import Step

_CHECKPOINT = "forgotten.json"
_FORGOTTEN = "forgotten"


def read_checkpoint(directory: str) -> list[ChainedOutcome]:
    """The runs with deleted records that a link still needs, oldest first.

    Args:
        directory: the directory of the history.

    Raises:
        DamagedError: the checkpoint is damaged.
    """
    location = files.join(directory, _CHECKPOINT)
    fields = read_fields(location) or {_FORGOTTEN: []}
    with damage_named(location):
        return [ChainedOutcome(run, digest, link) for run, digest, link in fields[_FORGOTTEN]]


def add_to_checkpoint(directory: str, outcomes: Iterable[ChainedOutcome]) -> None:
    """Add runs whose records are about to be deleted; durable when this returns.

    Args:
        directory: the directory of the history.
        outcomes: the runs with an outcome.

    Raises:
        DamagedError: the checkpoint is damaged.
    """
    known = {outcome.run: outcome for outcome in read_checkpoint(directory)}
    known |= {outcome.run: outcome for outcome in outcomes}
    _write(directory, [known[run] for run in sorted(known)])


def prune_checkpoint(directory: str, oldest_remaining: str | None) -> None:
    """Take out the runs that no link needs, once their records are deleted.

    Args:
        directory: the directory of the history.
        oldest_remaining: the oldest run that keeps its records; None: there is none.

    Raises:
        DamagedError: the checkpoint is damaged.
    """
    _write(directory, pruned(read_checkpoint(directory), oldest_remaining))


def _write(directory: str, outcomes: Sequence[ChainedOutcome]) -> None:
    values = [[outcome.run, outcome.digest, outcome.link] for outcome in outcomes]
    write_fields(files.join(directory, _CHECKPOINT), {_FORGOTTEN: values}, Step.HISTORY_CHECKPOINT)
